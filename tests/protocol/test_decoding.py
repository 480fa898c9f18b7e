"""Types are decoded to from any thread."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from support.waiting import PATIENCE

from callboard.protocol.decoding import convert, decode_json, json_decoder

PACKAGE = Path(__file__).parents[2]

RACE = """
import sys, threading, types
import callboard.protocol.decoding as decoding

source = ["from __future__ import annotations", "import msgspec"]
for number in range(100):
    source += [
        f"class A{number}(msgspec.Struct):",
        f"    a: int; b: list[str]; c: dict[str, int]; d: B{number} | None = None",
        f"class B{number}(msgspec.Struct):",
        f"    x: A{number} | None = None; y: int = 0",
    ]
made = sys.modules["made"] = types.ModuleType("made")
exec("\\n".join(source), made.__dict__)
sys.setswitchinterval(1e-6)

told = {"a": 1, "b": ["x"], "c": {"k": 1}, "d": {"y": 2, "x": {"a": 1, "b": [], "c": {}}}}
raw = b'{"x": {"a": 1, "b": [], "c": {"k": 2}}}'

def use(number, each, together):
    together.wait()
    if each == 0:
        decoding.convert(told, getattr(made, f"A{number}"))
    elif each == 1:
        decoding.decode_json(raw, getattr(made, f"B{number}") | int)
    else:
        decoding.json_decoder(list[getattr(made, f"A{number}")]).decode(b"[]")

for number in range(100):
    together = threading.Barrier(3)
    threads = [threading.Thread(target=use, args=(number, each, together)) for each in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
print("all alive")
"""


def test_threads_that_use_a_type_for_the_first_time_at_once_do_not_crash_the_process() -> None:
    """With msgspec's own functions, this one ends by SIGSEGV within a few types."""
    done = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "all alive\n", "")


def test_the_package_decodes_to_types_by_these_functions_alone() -> None:
    bare = re.compile(
        r"msgspec\.convert\(|msgspec\.(json|msgpack|yaml)\.Decoder\(\S|msgspec\.\w+\.decode\([^\n]*\btype="
    )
    own = PACKAGE / "protocol" / "decoding.py"
    scripts = PACKAGE / "actors" / "work" / "library"  # processes of their own, with one thread
    found = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for room in ("actors", "cli", "protocol", "supervisors")
        for path in sorted((PACKAGE / room).rglob("*.py"))
        if path != own and not path.is_relative_to(scripts)
        for line in path.read_text().splitlines()
        if bare.search(line)
    ]
    assert found == []


class Named(msgspec.Struct):
    """Has a name."""

    name: str


def test_they_are_msgspecs_own_with_its_errors() -> None:
    assert decode_json('{"name": "x"}', Named) == Named("x")
    assert json_decoder(Named | None).decode(b"null") is None
    assert convert({"name": "x"}, list[Named] | Named) == Named("x")
    assert convert("3", int, strict=False) == 3
    with pytest.raises(msgspec.ValidationError, match=r"\$\.name"):
        decode_json(b'{"name": 1}', Named)
