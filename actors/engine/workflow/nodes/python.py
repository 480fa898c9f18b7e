"""python nodes: code in its own process, in the run's workspace; its standard output is the node's output.

The code is the node's own, else the first fenced block of the last message, else the whole message. It is written
to a file in the workspace (`Node.py`, `Node_run-2.py` at the second visit) and runs there. Code that fails does not
fail the node: the output reports the failure in a form that conditions recognise (`code_pass`, `code_fail`), and a
model can repair it.

In a durable run the file name is chosen once, and the output is journaled. `journal.unknown_outcome` decides about
code that was running when the program was killed.

Each execution has limits: the node's timeout, and `LIMITS` for processes, memory, output and file sizes. A
violation ends all its processes, and so does the end of the run.
"""

from __future__ import annotations

import codecs
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

from .....protocol.errors import GraphMistake, NodeFailed, ProcessError, SendingRefused
from .....protocol.events import ToolFinished, ToolStarted
from .....protocol.workflow.model import PythonConfig
from .....protocol.workflow_messages import CODE
from ....io.imports import PROCESSES, imported
from ....work.journal.actor_journal import noted, scope_of
from ....work.journal.unknown_outcome import once
from ....work.playback import OutsideEffect, in_the_world, whole
from ....work.sandbox.run_sandbox import sandboxed
from ....work.tools.files.call_process import MIB, CallLimits, Printed, impose, kill, watch
from ....work.tools.files.environment import inherited
from ..edges import CODE_FAILED
from ..job import Job
from ..machine.perform import Said
from ..messages import Message
from ..plan import WorkflowRun
from ..workspace import ATTACHMENTS, FILE, names

if TYPE_CHECKING:
    from .....supervisors import Actor
    from .....supervisors.process import Process, ProcessEnd

LIMITS = CallLimits(processes=256, file_size=2048 * MIB, memory=4096 * MIB)
"""Limits of one execution of code."""

PRINTS = 8 * MIB
"""Most bytes of stdout in the output; code that prints more is ended."""

_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)


class PythonScript(msgspec.Struct, frozen=True, kw_only=True):
    """Code to execute.

    Attributes:
        command: the interpreter and its arguments.
        file: the code, in the directory where it runs.
        env: its whole environment.
        seconds: its time limit.
        must_end: reaching the time limit is a failure. Otherwise the code is ended then, and its output counts.
    """

    command: Sequence[str]
    file: Path
    env: Mapping[str, str]
    seconds: float
    encoding: str = "utf-8"
    must_end: bool = True


async def run_python_node(me: Actor, job: Job) -> Said:
    """Run the code; return its output, or a report of its failure, as one message.

    Raises:
        GraphMistake: `encoding` names no text encoding.
        NodeFailed: the workspace or the file of the code cannot be written.
    """
    config = job.node.config
    assert isinstance(config, PythonConfig)
    text = config.code if config.code is not None else code_in(job.inputs[-1].text if job.inputs else "")
    code = textwrap.dedent(text).strip()
    if not code:
        return _text_output(failure("No executable code segment found"))
    # Before the code runs: its output could not be decoded afterwards, and its effects would be lost.
    _check_encoding(config.encoding)
    workspace = job.shared.workspace
    directory = await workspace.path()
    own = config.env if job.firing.structure.rules.python_env else {}
    is_kept = scope_of(me) is not None

    async def choose() -> str:
        return await trio.to_thread.run_sync(workspace.free_name, _stem(job.node.id))

    # The journal has the name before the file exists, so a later incarnation overwrites this file and no other.
    name = await noted(me, FILE, str, choose) if is_kept else None

    async def run() -> str:
        file = await trio.to_thread.run_sync(_written, directory, job.node.id, code + "\n", name)
        script = PythonScript(
            # As in DevAll, `args` precede the file: they are options of the interpreter.
            command=[config.interpreter or sys.executable, *config.args],
            file=file,
            env={**inherited(job.shared.context.environ), **own},
            seconds=config.timeout_seconds,
            encoding=config.encoding,
        )
        return await run_script(me, script)

    flow = job.shared.context.flow
    if flow is not None and in_the_world():
        try:
            await flow.start(me, f"{_stem(job.node.id)}.py", f"the code of node '{job.node.id}'")
        except SendingRefused as refused:
            # Reported like failed code, so that conditions of the workflow can react.
            return _text_output(failure(str(refused)))
    what = CODE.format(job.node.id)
    wanted = job.shared.context.settles(None)
    noted_here = not job.is_reported_at_once
    work = partial(whole, me, OutsideEffect("code", job.node.id, code), str, run)
    within = config.timeout_seconds
    output = await once(me, job.node.id, what, str, work, wanted=wanted, skipped="", noted=noted_here, within=within)
    return _text_output(output)


def code_in(text: str) -> str:
    """Return the first fenced block, of any language; without a block the whole text."""
    fenced = _FENCED.search(text)
    return fenced[1] if fenced else text


def failure(reason: str, status: int | None = None, stderr: str = "") -> str:
    """Return the report of failed code, which is the node's output in place of stdout."""
    # DevAll's report, line by line. Conditions of its workflows search for the first line.
    lines = [CODE_FAILED, reason]
    if status is not None:
        lines.append(f"exit_code={status}")
    if stderr:
        lines.append(f"stderr:\n{stderr}")
    return "\n".join(lines)


async def run_script(me: Actor, script: PythonScript) -> str:
    """Run the code in its own process; return its stdout, or a report of its failure.

    A failure is any exit status but 0, a limit that the code exceeds, and with `must_end` the time limit.
    """
    heard, began = me.stream.heard, trio.current_time()
    if heard:
        me.emit(ToolStarted(tool=script.file.name))
    run = _Run(me, script)
    text = await run.to_the_end()
    if heard:
        me.emit(ToolFinished(tool=script.file.name, seconds=trio.current_time() - began, status=run.status))
    return text


class _Run:
    def __init__(self, me: Actor, script: PythonScript) -> None:
        self.status: int | None = None
        self._me = me
        self._script = script
        self._process: Process | None = None
        self._output = bytearray()
        self._out_of_hand = ""

    async def to_the_end(self) -> str:
        await imported(PROCESSES)
        from .....supervisors.process import ProcessStop, start_process

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
                return self._decoded_output(end)
        finally:
            if process.ended is None:
                process.ref.cancel()
                # Wait even if the run is cancelled: the process must not change the workspace any more. The shield has
                # a deadline.
                with me.root.shield(ProcessStop().within):
                    await process.ref.wait()
        if not script.must_end:
            return self._printed()
        return failure(f"Script did not finish within {script.seconds:g}s", stderr=self._printed())

    async def _follow(self, process: Process) -> ProcessEnd:
        assert process.stdout is not None
        # The kernel enforces these limits; `watch` polls the others.
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

    def _decoded_output(self, end: ProcessEnd) -> str:
        self.status = end.status
        if self._out_of_hand:
            return failure(f"Script {self._out_of_hand}, and was ended", stderr=end.stderr_tail)
        if end.status == 0:
            return self._printed()
        return failure("Script execution failed", end.status, end.stderr_tail)

    def _printed(self) -> str:
        return self._output.decode(self._script.encoding, "replace")


def _text_output(text: str) -> Said:
    return Said(outputs=(Message(role="assistant", content=text),))


def _found(interpreter: str, env: Mapping[str, str]) -> Path | None:
    """Return the program; a relative path starts from the current directory, not from the code's directory."""
    path = shutil.which(interpreter, path=env.get("PATH", os.defpath))
    return None if path is None else Path(path).absolute()


def _check_encoding(name: str) -> None:
    """Reject encodings that cannot decode arbitrary bytes, such as `idna`, `punycode` and `hex`."""
    try:
        if codecs.lookup(name).name == "punycode":  # from Python 3.13 on it decodes bytes, to other text
            raise ValueError
        b"a\xff\n".decode(name, "replace")
    except (LookupError, ValueError):
        raise GraphMistake(f"`encoding: {name}` is not a text encoding; examples are `utf-8` and `latin-1`") from None


def _written(directory: Path, id: str, code: str, name: str | None) -> Path:
    """Write the code to a new file, or to the file `name` if it was chosen before.

    Earlier files remain, so that users can inspect them.
    """
    try:
        file, opened = _free(directory, _stem(id)) if name is None else _own(directory / name)
        with opened:
            opened.write(code)
    except OSError as error:
        raise NodeFailed(f"the code of the node can't be written to {directory}: {error.strerror or error}") from error
    return file


def _stem(id: str) -> str:
    return re.sub(r"[^0-9A-Za-z_-]", "_", id)[:100] or "_"


def _free(directory: Path, stem: str) -> tuple[Path, IO[str]]:
    """Create a new file by opening it exclusively: units of a map and subgraphs write here concurrently."""
    for file in map(directory.joinpath, names(stem)):
        with suppress(FileExistsError):
            return file, file.open("x", encoding="utf-8", errors="replace")
    raise AssertionError


def _own(file: Path) -> tuple[Path, IO[str]]:
    return file, file.open("w", encoding="utf-8", errors="replace")


_FILE = re.compile(r"^[ \t#*`]*([\w./-]+\.\w+)[ \t*`:]*\n+```[^\n`]*\n(.*?)```", re.DOTALL | re.MULTILINE)

# DevAll's figure.
RUNS_FOR = 3.0
"""Seconds for `main.py`; a program that still runs then, for example a game or a server, has not failed."""


def saves_and_runs(me: Actor, shared: WorkflowRun) -> Callable[[str], Awaitable[str]]:
    """Return the processor `code_save_and_run` for one run.

    It writes files from a model's message into the workspace, and runs `main.py`. A file is a line with its name
    directly before a fenced block. Previous content of the workspace is deleted, except the attachments of the
    task. The output, or a report of the failure, is appended to the message for conditions (`code_pass`,
    `code_fail`) and models.
    """
    # Concurrent firings share the workspace, and each call deletes its content.
    turn = trio.Lock()

    async def save_and_run(text: str) -> str:
        async with turn:
            directory = await shared.workspace.path()
            await trio.to_thread.run_sync(_save, directory, files_in(text))
            if not (directory / "main.py").is_file():
                return f"{text}\n\n{failure('there is no main.py')}"
            script = PythonScript(
                command=[sys.executable],
                file=directory / "main.py",
                env=inherited(shared.context.environ),
                seconds=RUNS_FOR,
                must_end=False,
            )
            return f"{text}\n\n{await run_script(me, script)}".rstrip()

    return save_and_run


def files_in(text: str) -> dict[str, str]:
    """Return the files of a text by name, without absolute paths and paths outside the workspace."""
    found = {PurePosixPath(name): code for name, code in _FILE.findall(text)}
    inside = (path for path in found if not path.is_absolute() and ".." not in path.parts)
    return {str(path): found[path] for path in inside if path.parts[0] != ATTACHMENTS}


def _save(directory: Path, files: dict[str, str]) -> None:
    for old in directory.iterdir():
        if old.name == ATTACHMENTS:
            continue
        # `rmtree` rejects symbolic links; `unlink` removes the link and not its target.
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.unlink()
    for name, code in files.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code, encoding="utf-8", errors="replace")
