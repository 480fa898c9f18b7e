"""Starting is cheap: what `--help` and completion import is a promise, so it is a list."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HEAVY = {
    "anyio", "asyncio", "httpcore", "httpx", "jsonschema", "msgspec", "numpy", "prompt_toolkit", "psutil", "rich",
    "sqlite3", "structlog", "tantivy", "trio", "trio_websocket", "usearch", "xllamacpp", "yaml",
}  # fmt: skip

PROBE = """
import os, sys
sys.argv = ["callboard", *sys.argv[1:]]
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
from callboard.cli.main import main
try:
    main()
except SystemExit:
    print(" ".join(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
"""


def imported(*arguments: str, **environment: str) -> set[str]:
    """The top-level packages that a fresh process has imported when it is done with the arguments."""
    ended = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(ended.stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["ask", "--help"],
        ["agents", "new", "--help"],
        ["tools", "call", "--help"],
        ["mcp", "serve", "--help"],
        ["kb", "search", "--help"],
        ["validate", "--help"],
        ["models", "pull", "--help"],
        ["nonsense"],
        ["loki", "--help"],
        ["-r", "code", "--help"],
        ["completion", "bash"],
        ["shell-init", "zsh"],
    ],
    ids=" ".join,
)
@pytest.mark.sample(5)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    modules = imported(*arguments)
    assert "click" in modules
    assert not modules & HEAVY


@pytest.mark.parametrize(
    "words",
    [
        "callboard ",
        "callboard run --c",
        "callboard run ex",
        "callboard agents show ex",
        "callboard tools ",
        "callboard mcp ",
        "callboard kb build ex",
        "callboard ask --kb ex",
    ],
)
@pytest.mark.sample(3)
def test_completion_imports_nothing_heavy(words: str) -> None:
    count = len(words.split(" ")) - 1
    modules = imported(_CALLBOARD_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(count))
    assert not modules & HEAVY


def test_importing_the_package_imports_nothing_heavy() -> None:
    probe = "import sys, callboard; print(' '.join({name.partition('.')[0] for name in sys.modules}))"
    ended = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert not set(ended.stdout.split()) & HEAVY


LEAVES = """
import atexit, sys
atexit.register(lambda: print("registered", file=sys.stderr))
class Late:
    def __del__(self): print("cleaned up", file=sys.stderr)
late = Late()
late.itself = late
sys.stdout.write("x" * 100_000)
sys.argv = ["callboard", *sys.argv[1:]]
from callboard.cli.start import main
main()
"""


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["nonsense"], 2)])
def test_the_end_flushes_and_does_what_others_registered_and_leaves_out_the_clean_up_of_the_interpreter(
    arguments: list[str], code: int
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LEAVES, *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == code
    assert ended.stdout.startswith("x" * 100_000)
    assert ended.stderr.splitlines()[-1] == "registered"
    assert "cleaned up" not in ended.stderr


BEFORE_A_CHAT = """
import os, sys
sys.argv = ["callboard", *sys.argv[1:]]
from callboard.cli.chat import program
from callboard.cli.loki import play
from callboard.cli.main import main

def opened(*_, **__):
    print(" ".join(sorted({name.partition(".")[0] for name in sys.modules})))
    return 0

program.open_chat, play._at_terminal = opened, lambda: True
main()
"""


@pytest.mark.parametrize("words", [[], ["chat"]], ids=" ".join)
def test_a_chat_is_opened_before_what_answers_in_it_is_imported(words: list[str]) -> None:
    command = [sys.executable, "-c", BEFORE_A_CHAT, *words]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    modules = set(ended.stdout.split())
    assert "callboard" in modules
    assert not modules & (HEAVY - {"asyncio", "msgspec"})  # the screen's own
