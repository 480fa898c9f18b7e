"""Pydantic's types as parameters of tools, as what they return, and as results. Prints what came of it, as JSON.

It runs with our own Python; the environment that has pydantic is behind its packages.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

sys.path.append(sys.argv[1])

import msgspec
import trio
from annotated_types import Gt
from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic.dataclasses import dataclass as pydantic_dataclass

import callboard
from callboard.protocol.chat import ChatRequest
from callboard.testing import Calls, ScriptedModel, call


class Size(Enum):
    SMALL = "s"


class Item(BaseModel):
    sku: str = Field(min_length=2, description="Its number.")
    when: datetime | None = None

    @field_validator("sku")
    @classmethod
    def known(cls, sku: str) -> str:
        if sku == "XX":
            raise ValueError("there is no XX")
        return sku


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    size: Size
    at: datetime


@pydantic_dataclass
class Box:
    weight: Annotated[float, Field(gt=0)]


@dataclass
class Order:
    items: list[Item]


class Packed(msgspec.Struct):
    item: Item


class Verdict(BaseModel):
    good: bool
    items: list[Item]


async def order(
    items: list[Item],
    strict: Strict,
    box: Box,
    whole: Order,
    packed: Packed,
    count: Annotated[int, Field(gt=3, description="How many.")],
    rest: Annotated[int, Gt(2)],
    to: Path,
    *,
    note: str = Field("none", max_length=5),
    size: Size = Size.SMALL,
) -> Verdict:
    """Order.

    Parameters
    ----------
    items : list of Item
        What is ordered.
    to
        Where it goes.
    """
    assert isinstance(items[0], Item)
    assert isinstance(strict.at, datetime)
    assert isinstance(box, Box)
    assert isinstance(whole.items[0], Item)
    assert isinstance(packed.item, Item)
    assert (count, rest, to, note, size) == (4, 3, Path("/x"), "none", Size.SMALL)
    return Verdict(good=True, items=items)


GOOD: dict[str, Any] = {
    "items": [{"sku": "ab"}],
    "strict": {"size": "s", "at": "2026-01-01T00:00:00Z"},
    "box": {"weight": 1},
    "whole": {"items": [{"sku": "cd"}]},
    "packed": {"item": {"sku": "ef"}},
    "count": 4,
    "rest": 3,
    "to": "/x",
}


async def main() -> None:
    found: dict[str, Any] = {"schema": callboard.function_tool(order).spec.parameters}
    agent = callboard.Agent(name="clerk", tools=[order], result=Verdict)

    def checked(request: ChatRequest) -> Verdict:
        found["asked again"] = request.messages[-1].content
        return Verdict(good=False, items=[Item(sku="zz")])

    bad = {**GOOD, "count": 3, "note": "too long"}
    refused = {**GOOD, "items": [{"sku": "XX"}]}
    calls = Calls()
    model = ScriptedModel(
        [
            call("order", **GOOD),
            call("order", **bad),
            call("order", **refused),
            '{"good": true, "items": [{"sku": "a"}]}',
            checked,
        ]
    )
    async with callboard.Root() as root:
        outcome = await root.run(agent, "go", model=model, on_event=calls)
    model.assert_done()
    found["calls"] = [[each.result, each.error] for each in calls.all]
    found["result"] = [type(outcome.unwrap()).__name__, outcome.to_wire()["result"]]
    print(json.dumps(found))


trio.run(main)
