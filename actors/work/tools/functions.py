'''Python functions as tools, and `callboard.Context`, their access to the call.

    async def lookup(order: int, what: Literal["state", "price"] = "state") -> str:
        """Looks an order up.

        Args:
            order: its number.
            what: what to return.
        """

    await callboard.run("clerk", "Where is order 7?", tools=[lookup])

The docstring is the description for the model. The annotations are the JSON Schema and the check: a parameter may have
any type that `typed_values` reads (dataclasses, TypedDicts, structs, pydantic models, enums, dates, paths ...). A
parameter without annotation accepts any JSON value. A parameter of the type `callboard.Context` receives the context of
the call, through which the function reaches its run and other agents. The model does not see that parameter.

    async def look_up(ctx: callboard.Context[Deps], order: int) -> str:
        row = await ctx.deps.database.fetch(order)
        outcome = await ctx.run(summarizer, str(row))
        return outcome.unwrap()

Async functions run in the event loop of the run's caller, trio's or asyncio's, and are cancelled with the call. Plain
functions run in a thread (`ToolThreads`), which is abandoned if the call is interrupted, because a thread cannot be
killed. The model receives the return value as JSON unless it is text, and an exception as an error.

    @callboard.tool(effect="keyed", timeout=10, on_error="raise")
    async def pay(order: int, call_key: str) -> str: ...

`effect` declares the effect of a repeated call (`protocol/interrupted_calls`), which matters when a durable run resumes
after a kill. A keyed function receives the key of the call as `call_key`, hidden from the model. With
`on_error="raise"` an exception of the function fails the run, instead of the call alone.
'''

from __future__ import annotations

import inspect
import math
import re
import types
import typing
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeAlias, TypeVar, final, overload
from weakref import WeakKeyDictionary

import msgspec
import trio

from ....protocol.deferred_types import defer
from ....protocol.errors import CallboardError, ToolFailed, ToolRaised, UsageError
from ....protocol.interrupted_calls import REPEATS, Repeats
from ....protocol.json_values import UnfitValue, to_json
from ....supervisors.event_loops import caller
from ....supervisors.ref import crash_text
from ....supervisors.user_code import UserCodeError, user_code
from ..call_clock import current as call_clock
from ..journal.unknown_outcome import call_key
from ..typed_values import NotJsonType, ValueReader, schemas_of
from .declare.docstrings import read_docstring
from .tool import TIMEOUT, Arguments, Json, Tool, ToolSpec

if TYPE_CHECKING:
    from ....protocol.outcome import Outcome
    from ....supervisors import Actor
else:
    defer(globals(), {"....protocol.outcome": "Outcome", "....supervisors": "Actor"})

Function: TypeAlias = Callable[..., Any]
OnError: TypeAlias = Literal["tell", "raise"]
F = TypeVar("F", bound=Callable[..., Any])

KEY = "call_key"
"""Parameter of a keyed function that receives the key of a call."""

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
_ON_ERROR = ("tell", "raise")


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """Options given to the decorator of a function."""

    name: str | None = None
    timeout: float | None = TIMEOUT
    effect: Repeats | None = None
    on_error: OnError = "tell"


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    timeout: float | None = TIMEOUT,
    effect: Repeats | None = None,
    on_error: OnError = "tell",
) -> Callable[[F], F]: ...
def tool(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    timeout: float | None = TIMEOUT,
    effect: Repeats | None = None,
    on_error: OnError = "tell",
) -> F | Callable[[F], F]:
    """Declare that a function is a tool. A decorator, with or without arguments, that returns the function unchanged.

    Args:
        name: the name for models; by default the function's own.
        timeout: seconds of a call; None for no limit.
        effect: the effect of a repeated call: `read`, `idempotent`, `keyed` or `write`; see
            `protocol/interrupted_calls`.
        on_error: `tell` returns an exception to the model, which continues; `raise` fails the run.

    Raises:
        UsageError: the effect is unknown, the parameter for the key is missing, or the function cannot be a tool.
    """
    if function is not None and not callable(function):
        raise UsageError(
            f"callboard.tool decorates functions, and {function!r} is not a function; write `@callboard.tool(name=...)`"
        )
    if effect is not None and effect not in REPEATS:
        raise UsageError(f"effect must be one of {', '.join(REPEATS)}, not {effect!r}")
    _check_on_error(on_error)
    declared = Declared(name=name, timeout=timeout, effect=effect, on_error=on_error)

    def declare(function: F) -> F:
        _declared[getattr(function, "__func__", function)] = declared
        if effect is not None:
            _check_key(function, effect)
        return function

    return declare if function is None else declare(function)


def function_tool(
    function: Function,
    *,
    name: str | None = None,
    timeout: float | msgspec.UnsetType | None = msgspec.UNSET,
    effect: Repeats | None = None,
    on_error: OnError | None = None,
) -> Tool:
    """Return a tool that calls a Python function.

    Defaults for omitted arguments come from the function's decorator (see `tool`).

    Args:
        name: the name for models.
        timeout: seconds of a call; None for no limit.
        effect, on_error: see `tool`.

    Raises:
        UsageError: it has `*args`, `**kwargs` or positional-only parameters, a type without a JSON form, or no name
            that a model can call. Also if it is keyed and has no parameter `call_key`.
    """
    declared = declaration_of(function)
    effect = effect or declared.effect
    on_error = on_error or declared.on_error
    _check_on_error(on_error)
    if not callable(function):
        raise UsageError(f"{function!r} can't be a tool: it is not a function")
    called = str(name or declared.name or getattr(function, "__name__", ""))
    if not called.isidentifier():
        raise UsageError(f"{function!r} has no name that a model can call; use function_tool(..., name='...')")
    if effect is not None:
        _check_key(function, effect)
    described = _described(function, called, keyed=effect == "keyed")
    run = _Run(function, called, described, is_async(function), effect == "keyed", on_error)
    return Tool(
        spec=described.spec,
        run=run,
        run_for=None if described.context is None else run,
        origin="function",
        timeout=declared.timeout if timeout is msgspec.UNSET else timeout,
        repeats=effect,
    )


@dataclass(frozen=True, slots=True)
class _Described:
    """Description of a function from its signature and its docstring.

    Attributes:
        readers: converter of the value, by parameter.
        fills: factories for parameters whose default is an object that describes a value, as `pydantic.Field(5)` does.
        context: the parameter that receives the context of the call; None if there is none.
        keyed: a parameter receives the key of the call.
    """

    spec: ToolSpec
    readers: dict[str, ValueReader]
    fills: dict[str, Callable[[], Any]]
    context: str | None
    keyed: bool


@dataclass(frozen=True, slots=True)
class _Run:
    """Body of a call: converts the model's arguments and calls the function."""

    function: Function
    called: str
    described: _Described
    asynchronous: bool
    keyed: bool
    on_error: OnError

    async def __call__(self, me: Actor, arguments: Arguments, agent: RunsAgents | None = None, call: str = "") -> Json:
        described = self.described
        try:
            # The arguments fit the schema already; conversion may still fail, for example in a validator of the user.
            values = {key: described.readers[key].convert(value) for key, value in arguments.items()}
        except UnfitValue as error:
            raise ToolFailed(f"The call '{self.called}' has invalid arguments: {error}") from error
        for key, fill in described.fills.items():
            if key not in values:
                values[key] = fill()
        if self.keyed:
            values[KEY] = call_key(me)
        if described.context is not None:
            values[described.context] = Context[Any](me, agent, call)
        try:
            with user_code:
                result = await call_function(me, self.function, values, asynchronous=self.asynchronous)
                return result if isinstance(result, str) else to_json(result)
        except Exception as error:  # A user function may raise anything. The exception is raised again.
            if self.on_error == "tell" or isinstance(error, ToolFailed):
                raise
            raise ToolRaised(f"tool '{self.called}' raised {_text_of(error)}") from error


def check_names(tools: Sequence[Tool]) -> None:
    """Check that no two tools have the same name.

    Raises:
        UsageError: two tools have the same name.
    """
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            raise UsageError(
                f"tools: two functions have the name '{tool.name}'; give one another name with "
                "callboard.function_tool(function, name='...')"
            )
        seen.add(tool.name)


def is_async(function: Function) -> bool:
    """Return True if a call of this function must be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


async def call_function(me: Actor, function: Function, values: Mapping[str, Any], *, asynchronous: bool) -> Any:
    """Call a user's function on behalf of `me`: an async one in the caller's event loop, a plain one in a thread.

    Without a caller with an event loop of its own, an async function runs in this one.
    """
    if not asynchronous:
        return await in_tool_thread(me.stream.run, partial(function, **values))
    host = caller.get()
    if host is None:
        return await function(**values)
    return await host.run(partial(function, **values), me.cleanup)


def is_context(kind: Any) -> bool:
    """Return True if a parameter with this annotation receives the context of the call."""
    return kind is Context or typing.get_origin(kind) is Context


def _text_of(error: Exception) -> str:
    return str(error) if isinstance(error, CallboardError) else crash_text(error)


def declaration_of(function: Function) -> Declared:
    """Return the options of the function's decorator, or defaults without one."""
    try:
        return _declared.get(getattr(function, "__func__", function), _UNDECLARED)
    except TypeError:  # The object cannot be weakly referenced, so no decorator has declared it.
        return _UNDECLARED


def _check_on_error(on_error: str) -> None:
    if on_error not in _ON_ERROR:
        raise UsageError(f"on_error must be one of {', '.join(_ON_ERROR)}, not {on_error!r}")


def _check_key(function: Function, effect: Repeats) -> None:
    if effect == "keyed" and KEY not in inspect.signature(function).parameters:
        raise UsageError(
            f"{function!r} has the effect \"keyed\", so it needs a parameter '{KEY}', which receives the key of "
            "the call"
        )


def _described(function: Function, called: str, *, keyed: bool = False) -> _Described:
    """Return the description of a function, computed once per function instead of once per run."""
    known = _known.get(function) if inspect.isfunction(function) else None
    if known is not None and known.spec.name == called and known.keyed is keyed:
        return known
    found = _describe(function, called, keyed=keyed)
    if inspect.isfunction(function):
        _known[function] = found
    return found


_UNDECLARED = Declared()
# Weak keys: functions that a program creates per request must not accumulate.
_declared: WeakKeyDictionary[Function, Declared] = WeakKeyDictionary()
_known: WeakKeyDictionary[Function, _Described] = WeakKeyDictionary()


def _describe(function: Function, called: str, *, keyed: bool) -> _Described:
    parameters, hints = parameters_of(function, called)
    readers: dict[str, ValueReader] = {}
    fills: dict[str, Callable[[], Any]] = {}
    required: list[str] = []
    defaults: dict[str, Any] = {}
    context: str | None = None
    for parameter in parameters:
        name, kind, default = parameter.name, hints.get(parameter.name, Any), parameter.default
        if parameter.kind in _VARIADIC:
            raise UsageError(
                f"'{called}' can't be a tool: a model can't provide a value for its parameter '{parameter}'"
            )
        if is_context(kind):
            if context is not None:
                raise UsageError(f"'{called}' can't be a tool: it has two parameters of the type callboard.Context")
            context = name
            continue
        if keyed and name == KEY:
            continue
        # pydantic's `order: int = Field(gt=3)`, recognised without importing pydantic
        if type(default).__module__.startswith("pydantic.") and hasattr(default, "is_required"):
            kind = typing.Annotated[kind, default]
            if default.is_required():
                default = parameter.empty
            else:
                fills[name] = partial(default.get_default, call_default_factory=True)
                default = parameter.empty if default.default_factory is not None else default.default
        try:
            readers[name] = ValueReader.of(kind)
        except NotJsonType as error:
            raise UsageError(f"'{called}' can't be a tool: its parameter '{name}' has {error}") from error
        if default is not parameter.empty:
            defaults[name] = default
        elif name not in fills:
            required.append(name)
    read = read_docstring(inspect.getdoc(function))
    told = {name: entry.text for name, entry in read.entries.items() if entry.text}
    schema = _schema(readers, required, defaults, told, called)
    spec = ToolSpec(name=called, description=read.description, parameters=schema)
    return _Described(spec, readers, fills, context, keyed)


def parameters_of(function: Function, called: str) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    """Return the parameters of a function, and the types of their annotations.

    Raises:
        UsageError: it has no readable signature, or an annotation cannot be resolved.
    """
    holder = _with_annotations(function)
    try:
        signature = inspect.signature(function)
        with user_code:  # Evaluating a string annotation runs user code.
            try:
                hints = typing.get_type_hints(holder, include_extras=True)
            except NameError:
                # `Context[Deps]` with a class that is local or imported only for type checkers cannot be resolved. The
                # context needs no type argument at run time, so such annotations are replaced by `Context`.
                contexts = {
                    name: Context
                    for name, said in holder.__annotations__.items()
                    if isinstance(said, str) and _CONTEXT.match(said)
                }
                if not contexts:
                    raise
                hints = {**typing.get_type_hints(_annotated(holder, contexts), include_extras=True), **contexts}
    except (TypeError, ValueError, NameError, UserCodeError) as error:
        raise UsageError(f"'{called}' can't be a tool: {error}") from error
    return list(signature.parameters.values()), hints


_CONTEXT = re.compile(r"(\w+\.)*Context(\[|$)")


def _annotated(holder: Function, without: Iterable[str]) -> Function:
    """Return a function of the same module with the annotations of `holder`, except these."""
    others = {name: said for name, said in holder.__annotations__.items() if name not in without}
    scope = inspect.unwrap(holder).__globals__

    def copied() -> None: ...

    stand_in = types.FunctionType(copied.__code__, scope)
    stand_in.__annotations__ = others
    return stand_in


def _with_annotations(function: Function) -> Function:
    """Return the object with the annotations: the function, that of a partial, or an object's `__call__`."""
    if isinstance(function, partial):
        return _with_annotations(function.func)
    if inspect.isroutine(function):
        return function
    call: Function = type(function).__call__
    return call


def _schema(
    readers: dict[str, ValueReader], required: list[str], defaults: dict[str, Any], told: dict[str, str], called: str
) -> dict[str, Json]:
    try:
        schemas, definitions = schemas_of(list(readers.values()))
    except NotJsonType as error:
        raise UsageError(f"'{called}' can't be a tool: {_culprit(readers)} has {error}") from error
    properties: dict[str, Json] = {}
    for name, schema in zip(readers, schemas, strict=True):
        properties[name] = {**schema, "description": told[name]} if name in told else dict(schema)
        if defaults.get(name) is not None:
            try:
                properties[name]["default"] = to_json(defaults[name])
            except TypeError:
                continue  # A default without a JSON form: the model does not need it.
    parameters: dict[str, Json] = {"type": "object", "properties": properties, "required": required}
    if definitions:
        parameters["$defs"] = definitions
    return parameters


def _culprit(readers: dict[str, ValueReader]) -> str:
    """Return the parameter whose type has no schema."""
    for name, reader in readers.items():
        try:
            schemas_of([reader])
        except NotJsonType:
            return f"its parameter '{name}'"
    return "one of its parameters"


T = TypeVar("T")

# --- thread pool for plain functions
#
# trio's own limiter does not fit, for two reasons. A thread cannot be killed, so a function that hangs holds its slot
# after its call has timed out: after forty such functions, no tool of the process starts any more. And the calls of one
# run may occupy all slots. Therefore:
#
# - A cancelled call releases its slot at once, whatever its thread does.
# - A run gets at most `THREADS_PER_RUN` slots. A run without any gets one even if all `MOST_THREADS` are occupied, so
#   hanging runs never block another run's first call.
#
# Each event loop has its own pool.


MOST_THREADS = 64
"""Number of concurrent calls in an event loop from which on only runs without a call are admitted."""

THREADS_PER_RUN = 32
"""Maximum number of concurrent calls of one run."""


@final
class ToolThreads:
    """Thread pool of one event loop."""

    def __init__(self) -> None:
        self._busy: Counter[str] = Counter()
        self._total = 0
        self._waiting: deque[tuple[str, trio.Event]] = deque()
        self._unlimited = trio.CapacityLimiter(math.inf)  # The limits are enforced by `_admits`, not by trio.

    async def run(self, run: str, function: Callable[[], T]) -> T:
        """Return `function()`, called in a thread on behalf of a run.

        Time spent waiting for a slot does not count for the time limit of the call. If cancelled, this returns at once
        and abandons the thread.
        """
        if self._admits(run):
            self._enter(run)
        else:
            await self._wait(run)
        try:
            return await trio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=self._unlimited)
        finally:
            self._leave(run)

    async def _wait(self, run: str) -> None:
        turn = run, trio.Event()
        self._waiting.append(turn)
        clock = call_clock.get()
        try:
            if clock is None:
                await turn[1].wait()
            else:
                # Waiting for a slot is not the tool's fault, so it does not count for its time limit.
                with clock.stopped():
                    await turn[1].wait()
        except trio.Cancelled:
            if turn[1].is_set():  # Race: the slot was granted in the same moment as the cancellation.
                self._leave(run)
            else:
                self._waiting.remove(turn)
            raise

    def _admits(self, run: str) -> bool:
        busy = self._busy.get(run, 0)
        # A run without a call is always admitted, so that hanging runs cannot block it.
        return not busy or (self._total < MOST_THREADS and busy < THREADS_PER_RUN)

    def _enter(self, run: str) -> None:
        self._busy[run] += 1
        self._total += 1

    def _leave(self, run: str) -> None:
        self._busy[run] -= 1
        self._total -= 1
        if not self._busy[run]:
            del self._busy[run]
        for turn in list(self._waiting):
            if self._admits(turn[0]):
                self._waiting.remove(turn)
                self._enter(turn[0])
                turn[1].set()


_pool: trio.lowlevel.RunVar[ToolThreads] = trio.lowlevel.RunVar("callboard_tool_threads")


async def in_tool_thread(run: str, function: Callable[[], T]) -> T:
    """Return `function()`, called in a thread of this event loop's pool; see `ToolThreads.run`."""
    try:
        pool = _pool.get()
    except LookupError:
        _pool.set(pool := ToolThreads())
    return await pool.run(run, function)


D = TypeVar("D")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class TypedAgent(Protocol[R_co]):
    """An agent that declares the type of its result: `callboard.Agent`."""

    @property
    def result(self) -> type[R_co] | Mapping[str, Any] | None:
        """The declared type of the result; None if the agent declares none."""


class RunsAgents(Protocol):
    """The calling agent, as its tools use it; implemented by `work.context.CallingAgent`."""

    @property
    def name(self) -> str:
        """The agent's name."""

    @property
    def deps(self) -> Any:
        """The `deps` that the caller passed to the run."""

    def run(self, me: Actor, target: Any, prompt: str, options: dict[str, Any]) -> Awaitable[Outcome[Any]]:
        """Run an agent below `me`, as a child of the calling agent."""


@final
class Context(Generic[D]):
    """A call of a Python function by an agent, valid until the function returns.

    Attributes:
        deps: the `deps` that the caller passed to the run; None if it passed none.
        run_id: the run's id.
        call_id: the id that the model gave the call, also the `id` of its events.
        agent: the name of the calling agent.
    """

    def __init__(self, me: Actor, agent: RunsAgents | None, call_id: str) -> None:
        self._me = me
        self._agent = agent
        deps: Any = None if agent is None else agent.deps
        self.deps: D = deps
        self.run_id: str = me.stream.run
        self.call_id = call_id
        self.agent: str = "" if agent is None else agent.name

    @overload
    async def run(self, agent: object, prompt: str = "", *, result: type[R], **variables: str) -> Outcome[R]: ...
    @overload
    async def run(self, agent: TypedAgent[R], prompt: str = "", **variables: str) -> Outcome[R]: ...
    @overload
    async def run(self, agent: object, prompt: str = "", *, result: Any = None, **variables: str) -> Outcome[Any]: ...
    async def run(self, agent: object, prompt: str = "", *, result: Any = None, **variables: str) -> Outcome[Any]:
        """Run an agent as a child of the calling agent, and wait for its end.

        Its usage counts for the limits and the `usage` of this run, its events are among this run's, and it is listed
        in `children` of the outcome. It has no tools of the run, only its own. Cancelling the call cancels it.

        Args:
            agent: as the target of `callboard.run`.
            prompt: the prompt.
            result: the type of its result; by default that of the agent.
            variables: values of the agent's variables.

        Returns:
            The outcome; an agent that failed does not raise. `usage` is empty, because it is part of the run's.

        Raises:
            UsageError: no agent made this call, or the agent could not start.
            InvalidFile, ConfigError: the agent could not start.
        """
        calling = self._agent
        if calling is None:
            raise UsageError("this tool was not called by an agent, so it can't run agents")
        start = partial(calling.run, self._me, agent, prompt, {"result": result, "variables": variables})
        loop = self._me.root.loop
        # The function may run in the caller's own event loop (asyncio, or another trio loop): hop to the run's loop.
        if loop is None or (trio.lowlevel.in_trio_task() and trio.lowlevel.current_trio_token() is loop.token):
            return await start()
        return await loop.call(start)

    @overload
    def run_sync(self, agent: object, prompt: str = "", *, result: type[R], **variables: str) -> Outcome[R]: ...
    @overload
    def run_sync(self, agent: TypedAgent[R], prompt: str = "", **variables: str) -> Outcome[R]: ...
    @overload
    def run_sync(self, agent: object, prompt: str = "", *, result: Any = None, **variables: str) -> Outcome[Any]: ...
    def run_sync(self, agent: object, prompt: str = "", *, result: Any = None, **variables: str) -> Outcome[Any]:
        """Run an agent like `run`, from a plain function. Blocks the function's thread."""
        return trio.from_thread.run(partial(self.run, agent, prompt, result=result, **variables))
