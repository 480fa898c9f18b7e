"""The kernel can be used alone: what it imports, what it loads, and what it exports."""

from __future__ import annotations

import subprocess
import sys

from support.waiting import PATIENCE

from callboard import supervisors

from .import_graph import import_graph

LOADED = """
import sys
from callboard.supervisors import Actor, Root, Supervisor
print(*sorted(name for name in sys.modules))
"""


def test_the_kernel_imports_protocol_kernel_and_nothing_else_of_the_package() -> None:
    wrong = [
        f"{name} -> {target}"
        for name, targets in import_graph(for_types=True).items()
        for target in targets
        if name.split(".")[0] == "supervisors"
        if not (target.split(".")[0] == "supervisors" or target.startswith("protocol.kernel"))
    ]
    assert wrong == []


def test_protocol_kernel_imports_nothing_else_of_protocol() -> None:
    wrong = [
        f"{name} -> {target}"
        for name, targets in import_graph(for_types=True).items()
        for target in targets
        if name.startswith("protocol.kernel") and not target.startswith("protocol.kernel")
    ]
    assert wrong == []


def test_a_program_that_uses_the_kernel_alone_loads_no_other_room_and_nothing_that_is_slow() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=PATIENCE, check=True)
    loaded = done.stdout.split()
    ours = {name for name in loaded if name.startswith("callboard.")}
    assert {name.split(".")[1] for name in ours} == {"protocol", "supervisors"}
    assert {name for name in ours if name.startswith("callboard.protocol.")} == {
        "callboard.protocol.version",  # of `callboard` itself
        "callboard.protocol.kernel",
        *(f"callboard.protocol.kernel.{name}" for name in ("errors", "events", "messages", "questions")),
    }
    slow = {"asyncio", "httpx", "jsonschema", "multiprocessing", "numpy", "psutil", "rich", "urllib.request", "yaml"}
    assert not slow & set(loaded)
    assert "callboard.supervisors.process" not in loaded


def test_every_name_that_the_kernel_exports_is_there() -> None:
    assert [name for name in supervisors.__all__ if not hasattr(supervisors, name)] == []
    assert set(supervisors.__all__) <= set(dir(supervisors))
