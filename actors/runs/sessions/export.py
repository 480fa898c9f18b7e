"""Session export: Markdown for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ....protocol.chat import AssistantTurn, ToolTurn, Turn, UserTurn, text_of
from ....protocol.session import Session, turns_of
from ...work.agent.todo import TodoList
from ...work.tools.tool import shortened

if TYPE_CHECKING:
    from .store import Stored

Form = Literal["markdown", "json"]
_RESULT = 4_000


def exported(stored: Stored, form: Form) -> str:
    """Return the whole conversation of a session, including messages that were compressed."""
    return as_json(stored) if form == "json" else as_markdown(stored)


def as_json(stored: Stored) -> str:
    """Return the session's file as JSON, with its id, alias and agent."""
    told: dict[str, Any] = {"id": stored.id, "alias": stored.alias, "agent": stored.agent}
    held: dict[str, Any] = msgspec.to_builtins(stored.session)
    told |= {key: value for key, value in held.items() if key != "other" and value not in (None, {})}
    told |= {key: value for key, value in stored.session.other.items() if key not in told}
    return json.dumps(told, indent=2, ensure_ascii=False, default=str) + "\n"


def as_markdown(stored: Stored) -> str:
    """Return the whole conversation as Markdown; long tool results are shortened."""
    session = stored.session
    lines = [f"# {session.title or stored.label}", ""]
    facts = {"session": stored.id, "agent": stored.agent, "model": session.model, "owner": session.meta.owner}
    lines += [f"- {name}: {value}" for name, value in facts.items() if value]
    for turn in all_turns(session):
        lines += ["", *_turn_lines(turn)]
    if session.todo is not None:
        lines += ["", "## Todo list", "", *_fenced(TodoList(session.todo).render())]
    return "\n".join(lines).rstrip() + "\n"


def all_turns(session: Session) -> list[Turn]:
    """Return the conversation from its beginning, without the summaries of compressed messages."""
    later = session.messages
    if session.compressed_messages and later and later[0].get("role") == "system":
        later = later[1:]
    whole = Session(messages=[*session.compressed_messages, *later])
    return turns_of(whole)


def _turn_lines(turn: Turn) -> Iterator[str]:
    if isinstance(turn, UserTurn):
        yield from ("## User", "", text_of(turn.content))
    elif isinstance(turn, AssistantTurn):
        yield "## Agent"
        if turn.text:
            yield from ("", turn.text)
        for call in turn.tool_calls:
            yield from ("", f"Calls `{call.name}`:", "", *_fenced(json.dumps(call.arguments, ensure_ascii=False)))
    elif isinstance(turn, ToolTurn):
        state = "Error of" if turn.error else "Result of"
        yield from (f"{state} `{turn.name}`:", "", *_fenced(shortened(text_of(turn.content), _RESULT)))


def _fenced(text: str) -> Sequence[str]:
    fence = "```"
    while fence in text:
        fence += "`"
    return (fence, text, fence)
