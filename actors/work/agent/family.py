"""What the built-in families of tools (`todo__*`, `agent__*`, `user__*`) have in common.

What an agent remembers beside its conversation (todo list, tasks, children, letters) belongs to the conversation's
decider. The call of a tool over it is played like any other, by an actor of its own: permission, time and events are
the same. But its result is decided: the actor tells the agent's that the call may go ahead (`FamilyCalled`), and waits
for the answer (`CallAnswered`), which may take until a child ends. So each of these calls is mail, in their order.

Models are careless with types: a list comes as its JSON text, a number in quotes. The schemas here admit that, and the
readers below make one value of it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from ....protocol.errors import ToolFailed
from ....protocol.messages import CallAnswered, FamilyCalled
from ....supervisors import Actor
from ..journal.scope import was_answered
from ..tools.tool import TIMEOUT, Arguments, Decided, Json, Tool, ToolSpec

Schema = dict[str, Json]

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
"""What may be the name of a child agent."""


def text(description: str) -> Schema:
    """Schema of a text."""
    return {"type": "string", "description": description}


def number(description: str) -> Schema:
    """Schema of a whole number, which may be written in quotes."""
    return {"anyOf": [{"type": "integer"}, {"type": "string"}], "description": description}


def texts(description: str) -> Schema:
    """Schema of a list of texts, which may be the JSON text of one."""
    return {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}], "description": description}


def family_tool(
    name: str,
    description: str,
    run: Callable[[Actor, Arguments], Awaitable[Json]] | None = None,
    required: Mapping[str, Schema] | None = None,
    optional: Mapping[str, Schema] | None = None,
    *,
    decided: Decided | None = None,
    waits: bool = False,
) -> Tool:
    """A tool of a built-in family.

    Args:
        run: its body; None for one whose calls the decider answers.
        decided: asks it, where more is to be done than that.
        waits: its calls wait for people or other agents: they have no time limit, and run beside those that come after.
    """
    required = required or {}
    parameters = {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}
    return Tool(
        spec=ToolSpec(name=name, description=description, parameters=parameters),
        run=run or _needs_a_conversation,
        decided=decided if run is not None or decided is not None else partial(_decided, name),
        origin="family",
        timeout=None if waits else TIMEOUT,
        ordered=not waits,
    )


async def ask_decider(me: Actor, called: FamilyCalled) -> Json:
    """What the conversation that `me` plays a call of says to it.

    Raises:
        ToolFailed: that something is wrong with the call.
    """
    assert me.parent is not None
    if not was_answered(me):
        await me.parent.ref.tell(called)
    answered = await me.receive()
    assert isinstance(answered, CallAnswered)
    if answered.failed:
        raise ToolFailed(answered.value)
    return answered.value


async def _decided(name: str, me: Actor, key: int, arguments: Arguments) -> Json:
    return await ask_decider(me, FamilyCalled(key=key, name=name, arguments=arguments))


async def _needs_a_conversation(_: Actor, __: Arguments) -> Json:
    raise ToolFailed("only an agent's conversation can play this tool")


def read_texts(value: Json, name: str) -> list[str]:
    """A list of texts, given as such or as its JSON text; numbers in it become texts.

    Raises:
        ToolFailed: it is something else.
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise ToolFailed(f"'{name}' is no list: it begins like one, but is not JSON ({error})") from None
    if not isinstance(value, list) or not all(isinstance(item, str | int | float) for item in value):
        raise ToolFailed(f'\'{name}\' has to be a list of texts, such as ["one", "two"]')
    return [str(item) for item in value]


def whole_number(value: Json) -> int | None:
    """A whole number, given as such or in quotes; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and not value.is_integer():
        return None
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def refused(why: str, **more: Any) -> dict[str, Json]:
    """The result of a call that could not do what it was asked for."""
    return {"status": "error", "message": why, **more}


OWN_NAMES = {"user__select": "user__ask", "agent__list_running": "agent__list", "rag__query": "knowledge__search"}
"""Names that Loki's successor has for tools of the families, and ours, so that prompts written for it work.

A tool is always found by them. It is offered to the model by such a name too where the agent's instructions, or a
node's `tools`, say it: a tool twice in every request is paid for in every request.
"""


def renamed(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Those of the tools that have another name, by it. Permissions know them by either."""
    there = {tool.name: tool for tool in tools}
    return {
        other: msgspec.structs.replace(there[own], spec=msgspec.structs.replace(there[own].spec, name=other), alias=own)
        for other, own in OWN_NAMES.items()
        if own in there
    }
