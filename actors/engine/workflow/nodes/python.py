"""python nodes: code in a process of its own, in the run's workspace; what it prints is the output.

The code is the node's own, else the first fenced block of the last message, else all of that message. It becomes a
file in the workspace (`Node.py`, `Node_run-2.py` at the second visit) and runs there. Code that fails is not a node
that fails: the output says so in a form that conditions know (`code_pass`, `code_fail`), and a model may mend it.

In a durable run the name of the file is chosen once, and what the code has come to is kept; `journal.unknown` says what
becomes of code that was under way when the program was killed.

What one run of it may use is bounded: its time by the node, and by `LIMITS` how many processes it may have and how
much memory, what it prints, how large its files are. Whatever is beyond ends all of it, and so does the end of the run.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

import msgspec
import trio

from .....protocol.errors import GraphMistake, NodeFailed, ProcessError
from .....protocol.events import ToolFinished, ToolStarted
from .....protocol.workflow.model import PythonConfig
from .....protocol.workflow_messages import CODE
from .....supervisors.child import ProcessStop
from ....work.journal.scope import here, noted
from ....work.journal.unknown import once
from ....work.playback.playback import Effect, whole
from ....work.sandbox.current import sandboxed
from ....work.tools.files.environment import inherited
from ....work.tools.files.limits import MIB, Limits, impose, kill, watch
from ....work.tools.files.output import Printed
from ..edges.conditions import CODE_FAILED
from ..machine.perform import Said
from ..messages import Message
from ..plan import Job, WorkflowRun
from ..workspace import ATTACHMENTS, FILE, names

if TYPE_CHECKING:
    from .....supervisors import Actor
    from .....supervisors.process import Process, ProcessEnd

LIMITS = Limits(processes=256, file_size=2048 * MIB, memory=4096 * MIB)
"""Of one run of some code."""

PRINTS = 8 * MIB
"""Bytes of stdout that become the output; who prints more is ended."""

_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """Some code to run.

    Attributes:
        command: the interpreter and its arguments.
        file: the code, in the directory where it runs.
        env: its whole environment.
        seconds: how long it may take.
        must_end: code that is not done by then has failed. Else it is ended, and what it has printed counts.
    """

    command: Sequence[str]
    file: Path
    env: Mapping[str, str]
    seconds: float
    encoding: str = "utf-8"
    must_end: bool = True


async def run_python_node(me: Actor, job: Job) -> Said:
    """Run the code; what it printed, or how it failed, as one message."""
    config = job.node.config
    assert isinstance(config, PythonConfig)
    text = config.code if config.code is not None else code_in(job.inputs[-1].text if job.inputs else "")
    code = textwrap.dedent(text).strip()
    if not code:
        return _said(failure("No executable code segment found"))
    _check_encoding(config.encoding)
    workspace = job.shared.workspace
    directory = await workspace.path()
    own = config.env if job.firing.structure.rules.python_env else {}
    is_kept = here(me) is not None

    async def choose() -> str:
        return await trio.to_thread.run_sync(workspace.free_name, _stem(job.node.id))

    name = await noted(me, FILE, str, choose) if is_kept else None

    async def run() -> str:
        file = await trio.to_thread.run_sync(_written, directory, job.node.id, code + "\n", name)
        script = Script(
            command=[config.interpreter or sys.executable, *config.args],
            file=file,
            env={**inherited(job.shared.context.environ), **own},
            seconds=config.timeout_seconds,
            encoding=config.encoding,
        )
        return await run_script(me, script)

    what = CODE.format(job.node.id)
    wanted = job.shared.context.settles(None)
    noted_here = not job.is_told_at_once
    work = partial(whole, me, Effect("code", job.node.id, code), str, run)
    within = config.timeout_seconds
    output = await once(me, job.node.id, what, str, work, wanted=wanted, skipped="", noted=noted_here, within=within)
    return _said(output)


def code_in(text: str) -> str:
    """The first fenced block, in whatever language it says it is; all of the text if there is none."""
    fenced = _FENCED.search(text)
    return fenced[1] if fenced else text


def failure(reason: str, status: int | None = None, stderr: str = "") -> str:
    """How the output says that code failed."""
    lines = [CODE_FAILED, reason]
    if status is not None:
        lines.append(f"exit_code={status}")
    if stderr:
        lines.append(f"stderr:\n{stderr}")
    return "\n".join(lines)


async def run_script(me: Actor, script: Script) -> str:
    """What the code prints, or how it failed."""
    heard, began = me.stream.heard, trio.current_time()
    if heard:
        me.emit(ToolStarted(tool=script.file.name))
    run = _Run(me, script)
    text = await run.to_the_end()
    if heard:
        me.emit(ToolFinished(tool=script.file.name, seconds=trio.current_time() - began, status=run.status))
    return text


class _Run:
    def __init__(self, me: Actor, script: Script) -> None:
        self.status: int | None = None
        self._me = me
        self._script = script
        self._process: Process | None = None
        self._output = bytearray()
        self._out_of_hand = ""

    async def to_the_end(self) -> str:
        from .....supervisors.process import start_process

        me, script = self._me, self._script
        tool = script.file.name
        interpreter = _found(script.command[0], script.env)
        if interpreter is None:
            return failure(f"Interpreter {script.command[0]} not found")
        try:
            process = self._process = await start_process(
                me,
                [interpreter, *script.command[1:], script.file],
                name=tool,
                env=script.env,
                cwd=script.file.parent,
                on_stderr=Printed(me, tool, LIMITS, self._end).stderr,
                confinement=await sandboxed(me, tool, writes=[script.file.parent]),
            )
        except ProcessError as error:
            return failure(str(error))
        try:
            with trio.move_on_after(script.seconds):
                end = await self._follow(process)
                return self._told(end)
        finally:
            if process.ended is None:
                process.ref.cancel()
                with me.root.shield(ProcessStop().within):
                    await process.ref.wait()
        if not script.must_end:
            return self._printed()
        return failure(f"Script did not finish within {script.seconds:g}s", stderr=self._printed())

    async def _follow(self, process: Process) -> ProcessEnd:
        assert process.stdout is not None
        impose(process.pid, LIMITS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, process, None, LIMITS, self._end)
            while data := await process.stdout.receive_some():
                self._output += data[: PRINTS - len(self._output)]
                if len(self._output) >= PRINTS:
                    self._end(f"printed more than {PRINTS // MIB} MiB")
            await process.ref.wait()
            nursery.cancel_scope.cancel()
        return await process.wait()

    def _end(self, reason: str) -> None:
        if not self._out_of_hand and self._process is not None:
            self._out_of_hand = reason
            kill(self._process)

    def _told(self, end: ProcessEnd) -> str:
        self.status = end.status
        if self._out_of_hand:
            return failure(f"Script {self._out_of_hand}, and was ended", stderr=end.stderr_tail)
        if end.status == 0:
            return self._printed()
        return failure("Script execution failed", end.status, end.stderr_tail)

    def _printed(self) -> str:
        return self._output.decode(self._script.encoding, "replace")


def _said(text: str) -> Said:
    return Said(outputs=(Message(role="assistant", content=text),))


def _found(interpreter: str, env: Mapping[str, str]) -> Path | None:
    """The program; a relative path is one from where we are, not from where the code runs."""
    path = shutil.which(interpreter, path=env.get("PATH", os.defpath))
    return None if path is None else Path(path).absolute()


def _check_encoding(name: str) -> None:
    """Texts are decoded with it here, so it has to take whatever comes: `idna`, `punycode` and `hex` don't."""
    try:
        b"a\xff\n".decode(name, "replace")
    except (LookupError, ValueError):
        raise GraphMistake(f"`encoding: {name}` is no encoding of text; `utf-8` and `latin-1` are") from None


def _written(directory: Path, id: str, code: str, name: str | None) -> Path:
    """The file with the code, which has this name if it is chosen; earlier ones stay, so that one can look at them."""
    try:
        file, opened = _free(directory, _stem(id)) if name is None else _own(directory / name)
        with opened:
            opened.write(code)
    except OSError as error:
        raise NodeFailed(f"its code can't be written to {directory}: {error.strerror or error}") from error
    return file


def _stem(id: str) -> str:
    return re.sub(r"[^0-9A-Za-z_-]", "_", id)[:100] or "_"


def _free(directory: Path, stem: str) -> tuple[Path, IO[str]]:
    """A new file, created by its opening: units of a map and other subgraphs write here at the same time."""
    for file in map(directory.joinpath, names(stem)):
        with suppress(FileExistsError):
            return file, file.open("x", encoding="utf-8", errors="replace")
    raise AssertionError


def _own(file: Path) -> tuple[Path, IO[str]]:
    return file, file.open("w", encoding="utf-8", errors="replace")


_FILE = re.compile(r"^[ \t#*`]*([\w./-]+\.\w+)[ \t*`:]*\n+```[^\n`]*\n(.*?)```", re.DOTALL | re.MULTILINE)

RUNS_FOR = 3.0
"""Seconds for `main.py`; one that still runs then, as a game or a server does, has not failed."""


def saves_and_runs(me: Actor, shared: WorkflowRun) -> Callable[[str], Awaitable[str]]:
    """The processor, for one run: files that a model has written are put into the workspace, and `main.py` runs.

    A file is a line with its name and a fenced block right below. What lay in the workspace before goes, what came with
    the task stays. What is printed, or how it failed, is added to the message, so that conditions (`code_pass`,
    `code_fail`) and models see it.
    """
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
                seconds=RUNS_FOR,
                must_end=False,
            )
            return f"{text}\n\n{await run_script(me, script)}".rstrip()

    return save_and_run


def files_in(text: str) -> dict[str, str]:
    """The files of a text by their names, without those that would lie elsewhere."""
    found = {PurePosixPath(name): code for name, code in _FILE.findall(text)}
    inside = (path for path in found if not path.is_absolute() and ".." not in path.parts)
    return {str(path): found[path] for path in inside if path.parts[0] != ATTACHMENTS}


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
