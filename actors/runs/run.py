"""`callboard.run` and `run_sync`: one run of an agent or a workflow, from Python.

The arguments become a `RunRequest` and its `Hooks`, as they do at every front end; `begin` goes on from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

import msgspec
import trio

from ...protocol.agent import Agent
from ...protocol.chat import Part, Turn
from ...protocol.errors import UsageError
from ...protocol.events import Event
from ...protocol.outcome import Outcome
from ...protocol.repeats import OnUnknown
from ...protocol.requests import Limits, RunRequest
from ...protocol.sandbox import Profile
from ...supervisors.event_loops import in_callers_loop
from ..work.tools.functions import Function, function_tool
from ..work.tools.tool import Tool
from .begin import perform
from .execution import EventCallback
from .loading import Hooks
from .rerun.cassettes.files import playback_of
from .root import Root, check_new_root, current, in_asyncio
from .target import GraphAgent, Loaded, LoopAgent, WorkflowAgent

if TYPE_CHECKING:
    from ...protocol.mcp.config import Server
    from ..work.hooks.hooks import Functions

PathLike: TypeAlias = "str | os.PathLike[str]"
Target: TypeAlias = "PathLike | Loaded | Agent"
Answers: TypeAlias = "Sequence[Any] | Mapping[str, Any]"


class RunOptions(TypedDict, total=False):
    """The keyword arguments of `Root.run`; their meaning stands at `run` and in `RunRequest`."""

    model: str | None
    variables: Mapping[str, str] | None
    state: Mapping[str, Any] | None
    answers: Answers | None
    on_event: Callable[[Event], None] | None
    compat: str | None
    limits: Limits | None
    allow_unpriced: bool
    no_wait: bool
    strict: bool
    tools: Sequence[Function | Tool]
    allow: Iterable[str]
    yes: bool
    roots: Iterable[PathLike]
    knowledge: Sequence[str]
    files: Sequence[str]
    rebuild_knowledge: bool
    attach: Sequence[PathLike]
    save: PathLike | None
    id: str | None
    history: Sequence[Turn]
    on_history: Callable[[Sequence[Turn]], None] | None
    cwd: PathLike | None
    servers: Sequence[Server]
    parts: Sequence[Part]
    role: str | None
    role_prompt: str | None
    durable: bool
    on_unknown: OnUnknown | None
    sandbox: Profile | None
    workspace: bool
    hooks: Functions
    record: PathLike | None
    replay: PathLike | None
    loose: bool


class Options(RunOptions, total=False):
    """The keyword arguments of `run`: where to run, beside those of a root's method."""

    config_dir: PathLike | None
    root: Root | None


async def run(target: Target, prompt: str = "", **options: Unpack[Options]) -> Outcome:
    """Run an agent or a workflow to its end.

    Args:
        target: an agent's name, an agent's directory, a YAML file, what `load` returned, or an `Agent` made in Python.
        prompt: the user's words; a graph finds them as `{{initial_prompt}}`.
        model: `client:model` for everything that does not name its own.
        variables: values of the agent's variables; of a workflow, what `${NAME}` stands for.
        state: replaces keys of a graph's `initial_state`; JSON values.
        answers: to questions: a list used in order, or node id to an answer or a list of answers.
        on_event: called with every event of the run, in order, in the run's tasks, or in the event loop of a caller
            under asyncio; must be quick. An exception of it ends the run, and is raised.
        compat: `standard`, `loki` (agents) or `devall` (workflows), whatever the file says.
        limits: what the run may use at most.
        allow_unpriced: with `max_cost` of the limits, models without a known price may be asked, and count for nothing.
        no_wait: a model's provider that wants requests to wait fails them; else they wait, and are no failed tries.
        strict: warnings about the file are errors.
        config_dir: where agents and settings live, for a run with a root of its own.
        root: the root to run under; by default that of the block we are in, else a new one for this run.
        tools: Python functions, sync or async, that the agent may call. Async ones run in the caller's event loop.
        allow: names of tools that need not ask a person for permission.
        yes: no tool asks for permission.
        roots: directories beside the working directory in which the `fs_*` tools may work.
        knowledge: names of knowledge bases to look the prompt up in.
        files: what is read and put before the prompt: paths, globs, URLs.
        rebuild_knowledge: every knowledge base that the run needs is built anew first.
        attach: files that a workflow's task comes with, for its models and for its python nodes.
        save: a directory in which the run is kept as files.
        id: the run's, `run-` and lower-case letters or digits, for a caller that has to know it beforehand.
        history: what was said before; an LLM agent goes on from there. Graphs and workflows know nothing of it.
        on_history: called once with what was said, `history` included (see `Hooks`).
        cwd: the directory that the run's tools and scripts work in; by default ours.
        servers: MCP servers that an LLM agent has beside those it names, all their tools included.
        parts: images and files that an LLM agent gets beside the prompt.
        role: the name of a role, with arguments behind `#`; the target is "" then, or an `Agent` made in Python.
        role_prompt: the same for a role that is this text.
        durable: what the run does is kept on disk as it goes, so that `callboard resume` goes on with it if this
            process is killed.
        on_unknown: what is to be done about calls that are under way then: `ask`, `tell`, `again` or `fail`.
        sandbox: what processes of the run may do: a profile (docs/sandbox.md); by default what config.yaml says.
        workspace: whether what a trusted directory has to say counts; by default for agents that have a file.
        hooks: by event Python functions, or pairs of a matcher and a function (docs/hooks.md).
        record: a file into which the run is recorded: a cassette.
        replay: a cassette by which the run is played, without a network or processes.
        loose: what the run asks need not be what was asked when the cassette was recorded: it is found by its place.

    Returns:
        How it ended. A run that failed, or was cancelled by its root's end, does not raise.

    Raises:
        UsageError: there is no root, and none may be opened here: under asyncio, or beside another one.
        UsageError, InvalidFile, Unsupported, ConfigError: the run could not start.
        trio.Cancelled, asyncio.CancelledError: the caller was cancelled; nothing of the run is left.
    """
    config_dir = options.pop("config_dir", None)
    root = options.pop("root", None) or current.get()
    callback = callback_of(options)
    if root is not None:
        outcome = await root.call(partial(run_under, root, target, prompt, options, callback))
    else:
        check_new_root("callboard.run")
        async with Root(config_dir=config_dir) as own:
            outcome = await run_under(own, target, prompt, options, callback)
    if callback is not None:
        callback.check()
    return outcome


async def run_under(
    root: Root,
    target: Target,
    prompt: str,
    options: RunOptions,
    callback: EventCallback | None,
    also: Callable[[Event], None] | None = None,
) -> Outcome:
    """As `run`, in the event loop of this root. `callback` stands for `on_event`; `also` hears the events before it."""
    request, hooks = requested(target, prompt, **options)
    hears = also
    if callback is not None:
        own = callback.under(root.kernel)
        hears = own if also is None else partial(_hear_both, also, own)
    if hears is not None:
        hooks = msgspec.structs.replace(hooks, on_event=hears)
    return await perform(request, hooks, root)


def callback_of(options: RunOptions) -> EventCallback | None:
    """Take `on_event` out of the options."""
    on_event = options.pop("on_event", None)
    return None if on_event is None else EventCallback(on_event)


def _hear_both(one: Callable[[Event], None], other: Callable[[Event], None], event: Event) -> None:
    one(event)
    other(event)


def run_sync(target: Target, prompt: str = "", **options: Unpack[Options]) -> Outcome:
    """`run` for a thread without an event loop, until the run has ended.

    Args: those of `run`. `root` is one that is open in another thread; by default the run has a root of its own, in a
        trio loop of its own.

    Raises:
        UsageError: it was called in a trio task or under asyncio, which it would block; or as `run` raises it.
    """
    if trio.lowlevel.in_trio_task():
        raise UsageError("callboard.run_sync would block this trio task: `await callboard.run(target, prompt)`")
    if in_asyncio():
        raise UsageError(
            "callboard.run_sync would block asyncio: `async with callboard.Root() as root:` once, and "
            "`await root.run(target, prompt)` in it"
        )
    root = options.pop("root", None)
    if root is not None:
        options.pop("config_dir", None)
        callback = callback_of(options)
        outcome = root.call_blocking(partial(run_under, root, target, prompt, options, callback))
        if callback is not None:
            callback.check()
        return outcome

    async def alone() -> Outcome:
        current.set(None)  # this context may be a copy of one in a root's block, which runs in another thread
        return await run(target, prompt, **options)

    return trio.run(alone)


async def resume(
    run: str,
    *,
    tools: Sequence[Function | Tool] = (),
    on_event: Callable[[Event], None] | None = None,
    with_changes: bool = False,
    strict: bool = False,
    on_unknown: OnUnknown | None = None,
    config_dir: PathLike | None = None,
    root: Root | None = None,
) -> Outcome:
    """Go on with a durable run whose process was killed, to its end.

    Args:
        run: its id.
        tools: the Python functions that it was begun with.
        on_event: called with every event from here on; see `run`.
        with_changes: with its file, and those of agents that it calls, as they are today, not as they were.
        strict: a script, a tool file or a file of functions that has changed refuses it, in place of a warning.
        on_unknown: what is to be done about calls that were under way, in place of what was said when it began.
        config_dir, root: see `run`.

    Returns and raises as `run` does, and:
        NotFound: there is no such run.
        Conflict: it is over, or goes on elsewhere.
        JournalError: it can't go on, and stays as it is.
    """
    from .durable import resume as go_on

    made = tuple(tool if isinstance(tool, Tool) else function_tool(tool) for tool in tools)
    callback = None if on_event is None else EventCallback(on_event)

    async def under(root: Root) -> Outcome:
        return await go_on(
            root,
            run,
            on_event=None if callback is None else callback.under(root.kernel),
            with_changes=with_changes,
            strict=strict,
            tools=made,
            on_unknown=on_unknown,
        )

    root = root or current.get()
    if root is not None:
        outcome = await root.call(partial(under, root))
    else:
        check_new_root("callboard.resume")
        async with Root(config_dir=config_dir) as own:
            outcome = await under(own)
    if callback is not None:
        callback.check()
    return outcome


def requested(target: Target, prompt: str, **options: Any) -> tuple[RunRequest, Hooks]:
    """The message that these arguments of `run` make, and what goes beside it.

    Raises:
        TypeError: `run` has no such argument.
        UsageError: a value that no run can be given.
    """
    given = {name: value for name, value in options.items() if value is not None}
    record, replay, loose = given.pop("record", None), given.pop("replay", None), given.pop("loose", False)
    if record is not None or replay is not None:
        given["playback"] = playback_of(record, replay, loose=loose, durable=given.get("durable", False))
    hooks = {name: given.pop(name) for name in Hooks.__struct_fields__ if name in given}
    if "on_history" in hooks:
        hooks["on_history"] = in_callers_loop(hooks["on_history"])
    tools = tuple(tool if isinstance(tool, Tool) else function_tool(tool) for tool in hooks.pop("tools", ()))
    loaded = target if isinstance(target, GraphAgent | LoopAgent | WorkflowAgent) else None
    data = {name: _plain(value) for name, value in given.items()}
    request = RunRequest(target=_named(target), prompt=prompt, **data)
    return request, Hooks(loaded=loaded, tools=tools, **hooks)


def _named(target: Target) -> str | Agent:
    if isinstance(target, GraphAgent | LoopAgent | WorkflowAgent):
        return target.file
    if isinstance(target, Path) and len(target.parts) == 1:
        return f".{os.sep}{target}"  # a path is never the name of an agent
    return target if isinstance(target, Agent) else os.fspath(target)


def _plain(value: Any) -> Any:
    """An argument as a request has it: mappings are dicts, several things are tuples, paths are texts."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return tuple(os.fspath(item) if isinstance(item, os.PathLike) else item for item in value)
    return value
