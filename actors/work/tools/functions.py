"""Python functions as tools.

    async def lookup(order: int, what: Literal["state", "price"] = "state") -> str:
        \"""Looks an order up.

        Args:
            order: its number.
            what: what to return.
        \"""

    await callboard.run("clerk", "Where is order 7?", tools=[lookup])

The docstring describes it to the model, the annotations are the JSON Schema and the check: whatever msgspec can decode
may be a parameter (dataclasses, TypedDicts, structs, enums, dates ...). A function without annotations takes JSON as it
comes. Async functions run in the event loop of the run's caller, trio's or asyncio's, and are cancelled with the call.
Plain ones run in a thread, which is left behind if the call is interrupted: a thread can't be ended. The model gets
what is returned as JSON unless it is text, what is raised as an error.

    @callboard.tool(effect="keyed")
    async def pay(order: int, call_key: str) -> str: ...

says what a call does that is made twice (`protocol/repeats`), which counts when a durable run goes on after a kill.
A keyed function gets the key of the call as `call_key`, of which the model knows nothing.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import msgspec
import trio

from ....protocol.decoding import convert
from ....protocol.errors import ToolFailed, UsageError
from ....protocol.repeats import REPEATS, Repeats
from ....supervisors.event_loops import caller
from ....supervisors.user_code import UserCodeError, user_code
from ..journal.unknown import call_key
from .declare.docstrings import read_docstring
from .tool import TIMEOUT, Arguments, Json, Tool, ToolSpec

if TYPE_CHECKING:
    from ....supervisors import Actor

Function: TypeAlias = Callable[..., Any]
F = TypeVar("F", bound=Callable[..., Any])

KEY = "call_key"
"""The parameter of a keyed function that gets the key of a call."""

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


def tool(*, effect: Repeats) -> Callable[[F], F]:
    """Say what a call of a function does that is made twice: a decorator, which leaves the function as it is.

    Args:
        effect: `read`, `idempotent`, `keyed` or `write`; see `protocol/repeats`.

    Raises:
        UsageError: there is no such effect; or the function has no parameter for the key.
    """
    if effect not in REPEATS:
        raise UsageError(f"effect must be one of {', '.join(REPEATS)}, not {effect!r}")

    def said(function: F) -> F:
        _effects[function] = effect
        _check_key(function, effect)
        return function

    return said


def function_tool(
    function: Function, *, name: str | None = None, timeout: float | None = TIMEOUT, effect: Repeats | None = None
) -> Tool:
    """A tool that calls a Python function.

    Args:
        timeout: seconds of a call; None for no end.
        effect: see `tool`; None for what the function's decorator says.

    Raises:
        UsageError: it has `*args`, `**kwargs` or positional-only parameters, or a type that JSON can't hold.
    """
    effect = effect or _effect_of(function)
    called = str(name or getattr(function, "__name__", ""))
    if not called.isidentifier():
        raise UsageError(f"{function!r} has no name a model could call; use function_tool(..., name='...')")
    if effect is not None:
        _check_key(function, effect)
    spec, types = _described(function, called, keyed=effect == "keyed")
    asynchronous = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
    run = _Run(function, called, types, asynchronous, keyed=effect == "keyed")
    return Tool(spec=spec, run=run, origin="function", timeout=timeout, repeats=effect)


@dataclass(frozen=True, slots=True)
class _Run:
    """Calls the function with what a model has given."""

    function: Function
    called: str
    types: dict[str, Any]
    asynchronous: bool
    keyed: bool

    async def __call__(self, me: Actor, arguments: Arguments) -> Json:
        try:
            with user_code:  # a dataclass may check its values in `__post_init__`
                values = {key: convert(value, self.types[key], strict=False) for key, value in arguments.items()}
        except msgspec.ValidationError as error:
            raise ToolFailed(f"The call '{self.called}' has invalid arguments: {error}") from error
        if self.keyed:
            values[KEY] = call_key(me)
        with user_code:
            if self.asynchronous:
                host = caller.get()
                if host is None:
                    result = await self.function(**values)
                else:
                    result = await host.run(partial(self.function, **values), me.cleanup)
            else:
                result = await trio.to_thread.run_sync(partial(self.function, **values), abandon_on_cancel=True)
            return result if isinstance(result, str) else msgspec.to_builtins(result, str_keys=True)


def _effect_of(function: Function) -> Repeats | None:
    try:
        return _effects.get(getattr(function, "__func__", function))
    except TypeError:  # it has no weak references, so nobody has said anything of it
        return None


def _check_key(function: Function, effect: Repeats) -> None:
    if effect == "keyed" and KEY not in inspect.signature(function).parameters:
        raise UsageError(f"{function!r} is keyed, so it needs a parameter '{KEY}' for the key of a call")


def _described(function: Function, called: str, *, keyed: bool = False) -> tuple[ToolSpec, dict[str, Any]]:
    """The spec for the model, and the parameters' types; found out once per function, not once per run."""
    known = _known.get(function) if inspect.isfunction(function) else None
    if known is not None and known[0].name == called and known[2] is keyed:
        return known[:2]
    types, required = _parameters(function, called)
    if keyed:
        del types[KEY]
        required = [name for name in required if name != KEY]
    read = read_docstring(inspect.getdoc(function))
    told = {name: entry.text for name, entry in read.entries.items() if entry.text}
    parameters = _schema(function, types, required, told, called)
    found = ToolSpec(name=called, description=read.description, parameters=parameters), types
    if inspect.isfunction(function):
        _known[function] = (*found, keyed)
    return found


_effects: WeakKeyDictionary[Function, Repeats] = WeakKeyDictionary()
_known: WeakKeyDictionary[Function, tuple[ToolSpec, dict[str, Any], bool]] = WeakKeyDictionary()


def _parameters(function: Function, called: str) -> tuple[dict[str, Any], list[str]]:
    try:
        signature = inspect.signature(function)
        with user_code:  # an annotation that is a string is evaluated
            hints = typing.get_type_hints(_with_annotations(function), include_extras=True)
    except (TypeError, ValueError, NameError, UserCodeError) as error:
        raise UsageError(f"'{called}' can't be a tool: {error}") from error
    types: dict[str, Any] = {}
    required: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind in _VARIADIC:
            raise UsageError(f"'{called}' can't be a tool: a model can't fill in its parameter '{parameter}'")
        types[parameter.name] = hints.get(parameter.name, Any)
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    return types, required


def _with_annotations(function: Function) -> Function:
    """What holds the annotations: the function itself, that of a partial, or the `__call__` of an object."""
    if isinstance(function, partial):
        return _with_annotations(function.func)
    if inspect.isroutine(function):
        return function
    call: Function = type(function).__call__
    return call


def _schema(
    function: Function, types: dict[str, Any], required: list[str], told: dict[str, str], called: str
) -> dict[str, Json]:
    try:
        schemas, components = msgspec.json.schema_components(list(types.values()), ref_template="#/$defs/{name}")
    except TypeError as error:
        raise UsageError(f"'{called}' can't be a tool: {error}") from error
    properties: dict[str, Json] = {}
    defaults = inspect.signature(function).parameters
    for name, schema in zip(types, schemas, strict=True):
        properties[name] = {**schema, "description": told[name]} if name in told else dict(schema)
        if name not in required and defaults[name].default is not None:
            try:
                properties[name]["default"] = msgspec.to_builtins(defaults[name].default)
            except TypeError:
                continue  # the model need not know it
    parameters: dict[str, Json] = {"type": "object", "properties": properties, "required": required}
    if components:
        parameters["$defs"] = components
    return parameters
