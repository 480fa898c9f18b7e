"""Python functions as tools."""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

import msgspec
import pytest
import trio
from support.agent_runs import Stage
from support.fake_models import Reply, Request
from support.messages import says

import callboard
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
        UsageError, match=says("work.tools.functions._parameters.2", called="variadic", parameter="*numbers…")
    ):
        function_tool(variadic)
    with pytest.raises(UsageError, match=says("work.tools.functions.function_tool")):
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
    stage: Stage, kind: str, error: BaseException
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

    stage.models.answer_with(answer)
    bad = {"thread": fails, "async": fails_async, "nursery": fails_in_a_nursery}[kind]
    tools = [function_tool(bad, name="bad"), function_tool(beside)]
    agent = callboard.Agent(name="a", instructions="x")
    outcomes: dict[str, callboard.Outcome] = {}

    async def run(prompt: str) -> None:
        outcomes[prompt] = await callboard.run(agent, prompt, root=stage.root, tools=tools, yes=True)

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
