"""Python functions as tools."""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
import trio
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request
from support.messages import says

import callboard
from callboard.actors.work.tools.declare.docstrings import read_docstring
from callboard.actors.work.tools.functions import function_tool
from callboard.protocol.errors import ToolFailed, UsageError
from callboard.supervisors import Actor
from callboard.supervisors.user_code import UserCodeError


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Item:
    sku: str
    count: int = 1


class Address(TypedDict):
    street: str


async def order(
    item: Item,
    to: Address,
    size: Size = Size.SMALL,
    speed: Literal["slow", "fast"] = "slow",
    note: str | None = None,
    weight: Annotated[float, msgspec.Meta(gt=0)] = 1.0,
) -> dict[str, object]:
    """Orders an item.

    It is not cheap.

    Args:
        item: what to order.
        to: where it goes,
            at last.
    """
    return {"sku": item.sku, "count": item.count, "street": to["street"], "size": size.value, "speed": speed}


def test_annotations_and_docstring_make_the_schema() -> None:
    spec = function_tool(order).spec
    assert spec.name == "order"
    assert spec.description == "Orders an item.\n\nIt is not cheap."
    assert spec.parameters["required"] == ["item", "to"]
    properties = spec.parameters["properties"]
    assert properties["item"]["description"] == "what to order."
    assert properties["to"]["description"] == "where it goes, at last."
    assert properties["speed"] == {"enum": ["fast", "slow"], "default": "slow"}
    assert properties["size"]["default"] == "s"
    assert properties["weight"] == {"type": "number", "exclusiveMinimum": 0, "default": 1.0}
    assert spec.parameters["$defs"]["Item"]["properties"]["count"] == {"type": "integer", "default": 1}


async def test_arguments_become_what_the_annotations_say(me: Actor) -> None:
    result = await function_tool(order).run(me, {"item": {"sku": "a"}, "to": {"street": "x"}, "size": "l"})
    assert result == {"sku": "a", "count": 1, "street": "x", "size": "l", "speed": "slow"}


async def test_what_the_schema_lets_pass_and_the_type_does_not_is_told(me: Actor) -> None:
    with pytest.raises(ToolFailed, match=says("work.tools.functions._Run.__call__", error="…`float` > 0…")):
        await function_tool(order).run(me, {"item": {"sku": "a"}, "to": {"street": "x"}, "weight": 0})


async def test_a_plain_function_runs_in_a_thread(me: Actor) -> None:
    def where() -> str:
        return threading.current_thread().name

    assert await function_tool(where).run(me, {}) != threading.current_thread().name


async def test_an_object_with_an_async_call_runs_in_the_event_loop(me: Actor) -> None:
    class Tool:
        async def __call__(self, n: int) -> int:
            await trio.lowlevel.checkpoint()
            return n + 1

    assert await function_tool(Tool(), name="plus_one").run(me, {"n": 6}) == 7


async def test_structs_and_dataclasses_are_told_as_json(me: Actor) -> None:
    def make() -> Item:
        return Item("a", 2)

    assert await function_tool(make).run(me, {}) == {"sku": "a", "count": 2}


def test_what_no_model_can_fill_in_is_refused_at_once() -> None:
    def variadic(*numbers: int) -> None: ...

    with pytest.raises(
        UsageError, match=says("work.tools.functions._describe", called="variadic", parameter="*numbers…")
    ):
        function_tool(variadic)
    with pytest.raises(UsageError, match=says("work.tools.functions.function_tool.2")):
        function_tool(lambda: 1)
    assert function_tool(lambda: 1, name="one").name == "one"


class Odd(BaseException):
    """A base exception of a library."""


@dataclass
class Checked:
    n: int

    def __post_init__(self) -> None:
        raise SystemExit(f"{self.n} is refused")


@pytest.mark.parametrize("error", [SystemExit(2), KeyboardInterrupt(), GeneratorExit(), Odd("o")], ids=repr)
@pytest.mark.parametrize("kind", ["thread", "async", "nursery"])
async def test_whatever_a_function_raises_is_the_error_of_its_call(
    agent_runner: AgentRunner, kind: str, error: BaseException
) -> None:
    begun, ended = trio.Event(), trio.Event()

    def fails() -> str:
        raise error

    async def fails_async() -> str:
        await trio.lowlevel.checkpoint()
        raise error

    async def fails_in_a_nursery() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails_async)
            await trio.sleep_forever()

    async def beside() -> str:
        begun.set()
        await ended.wait()
        return "whole"

    def answer(request: Request) -> Reply | str:
        if request.results:
            return request.results[-1]
        return Reply(calls=[("bad" if request.prompt == "bad" else "beside", {})])

    agent_runner.models.answer_with(answer)
    bad = {"thread": fails, "async": fails_async, "nursery": fails_in_a_nursery}[kind]
    tools = [function_tool(bad, name="bad"), function_tool(beside)]
    agent = callboard.Agent(name="a", instructions="x")
    outcomes: dict[str, callboard.Outcome] = {}

    async def run(prompt: str) -> None:
        outcomes[prompt] = await callboard.run(agent, prompt, root=agent_runner.root, tools=tools, yes=True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, "beside")
        await begun.wait()
        await run("bad")
        ended.set()
    assert outcomes["bad"].status == "done"
    assert type(error).__name__ in outcomes["bad"].output
    assert outcomes["beside"].output == "whole"


async def test_a_check_of_an_argument_that_exits_is_the_error_of_its_call(me: Actor) -> None:
    def tool(item: Checked) -> str:
        return str(item.n)

    with pytest.raises(UserCodeError):
        await function_tool(tool).run(me, {"item": {"n": 1}})


# --- docstrings, types and declarations -------------------------------------------------------------------------------


def in_numpy_style(order, what="state", *rest_of_it):  # type: ignore[no-untyped-def] # a docstring with types
    """Look an order up.

    It is quick.

    Parameters
    ----------
    order : int
        Its number,
        as printed.
    what : {'state', 'price'}, optional
        What to return.

    Returns
    -------
    str
        What was asked for.
    """


def in_sphinx_style(order, what="state"):  # type: ignore[no-untyped-def] # a docstring with types
    """Look an order up.

    It is quick.

    :param order: Its number,
        as printed.
    :type order: int
    :param str what: What to return.
    :returns: What was asked for.
    :raises KeyError: if there is none.
    """


@pytest.mark.parametrize("function", [in_numpy_style, in_sphinx_style])
def test_docstrings_of_other_styles_describe_the_parameters(function: Any) -> None:
    read = read_docstring(function.__doc__)
    assert {name: entry.text for name, entry in read.entries.items()} == {
        "order": "Its number, as printed.",
        "what": "What to return.",
    }
    assert read.entries["order"].type == "int"
    assert read.description.startswith("Look an order up.\n\nIt is quick.")
    assert "What was asked for." in read.description
    assert "as printed" not in read.description


def test_a_decorator_says_what_a_tool_is_and_leaves_the_function_as_it_is() -> None:
    @callboard.tool
    def plain(n: int) -> int:
        return n

    @callboard.tool(name="other", timeout=3, effect="read", on_error="raise")
    def named(n: int) -> int:
        return n

    assert plain(1) == named(1) == 1
    assert function_tool(plain).name == "plain"
    tool = function_tool(named)
    assert (tool.name, tool.timeout, tool.repeats) == ("other", 3, "read")
    assert function_tool(named, name="third", timeout=None).timeout is None
    assert function_tool(named, name="third").name == "third"


@pytest.mark.parametrize(
    "arguments", [{"effect": "maybe"}, {"on_error": "ignore"}, {"effect": "keyed"}], ids=lambda value: str(value)
)
def test_a_decorator_that_says_what_can_not_be_is_refused(arguments: Any) -> None:
    with pytest.raises(UsageError):
        callboard.tool(**arguments)(lambda: None)
    with pytest.raises(UsageError):
        callboard.tool(3)  # type: ignore[call-overload] # the mistake


async def test_paths_dates_and_keyword_only_parameters_arrive_as_what_they_are(me: Actor) -> None:
    def store(*, to: Path, at: datetime, sizes: list[Size], when: date | None = None) -> list[Any]:
        assert isinstance(to, Path)
        return [to / "x", at.year, [size.name for size in sizes], when]

    tool = function_tool(store)
    assert tool.spec.parameters["required"] == ["to", "at", "sizes"]
    assert tool.spec.parameters["properties"]["to"] == {"type": "string", "format": "path"}
    arguments = {"to": "/tmp", "at": "2026-11-29T12:00:00Z", "sizes": ["s", "l"], "when": "2026-11-30"}
    assert await tool.run(me, arguments) == ["/tmp/x", 2026, ["SMALL", "LARGE"], "2026-11-30"]
    with pytest.raises(ToolFailed):
        await tool.run(me, {**arguments, "to": 3})


@pytest.mark.parametrize("kind", [complex, type, Actor, "list[complex]", "dict[str, Actor]"], ids=str)
def test_the_parameter_with_a_type_that_json_lacks_is_named(kind: Any) -> None:
    def odd(fine: int, wrong: Any) -> None: ...

    odd.__annotations__ = {"fine": int, "wrong": kind}
    with pytest.raises(UsageError) as caught:
        function_tool(odd)
    assert "'wrong'" in str(caught.value)
    assert "schema_hook" not in str(caught.value)


async def test_a_result_that_json_lacks_is_an_error_that_names_its_type(me: Actor) -> None:
    def make() -> object:
        return Odd()

    with pytest.raises(TypeError) as caught:
        await function_tool(make).run(me, {})
    assert "Odd" in str(caught.value)
