"""The processor `code_save_and_run`: files that a model has written are put into the workspace, and run.

A file is a line with its name and a fenced block right below. What lay in the workspace before goes, what came with
the task stays. `main.py` runs for `SECONDS`; what it prints, or how it failed, is added to the message, so that
conditions (`code_pass`, `code_fail`) and models see it.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath

import trio

from .....supervisors import Actor
from ....work.tools.files.environment import inherited
from ..plan import WorkflowRun
from ..workspace import ATTACHMENTS
from .python import Script, failure, run_script

SECONDS = 3.0
"""For `main.py`; one that still runs then, as a game or a server does, has not failed."""

_FILE = re.compile(r"^[ \t#*`]*([\w./-]+\.\w+)[ \t*`:]*\n+```[^\n`]*\n(.*?)```", re.DOTALL | re.MULTILINE)


def saves_and_runs(me: Actor, shared: WorkflowRun) -> Callable[[str], Awaitable[str]]:
    """The processor, for one run."""
    turn = trio.Lock()

    async def save_and_run(text: str) -> str:
        async with turn:
            directory = await shared.workspace.path()
            await trio.to_thread.run_sync(_save, directory, files_in(text))
            if not (directory / "main.py").is_file():
                return f"{text}\n\n{failure('there is no main.py')}"
            script = Script(
                command=[sys.executable],
                file=directory / "main.py",
                env=inherited(shared.context.environ),
                seconds=SECONDS,
                must_end=False,
            )
            return f"{text}\n\n{await run_script(me, script)}".rstrip()

    return save_and_run


def files_in(text: str) -> dict[str, str]:
    """The files of a text by their names, without those that would lie elsewhere."""
    return {name: code for name, code in _FILE.findall(text) if _is_inside(PurePosixPath(name))}


def _is_inside(path: PurePosixPath) -> bool:
    return not path.is_absolute() and ".." not in path.parts and path.parts[0] != ATTACHMENTS


def _save(directory: Path, files: dict[str, str]) -> None:
    for old in directory.iterdir():
        if old.name == ATTACHMENTS:
            continue
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.unlink()
    for name, code in files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code, encoding="utf-8", errors="replace")
