"""`callboard.run` and `run_sync`: one run of an agent or a workflow, from Python.

The arguments become a `RunRequest` and its `RunCallbacks`, as at every front end; `begin` does the rest.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar, Unpack, cast, overload

import msgspec
import trio

from ...protocol.agent import Agent as AgentData
from ...protocol.chat import Part, Turn
from ...protocol.decoding import convert
from ...protocol.deferred_types import defer
from ...protocol.deprecation import renamed
from ...protocol.errors import UsageError
from ...protocol.events import Event
from ...protocol.interrupted_calls import OnUnknown
from ...protocol.outcome import Outcome
from ...protocol.requests import Limits, Overrides, RunRequest
from ...protocol.sandbox import Profile
from ...supervisors.event_loops import in_callers_loop
from ..work.tools.functions import Function, check_names, function_tool
from ..work.tools.tool import Tool
from .begin import perform
from .config import Config
from .execution import EventCallback
from .loading import RunCallbacks
from .rerun.cassettes import playback_of
from .root import Root, check_new_root, check_no_settings, current, in_asyncio
from .target import GraphAgent, Loaded, LoopAgent, WorkflowAgent

if TYPE_CHECKING:
    from ...protocol.mcp.config import Server
    from ..work.agent.todo import TodoList
    from ..work.hooks import Functions
    from ..work.middleware import Middleware
    from ..work.models.python_model import Model
    from ..work.results import ResultType
    from .python_agent import Agent
    from .python_graph import Graph  # noqa: TC004 - a deferred name at run time
else:
    defer(
        globals(),
        {
            "...protocol.mcp.config": "Server",
            "..work.agent.todo": "TodoList",
            "..work.hooks": "Functions",
            "..work.middleware": "Middleware",
            "..work.models.python_model": "Model",
            "..work.results": "ResultType",
            ".python_agent": "Agent",
            ".python_graph": "Graph",
        },
    )

R = TypeVar("R")
PathLike: TypeAlias = str | os.PathLike[str]
Target: TypeAlias = PathLike | Loaded | AgentData | Graph
Answers: TypeAlias = Sequence[Any] | Mapping[str, Any]


F = TypeVar("F", bound=Callable[..., Any])


def spelled_out(options: type) -> Callable[[F], F]:
    """Decorator that makes `help` show the options of a function by name and type, in place of `**options`."""

    def with_signature(function: F) -> F:
        parameters = list(inspect.signature(function).parameters.values())[:-1]
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_default(name), annotation=_as_text(kind))
            for name, kind in options.__annotations__.items()
            if name not in NEW_NAMES.values()
        ]
        signature = inspect.signature(function).replace(parameters=[*parameters, *more])
        function.__signature__ = signature  # type: ignore[attr-defined]  # what `inspect` reads
        return function

    return with_signature


def _default(name: str) -> Any:
    """Return the default of an option."""
    for struct in (RunRequest, RunCallbacks):  # only their last fields have defaults
        pairs = zip(reversed(struct.__struct_fields__), reversed(struct.__struct_defaults__), strict=False)
        default = dict(pairs).get(NEW_NAMES.get(name, name))
        if isinstance(default, bool | tuple):
            return default
        if name == "models":
            return ()
    return None


def _as_text(kind: Any) -> str:
    """Return an annotation of a TypedDict as it is written."""
    return str(getattr(kind, "__forward_arg__", kind))


class RunOptions(TypedDict, total=False):
    """Keyword arguments of `Root.run`; documented at `run` and in `RunRequest`."""

    model: str | Model | None
    models: Sequence[Model]
    middleware: Sequence[Middleware]
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
    approve_all: bool
    extra_dirs: Iterable[PathLike]
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
    todos: TodoList | None
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
    deps: Any
    record: PathLike | None
    replay: PathLike | None
    loose: bool


# The old names stay valid: programs pass them.
NEW_NAMES = {"extra_dirs": "roots", "approve_all": "yes"}
"""Public names of options, and the internal names of the same options."""

RENAMED = {*NEW_NAMES, *NEW_NAMES.values()}


class Options(RunOptions, total=False):
    """Keyword arguments of `run`: the options of `Root.run`, and the choice of the root."""

    config_dir: PathLike | None
    config: Config | None
    root: Root | None


class TypedOptions(RunOptions, total=False):
    """Options of a run with the type of its result. It is not in `RunOptions`, because overloads depend on it."""

    result: Any


@overload
async def run(target: Target, prompt: str = "", *, result: type[R], **options: Unpack[Options]) -> Outcome[R]: ...
@overload
async def run(
    target: Target, prompt: str = "", *, result: Mapping[str, Any], **options: Unpack[Options]
) -> Outcome[Any]: ...
@overload
async def run(target: Agent[R], prompt: str = "", **options: Unpack[Options]) -> Outcome[R]: ...
@overload
async def run(target: Target, prompt: str = "", **options: Unpack[Options]) -> Outcome[Any]: ...
@spelled_out(Options)
async def run(target: Target, prompt: str = "", *, result: Any = None, **options: Unpack[Options]) -> Outcome[Any]:
    """Run an agent or a workflow to its end.

    Args:
        target: an agent's name, an agent's directory, a YAML file, the result of `load`, or an `Agent` made in Python.
        prompt: the user's words; in a graph, the value of `{{initial_prompt}}`.
        result: the type of the answer, in place of the agent's own: a dataclass, TypedDict, msgspec Struct or pydantic
            model, any other type that JSON can hold, or a JSON Schema. The value is the outcome's `result`.
        model: default model: `client:model`, or a model made in Python (`callboard.Model`). A model of
            `callboard.testing` answers in place of all models.
        models: models made in Python, which agents and graphs of the run name.
        middleware: async callables `(request, call_next)` around requests to models, the outermost first.
        variables: values of the agent's variables; for a workflow, values of `${NAME}`.
        state: replaces keys of a graph's `initial_state`; JSON values.
        answers: answers to questions: a list used in order, or a mapping of node ids to an answer or a list of answers.
        on_event: called with every event of the run, in order, in the run's tasks, or in the event loop of a caller
            under asyncio. It must return quickly. Its first exception ends the run and is raised.
        compat: `standard`, `loki` (agents) or `devall` (workflows), in place of the file's dialect.
        limits: upper bounds for the run.
        allow_unpriced: with `max_cost` in the limits, allow models without a known price, and count them as free.
        no_wait: fail requests that a rate limit delays; by default they wait, and the wait is no failed attempt.
        strict: treat warnings about the file as errors.
        config_dir: directory of agents and settings, for a run with its own root.
        config: settings as an object, for a run with its own root; otherwise use `root.run(config=...)`.
        root: the root to run under; by default that of the enclosing block, else a new one for this run.
        tools: Python functions, sync or async, that the agent may call. Async ones run in the caller's event loop.
        allow: names of tools that may run without asking the user for permission.
        approve_all: no tool asks for permission. `yes` is the old name.
        extra_dirs: further directories in which `fs_*` tools may work. `roots` is the old name.
        knowledge: names of knowledge bases in which the prompt is looked up.
        files: paths, globs and URLs whose text is inserted before the prompt.
        rebuild_knowledge: rebuild every knowledge base of the run first.
        attach: files of a workflow's task, for its models and its python nodes; files for an LLM agent.
        save: a directory in which the run is stored as files.
        id: id of the run, `run-` and lower-case letters or digits, for a caller that must know it beforehand.
        history: earlier conversation that an LLM agent continues. Graphs and workflows do not read it.
        on_history: called once with the conversation, `history` included (see `RunCallbacks`).
        todos: todo list that an agent with `auto_continue` continues and changes, as in a session's turn.
        cwd: directory that the run's tools and scripts work in; by default the process's own.
        servers: MCP servers that an LLM agent gets in addition to those it names, with all their tools.
        parts: images and files that an LLM agent gets in addition to the prompt.
        role: name of a role, with arguments after `#`; the target is then "", or an `Agent` made in Python.
        role_prompt: text of a role, in place of its name.
        durable: journal the run on disk, so that `callboard resume` can continue it if this process is killed.
        on_unknown: policy for calls that were under way then: `ask`, `tell`, `again` or `fail`.
        sandbox: a profile for the run's processes (docs/sandbox.md); by default that of config.yaml.
        workspace: whether files of a trusted directory are used; by default for agents that have a file.
        hooks: by event, Python functions, or pairs of a matcher and a function (docs/hooks.md).
        deps: value of `deps` in the `callboard.Context` of functions.
        record: a file into which the run is recorded: a cassette.
        replay: a cassette from which the run is replayed, without a network or processes.
        loose: match recorded requests by position, even if their contents differ.

    Returns:
        The outcome. A run that failed, or was cancelled by its root's end, does not raise.

    Raises:
        UsageError: no root is open and none may be opened: under asyncio, or while another root is open in this event
            loop. Or a root is open, and `config_dir` or `config` was passed, which it could not follow.
        UsageError, InvalidFile, Unsupported, ConfigError: the run could not start.
        trio.Cancelled, asyncio.CancelledError: the caller was cancelled; no task of the run is left.
    """
    config_dir, config = options.pop("config_dir", None), options.pop("config", None)
    root = options.pop("root", None) or current.get()
    if root is not None:
        check_no_settings("callboard.run", config_dir, config)
    callback = callback_of(options)
    typed = with_result(options, result)
    if root is not None:
        outcome = await root.call(partial(run_under, root, target, prompt, typed, callback))
    else:
        check_new_root("callboard.run")
        async with Root(config_dir=config_dir, config=config) as own:
            outcome = await run_under(own, target, prompt, typed, callback)
    if callback is not None:
        callback.check()
    return outcome


def run_under(
    root: Root,
    target: Target,
    prompt: str,
    options: TypedOptions,
    callback: EventCallback | None,
    also: Callable[[Event], None] | None = None,
) -> Awaitable[Outcome]:
    """Run a target in the event loop of this root. `callback` replaces `on_event`; `also` gets each event before it.

    This is no coroutine function, because its frame would hold all arguments as long as the run lasts.
    """
    request, hooks = requested(target, prompt, **options)
    hears = also
    if callback is not None:
        own = callback.under(root.kernel)
        hears = own if also is None else partial(_hear_both, also, own)
    if hears is not None:
        hooks = msgspec.structs.replace(hooks, on_event=hears)
    made = _made(target)
    if made is not None:
        from .python_agent import Agent, check_known, names_others

        if isinstance(made, Agent) and names_others(made):
            check = partial(check_known, made, root.registry)
            return _checked_first(check, root, partial(perform, request, hooks, root))
    return perform(request, hooks, root)


async def _checked_first(check: Callable[[], None], root: Root, run: Callable[[], Awaitable[Outcome]]) -> Outcome:
    await root.loader.threaded(check)
    return await run()


def with_result(options: RunOptions, result: Any) -> TypedOptions:
    """Return the options with the type of the result, if there is one."""
    typed: Any = options if result is None else {**options, "result": result}
    return cast("TypedOptions", typed)


def callback_of(options: RunOptions) -> EventCallback | None:
    """Remove `on_event` from the options, and return it wrapped."""
    on_event = options.pop("on_event", None)
    return None if on_event is None else EventCallback(on_event)


def _hear_both(one: Callable[[Event], None], other: Callable[[Event], None], event: Event) -> None:
    one(event)
    other(event)


@overload
def run_sync(target: Target, prompt: str = "", *, result: type[R], **options: Unpack[Options]) -> Outcome[R]: ...
@overload
def run_sync(
    target: Target, prompt: str = "", *, result: Mapping[str, Any], **options: Unpack[Options]
) -> Outcome[Any]: ...
@overload
def run_sync(target: Agent[R], prompt: str = "", **options: Unpack[Options]) -> Outcome[R]: ...
@overload
def run_sync(target: Target, prompt: str = "", **options: Unpack[Options]) -> Outcome[Any]: ...
@spelled_out(Options)
def run_sync(target: Target, prompt: str = "", *, result: Any = None, **options: Unpack[Options]) -> Outcome[Any]:
    """Call `run` in a thread without an event loop, and block until the run has ended.

    Args: see `run`. `root` is a root that is open in another thread; by default the run has its own root and trio
    loop.

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
        check_no_settings("callboard.run_sync", options.pop("config_dir", None), options.pop("config", None))
        callback = callback_of(options)
        typed = with_result(options, result)
        outcome = root.call_blocking(partial(run_under, root, target, prompt, typed, callback))
        if callback is not None:
            callback.check()
        return outcome

    async def alone() -> Outcome[Any]:
        current.set(None)  # The context may be a copy of one in a root's block, which runs in another thread.
        return await run(target, prompt, result=result, **options)

    return trio.run(alone)


async def resume(
    run: str,
    *,
    tools: Sequence[Function | Tool] = (),
    on_event: Callable[[Event], None] | None = None,
    with_changes: bool = False,
    strict: bool = False,
    on_unknown: OnUnknown | None = None,
    agent: Agent[Any] | Graph | None = None,
    result: Any = None,
    deps: Any = None,
    models: Sequence[Model] = (),
    middleware: Sequence[Middleware] = (),
    config_dir: PathLike | None = None,
    root: Root | None = None,
) -> Outcome[Any]:
    """Resume a durable run whose process was killed, and execute it to its end.

    Args:
        run: id of the run.
        tools: the Python functions that it began with.
        on_event: called with every event from now on; see `run`.
        with_changes: use its file, and the files of agents that it calls, as they are today.
        strict: refuse the run if a script, a tool file or a file of functions has changed; by default, only warn.
        on_unknown: policy for calls that were under way, in place of the one that the run began with.
        agent: the `Agent` or `Graph` that it began with, if that was made in Python. Functions and child agents of such
            an agent cannot be stored.
        models, middleware: see `run`. A model made in Python that was passed as `model` is one of `models` here.
        result, deps: see `run`. Without the type of its result, or its agent, the `result` stays JSON.
        config_dir, root: see `run`.

    Returns and raises as `run` does, and:
        NotFound: the run does not exist.
        Conflict: it is over, or another process executes it.
        JournalError: it cannot be resumed, and stays as it is.
    """
    from .durable import resume as go_on

    made = tuple(tool if isinstance(tool, Tool) else function_tool(tool) for tool in tools)
    loaded, kind = _loaded(agent)
    wanted = kind if result is None else result
    hooks = RunCallbacks(loaded=loaded, result=None if wanted is None else _result_type(wanted), deps=deps)
    if models:
        hooks = msgspec.structs.replace(hooks, models=_python_models(None, models)[0])
    if middleware:
        from ..work.middleware import checked

        hooks = msgspec.structs.replace(hooks, middleware=checked(middleware, "middleware"))
    callback = None if on_event is None else EventCallback(on_event)

    async def under(root: Root) -> Outcome:
        return await go_on(
            root,
            run,
            hooks,
            on_event=None if callback is None else callback.under(root.kernel),
            with_changes=with_changes,
            strict=strict,
            tools=made,
            on_unknown=on_unknown,
        )

    root = root or current.get()
    if root is not None:
        check_no_settings("callboard.resume", config_dir)
        outcome = await root.call(partial(under, root))
    else:
        check_new_root("callboard.resume")
        async with Root(config_dir=config_dir) as own:
            outcome = await under(own)
    if callback is not None:
        callback.check()
    return outcome


def requested(target: Target, prompt: str, **options: Any) -> tuple[RunRequest, RunCallbacks]:
    """Return the request and the callbacks that these arguments of `run` make.

    Raises:
        TypeError: `run` has no such argument.
        UsageError: an argument has an invalid value.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if not given.keys().isdisjoint(RENAMED):
        renamed(given, NEW_NAMES, "callboard.run")
    record, replay, loose = given.pop("record", None), given.pop("replay", None), given.pop("loose", False)
    if record is not None or replay is not None:
        given["playback"] = playback_of(record, replay, loose=loose, durable=given.get("durable", False))
    kind = given.pop("result", None)
    model = given.get("model")
    if "models" in given or (model is not None and not isinstance(model, str)):
        if callable(answer := getattr(model, "answer", None)):
            given["stand_in"] = answer
            model = None
        given["models"], given["model"] = _python_models(model, given.pop("models", ()))
    if "middleware" in given:
        from ..work.middleware import checked

        given["middleware"] = checked(given["middleware"], "middleware")
    loaded, own_kind = _loaded(target)
    kind = own_kind if kind is None else kind
    if isinstance(loaded, LoopAgent) and loaded is not target:
        target = loaded.agent
    elif loaded is not None:
        target = loaded
    hooks = {name: given.pop(name) for name in RunCallbacks.__struct_fields__ if name in given}
    if kind is not None:
        hooks["result"] = wanted = _result_type(kind)
        given["overrides"] = Overrides(result_schema=wanted.schema)
    if "on_history" in hooks:
        hooks["on_history"] = in_callers_loop(hooks["on_history"])
    tools = tuple(tool if isinstance(tool, Tool) else function_tool(tool) for tool in hooks.pop("tools", ()))
    own = loaded.functions if isinstance(loaded, LoopAgent) else ()
    if len(tools) + len(own) > 1:
        check_names((*tools, *own))
    data = {name: _checked(name, _plain(value)) for name, value in given.items() if value is not None}
    request = RunRequest(target=_named(target), prompt=prompt, **data)
    return request, RunCallbacks(loaded=loaded, tools=tools, **hooks)


def _made(target: object) -> Agent[Any] | Graph | None:
    """Return the target if it is an agent or a graph made by a program, else None.

    Only a program that has made one has imported its module, and an import here would block the event loop.
    """
    if type(target) is AgentData or isinstance(target, _FROM_FILES):
        return None
    for module, name in (("python_agent", "Agent"), ("python_graph", "Graph")):
        imported = sys.modules.get(f"{__package__}.{module}")
        if imported is not None and isinstance(target, getattr(imported, name)):
            made: Agent[Any] | Graph = target
            return made
    return None


def _python_models(model: Any, models: Any) -> tuple[Mapping[str, Model], str | None]:
    """Return the run's models made in Python, by name; and the id of its default model.

    Raises:
        UsageError: a value is no model, or two have the same name.
    """
    from ..work.models.python_model import by_name

    if not isinstance(models, list | tuple):
        raise UsageError(f"models: expected a list of models, got {models!r}")
    if model is None or isinstance(model, str):
        return by_name(models, "models"), model
    return by_name((model, *models), "model"), model.name


_FROM_FILES = (str, os.PathLike, GraphAgent, LoopAgent, WorkflowAgent)


def _loaded(target: object) -> tuple[Loaded | None, Any]:
    """Return the target if it was loaded or made, else None; and the type of its result."""
    if isinstance(target, GraphAgent | LoopAgent | WorkflowAgent):
        return target, None
    made = None if target is None else _made(target)
    if made is None:
        return None, None
    from .python_agent import Agent, loop_agent

    return (loop_agent(made), made.result) if isinstance(made, Agent) else (made.build(), None)


def _result_type(kind: Any) -> ResultType:
    from ..work.results import ResultType

    return ResultType.of(kind)


def _named(target: Target) -> str | AgentData:
    if isinstance(target, GraphAgent | LoopAgent | WorkflowAgent):
        return target.file
    if isinstance(target, Path) and len(target.parts) == 1:
        return f".{os.sep}{target}"  # A `Path` is never the name of an agent.
    if not isinstance(target, AgentData | str | os.PathLike):
        raise UsageError(f"{target!r} can't be run: pass a callboard.Agent, an agent's name, or a path")
    return target if isinstance(target, AgentData) else os.fspath(target)


_TYPES = {field.name: field.type for field in msgspec.structs.fields(RunRequest)}


def _checked(name: str, value: Any) -> Any:
    """Return an argument with the type of the request's field; mappings are converted to structs.

    Raises:
        UsageError: it has another type.
    """
    kind = _TYPES.get(name)
    if kind is None or name in ("state", "answers", "overrides"):  # checked later
        return value
    if kind is Limits and isinstance(value, dict) and (unknown := value.keys() - set(Limits.__struct_fields__)):
        known = ", ".join(Limits.__struct_fields__)
        raise UsageError(f"{name}={value!r}: there is no limit '{min(unknown, key=str)}'; there are: {known}")
    try:
        return convert(value, kind)
    except msgspec.ValidationError as error:
        shown = repr(value)
        raise UsageError(f"{name}={shown if len(shown) < 100 else f'{shown[:100]}...'}: {error}") from error


def _plain(value: Any) -> Any:
    """Return an argument in the form of a request: mappings as dicts, iterables as tuples, paths as texts."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return tuple(os.fspath(item) if isinstance(item, os.PathLike) else item for item in value)
    return value
