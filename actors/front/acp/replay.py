"""What was said in a session before, as `session/update`s: for a client that opens it again."""

from __future__ import annotations

from collections.abc import Iterator

from ....protocol.chat import AssistantTurn, ImagePart, TextPart, ToolTurn, UserTurn, parts_of, text_of
from ....protocol.control.acp import image_block
from ....protocol.session import Session
from ...runs.sessions.export import all_turns
from .updates import Plan, Update, chunk, kind_of, tool_call, tool_call_update


def replay(session: Session) -> Iterator[Update]:
    """All of it, in order."""
    plan = Plan()
    changed = False
    ids: dict[str, str] = {}
    for index, turn in enumerate(all_turns(session)):
        if isinstance(turn, UserTurn):
            for part in parts_of(turn.content):
                if isinstance(part, TextPart):
                    yield chunk("user_message_chunk", part.text)
                elif isinstance(part, ImagePart):
                    yield {"sessionUpdate": "user_message_chunk", "content": image_block(part)}
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
