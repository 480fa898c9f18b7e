"""script nodes: run a .sh, .py or .ts file, which receives the state and prints one JSON object.

The file runs in place under the process supervisor, in the run's working directory, with /dev/null as stdin. The
state is in the variable `GRAPH_STATE`, or, if it is larger than 32 KiB, in the file that `GRAPH_STATE_FILE` names.
Exactly one of the two is set. The rest of the environment is the same as Loki's.

The state file exists while the script runs and may hold secrets. If SIGKILL ends this process meanwhile, the file
remains. So its owner holds a lock on it, and the next process that needs a state file removes all files whose lock
is free. A process id in the name would not do, because another container has other process ids.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import trio

from .....protocol.errors import NodeFailed, SendingRefused, TimedOut
from .....protocol.events import ToolDelta, ToolFinished, ToolStarted
from .....protocol.graph import ScriptNode
from .....protocol.json_values import NotJson, decode
from ....io import temporary
from ....io.directories import root_dir, user_folder
from ....io.imports import PROCESSES, imported
from ....io.secret_redaction import without_secrets
from ....work import playback as play
from ....work.call_clock import Clock
from ....work.journal.actor_journal import scope_of
from ....work.journal.unknown_outcome import Skipped, may_run
from ....work.library import PROMPT_UTILS
from ....work.sandbox import run_sandbox as sandbox
from ....work.sandbox.policy import Beyond
from ..plan import NodeJob, NodeResult
from ..templates import render

if TYPE_CHECKING:
    from .....supervisors import Actor
    from .....supervisors.process import Completed
    from ....work.sandbox.launch import HeldProcess

T = TypeVar("T")

INLINE_LIMIT = 32_768
"""Largest state in bytes that is passed in the environment."""

INTERPRETERS: dict[str, tuple[str, ...]] = {".sh": ("bash",), ".py": ("python3",), ".ts": ("npx", "tsx")}
"""Interpreters by file extension; a shebang line is ignored."""

PREFIX, SUFFIX = "state-", ".json"


async def run_script_node(me: Actor, job: NodeJob) -> NodeResult:
    """Run the script; the keys that it prints become writes, and its key `_next` the target.

    Raises:
        NodeFailed: the script cannot be started, exits with an error, or prints no JSON object.
        TimedOut: the node's timeout has passed.
    """
    await imported(PROCESSES)
    from .....supervisors.process import QUICK_STOP, Completed, run_process

    node = job.node
    assert isinstance(node, ScriptNode)
    path = job.plan.directory / node.script
    argv = _command(node.script, path) if play.in_the_world() else []
    began = trio.current_time()

    def on_stderr(line: str) -> None:
        me.emit(ToolDelta(tool=node.script, text=line))

    async def attempt(beyond: Beyond) -> tuple[Completed, HeldProcess | None]:
        with _state_in(job) as state:
            shows = [str(job.plan.directory), *(state[name] for name in ("GRAPH_STATE_FILE",) if name in state)]
            held = await sandbox.sandboxed(me, node.script, shows=shows, file=path.parent, beyond=beyond)
            return await run_process(
                me,
                argv,
                name=path.name,
                env=_environment(job, state),
                cwd=job.context.cwd,
                on_stderr=on_stderr,
                stop=QUICK_STOP,
                confinement=held,
            ), held

    async def run() -> Completed:
        done, note = await sandbox.played(me, attempt, lambda done: None if done.status == 0 else done.stderr_tail)
        told = f"{done.stderr_tail.rstrip()}\n{note}\n"
        return msgspec.structs.replace(done, stderr_tail=told) if note else done

    async def settled() -> Completed | Skipped:
        nonlocal began
        left_out = await may_run(me, node.id, f"the script '{node.script}'", job.context.settles(node.on_unknown))
        if left_out is not None:
            return left_out
        # `may_run` can ask the user, and the waiting time is not the script's.
        began = trio.current_time()
        if me.stream.heard:
            me.emit(ToolStarted(tool=node.script))
        return await play.done(me, play.OutsideEffect("script", node.script, dict(job.state)), Completed, run)

    flow = job.context.flow
    if flow is not None and play.in_the_world():
        try:
            await flow.start(me, node.script, f"the script '{node.script}' of node '{node.id}'")
        except SendingRefused as refused:
            raise NodeFailed(str(refused)) from refused
    done = await _in_time(me, node.script, Clock(job.plan.steps[node.id].timeout), settled())
    if isinstance(done, Skipped):
        return _result(done.output or {})
    if not play.in_the_world():
        # A replay runs no process, so emit the recorded stderr.
        for line in done.stderr_tail.splitlines():
            on_stderr(line)
    if me.stream.heard:
        me.emit(ToolFinished(tool=node.script, seconds=trio.current_time() - began, status=done.status))
    return _result(without_secrets(_parse(node.script, done)))  # models read the result


async def _in_time(me: Actor, script: str, clock: Clock, work: Awaitable[T]) -> T:
    """Await `work` within the node's timeout; the clock stops while a user is asked about the script."""
    with clock.counting(), clock.scope:
        return await work
    scope = scope_of(me)
    why = f": it {scope.run.trouble}" if scope is not None and scope.run.trouble else ""
    raise TimedOut(f"Script '{script}' timed out after {clock.seconds:g}s{why}")


def _result(written: dict[str, Any]) -> NodeResult:
    target = written.pop("_next", None)
    return NodeResult(writes=written, goto=(target,) if isinstance(target, str) else None)


def _command(script: str, path: Path) -> list[str]:
    extension = path.suffix
    if not extension:
        raise NodeFailed(f"Script file has no file extension: '{script}' (expected .sh, .py or .ts)")
    interpreter = INTERPRETERS.get(extension)
    if interpreter is None:
        raise NodeFailed(f"Unsupported script extension '{extension}' for '{script}' (expected .sh, .py or .ts)")
    if not path.is_file():
        raise NodeFailed(f"Script file not found: '{path}'")
    if shutil.which(interpreter[0]) is None:
        raise NodeFailed(f"Script '{script}' needs '{interpreter[0]}', which is not on the PATH")
    if extension == ".sh" and b"\r\n" in path.read_bytes():
        # A Windows checkout: bash would read the CR as part of the last word of each line.
        return [*interpreter, "-c", _WITHOUT_CR, str(path)]
    return [*interpreter, str(path)]


_WITHOUT_CR = 'eval "$(tr -d "\\r" < "$0")"'
"""Shell command that runs `$0` without its CRs and does not use stdin."""


@contextlib.contextmanager
def _state_in(job: NodeJob) -> Iterator[dict[str, str]]:
    """Provide the environment variable that carries the state, and its file if needed."""
    text = render(dict(job.state)).encode()
    # An environment cannot hold a NUL byte; JSON escapes control characters, so the text has none.
    if len(text) <= INLINE_LIMIT:
        yield {"GRAPH_STATE": text.decode()}
        return
    with state_file(text) as name:
        yield {"GRAPH_STATE_FILE": name}


def _environment(job: NodeJob, state: dict[str, str]) -> dict[str, str]:
    config = job.context.config_dir
    functions = user_folder("functions", config, job.context.environ)
    utils = functions / "utils" / "prompt-utils.sh"
    environ = {name: value for name, value in job.context.environ.items() if not name.startswith("GRAPH_STATE")}
    environ.update(
        LLM_ROOT_DIR=str(root_dir(config, job.plan.directory)),
        LLM_PROMPT_UTILS_FILE=str(utils if utils.is_file() else PROMPT_UTILS),
        LLM_AGENT_DATA_DIR=str(job.plan.directory),
        CLICOLOR_FORCE="1",
        FORCE_COLOR="1",
        PATH=os.pathsep.join([str(functions / "bin"), environ.get("PATH", os.defpath)]),
        **state,
    )
    for name, value in job.plan.values.items():
        environ["LLM_AGENT_VAR_" + name.upper().replace("-", "_")] = value
    return environ


def _parse(script: str, done: Completed) -> dict[str, Any]:
    if done.status != 0:
        how = f"exit code {done.status}" if done.signal is None else f"signal {done.signal}"
        raise NodeFailed(f"Script '{script}' failed with {how}:\n{done.stderr_tail.strip()}".rstrip(":\n"))
    if done.truncated:
        raise NodeFailed(f"Script '{script}' printed more than {len(done.stdout)} bytes; its output was discarded")
    text = done.stdout.strip()
    merging = f"Failed to merge output from script '{script}'"
    if not text:
        raise NodeFailed(f"Script '{script}' produced no output (scripts must emit a single JSON object on stdout)")
    try:
        value = decode(text)
    except NotJson as error:
        shown = text[:200].decode(errors="replace")
        raise NodeFailed(f"{merging}: Script output must be valid JSON ({error}); it begins: {shown}") from error
    if not isinstance(value, dict):
        raise NodeFailed(f"{merging}: Script output must be a JSON object, not array or primitive")
    return value


@contextlib.contextmanager
def state_file(text: bytes) -> Iterator[str]:
    """Provide the path of a file with this text, readable by the current user only, until the end of the block.

    Raises:
        NodeFailed: the file cannot be written.
    """
    with contextlib.ExitStack() as stack:
        name = "a temporary file"
        try:
            path = stack.enter_context(temporary.file(PREFIX, SUFFIX))
            name = str(path)
            path.write_bytes(text)
        except OSError as error:
            raise NodeFailed(f"the state could not be written to {name}: {error.strerror or error}") from error
        yield name
