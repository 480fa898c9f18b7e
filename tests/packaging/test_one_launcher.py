"""Every process that a run starts goes through the reapers (`supervisors.process`), which end all its descendants.

Python has a dozen ways to start a process, and one that is used anywhere else starts what nobody ends. The modules that
may use one are listed here, each with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

EXCEPTIONS = {
    "supervisors/guardian.py": "the launcher itself: the guardian forks reapers, a reaper starts its process",
    "supervisors/guardian_link.py": "starts the guardian",
    "actors/work/sandbox/backends.py": "runs `bwrap --version` and the like, waits for it, and has no root yet",
    "actors/work/sandbox/cover_files.py": "becomes bubblewrap (`exec`) below a reaper, beside a child that mounts",
    "actors/work/sandbox/probes.py": "`doctor --sandbox` needs a process outside the sandbox, to signal it",
    "cli/actions/doctor.py": "`callboard doctor` runs `node --version` and waits for it; it has no root",
    "cli/desktop.py": "the user's editor, which has the terminal while the program waits; the program that holds the"
    " clipboard and the user's browser have to outlive us",
    "cli/commands/demo.py": "commands as a person would type them, at the same terminal; they die with the demo",
    "cli/loki/execute.py": "becomes the shell (`exec`) that the user asked for, after the root has ended",
}

BELOW_A_REAPER = "actors/work/library/"
"""Tools and scripts of the built-in agents: they are not imported, and run in processes of their own."""

WHOLE_MODULES = {"subprocess", "multiprocessing", "pty", "webbrowser", "_posixsubprocess"}
OF_OTHERS = {
    "os": ("fork", "exec", "spawn", "posix_spawn", "system", "popen", "startfile"),
    "asyncio": ("create_subprocess",),
    "trio": ("run_process", "open_process"),
    "anyio": ("run_process", "open_process"),
    "concurrent": ("futures.ProcessPoolExecutor",),
}


def ways_to_start(text: str) -> set[str]:
    """Return which names of `text` start a process or come from a module that does nothing else."""
    return set(_named(ast.parse(text)))


def _named(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{each.name}" for each in node.names]
        elif isinstance(node, ast.Attribute):
            names = [_dotted(node)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "imported":
            names = [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
        else:
            continue
        yield from filter(_starts_processes, names)


def _dotted(node: ast.expr) -> str:
    """Return `a.b.c` of names, and nothing for attributes of anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _starts_processes(name: str) -> bool:
    module, _, rest = name.partition(".")
    if module in WHOLE_MODULES:
        return True
    last = rest.removeprefix("lowlevel.")
    return last.startswith(OF_OTHERS.get(module, ("\0",)))


def product() -> list[Path]:
    packages = ("actors", "supervisors", "protocol", "cli")
    found = sorted(path for package in packages for path in (ROOT / package).rglob("*.py"))
    return [path for path in found if not path.is_relative_to(ROOT / BELOW_A_REAPER)]


def test_only_the_launcher_and_the_exceptions_start_processes() -> None:
    found = {str(path.relative_to(ROOT)): ways_to_start(path.read_text()) for path in product()}
    assert {file: ways for file, ways in found.items() if ways and file not in EXCEPTIONS} == {}
    assert {file for file in EXCEPTIONS if not found.get(file)} == set(), "these start none any more"


@pytest.mark.parametrize(
    "text",
    [
        "import subprocess",
        "from subprocess import run",
        "import subprocess as quiet",
        "def f():\n    from multiprocessing import Process",
        "import os\nos.fork()",
        "import os\nos.execvp('x', [])",
        "import os\nos.posix_spawnp('x', [], {})",
        "from os import system",
        "import trio\nawait_ = trio.lowlevel.open_process",
        "import trio\ntrio.run_process",
        "from trio import run_process",
        "import asyncio\nasyncio.create_subprocess_exec",
        "from concurrent.futures import ProcessPoolExecutor",
        "imported('subprocess')",
        "import webbrowser",
    ],
)
def test_each_way_is_found(text: str) -> None:
    assert ways_to_start(text)


@pytest.mark.parametrize("text", ["import os\nos.environ", "import trio\ntrio.run", "from .process import run_process"])
def test_nothing_else_is(text: str) -> None:
    assert not ways_to_start(text)
