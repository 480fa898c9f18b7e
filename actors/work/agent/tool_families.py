"""Common parts of the built-in tool families (`todo__*`, `agent__*`, `user__*`).

An agent's state outside of its conversation (todo list, tasks, children, team messages) belongs to the conversation's
decider. A call of a tool over this state runs like any other, in its own actor: permission, time limit and events are
the same. But the decider computes its result. The call's actor tells the agent's actor that the call may proceed
(`FamilyCalled`), and waits for the answer (`CallAnswered`), possibly until a child ends. Each of these calls is
therefore a message in the agent's mailbox, in order.

Models are careless with types: they send a list as its JSON text, or a number in quotes. The schemas here accept that,
and the readers below convert it.
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
from ..journal.actor_journal import was_answered
from ..tools.tool import TIMEOUT, Arguments, Decided, Json, Tool, ToolSpec

Schema = dict[str, Json]

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
"""Valid names of a child agent."""


def text(description: str) -> Schema:
    """Return the schema of a text."""
    return {"type": "string", "description": description}


def number(description: str) -> Schema:
    """Return the schema of a whole number, which may be written in quotes."""
    return {"anyOf": [{"type": "integer"}, {"type": "string"}], "description": description}


def texts(description: str) -> Schema:
    """Return the schema of a list of texts, which may be sent as its JSON text."""
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
    """Return a tool of a built-in family.

    Args:
        run: its body; None for a tool whose calls the decider answers.
        decided: asks the decider, for a tool that has to do more than that.
        waits: its calls wait for users or other agents. They have no time limit, and run concurrently with later calls.
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
    """Return the decider's answer to a call executed by `me`, a child of the agent's actor.

    Raises:
        ToolFailed: the decider rejects the call.
    """
    assert me.parent is not None
    # In a recovered run the message may already be in the journal with its answer; a second one would repeat the call.
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
    raise ToolFailed("only an agent's conversation can execute this tool")


def read_texts(value: Json, name: str) -> list[str]:
    """Return a list of texts, from a list or its JSON text; numbers in it become texts.

    Raises:
        ToolFailed: the value is anything else.
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
    """Return a whole number, from a number or a text in quotes; None for anything else."""
    # bool is a subclass of int, but True is not the number 1 for a model.
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and not value.is_integer():
        return None
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def refused(why: str, **more: Any) -> dict[str, Json]:
    """Return the result of a call that was refused, with the reason."""
    return {"status": "error", "message": why, **more}


OWN_NAMES = {"user__select": "user__ask", "agent__list_running": "agent__list", "rag__query": "knowledge__search"}
"""Tool names of Loki's successor, with the names here, so that prompts written for it work.

A tool can always be called by either name. It is offered under such a name only where the agent's instructions, or a
node's `tools`, mention it. Offering each tool twice would cost tokens in every request.
"""


def renamed(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Return the tools that have another name, by that name. Permission rules accept both names."""
    there = {tool.name: tool for tool in tools}
    return {
        other: msgspec.structs.replace(there[own], spec=msgspec.structs.replace(there[own].spec, name=other), alias=own)
        for other, own in OWN_NAMES.items()
        if own in there
    }
