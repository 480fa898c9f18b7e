"""What was said in a session before, as `session/update`s: for a client that opens it again."""

from __future__ import annotations

from collections.abc import Iterator

from ....protocol.chat import AssistantTurn, ToolTurn, UserTurn, text_of
from ....protocol.session import Session
from ...sessions.export import all_turns
from .updates import Plan, Update, chunk, kind_of, tool_call, tool_call_update


def replay(session: Session) -> Iterator[Update]:
    """All of it, in order."""
    plan = Plan()
    changed = False
    ids: dict[str, str] = {}
    for index, turn in enumerate(all_turns(session)):
        if isinstance(turn, UserTurn):
            yield chunk("user_message_chunk", text_of(turn.content))
        elif isinstance(turn, AssistantTurn):
            if turn.text:
                yield chunk("agent_message_chunk", turn.text)
            for call in turn.tool_calls:
                ids[call.id] = f"{index}-{call.id}"  # ids of old calls may come again
                yield tool_call(ids[call.id], call.name, kind=kind_of(call.name), raw=call.arguments)
                changed = plan.change(call.name, call.arguments) or changed
        elif isinstance(turn, ToolTurn):
            yield tool_call_update(ids.get(turn.call, turn.call), text_of(turn.content), failed=turn.error)
    if changed and plan.entries:
        yield {"sessionUpdate": "plan", "entries": plan.entries}
