"""Mapping of a run's events to `session/update`s, and replay of a session for a client that opens it again.

llm.delta, llm.reasoning        agent_message_chunk, agent_thought_chunk (of the root agent, not of its children)
tool.call.*                     tool_call, tool_call_update; todo tools also create a `plan`
node.entered, node.exited       tool_call of kind `other`, to show the position in a graph
usage.update                    usage_update, if the model's window is known
run.warning                     notice, if the client shows notices
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ....protocol import events as ev
from ....protocol.chat import AssistantTurn, ImagePart, TextPart, ToolTurn, UserTurn, parts_of, text_of
from ....protocol.control.acp import image_block, text_block
from ....protocol.events import Event
from ....protocol.session import Session
from ...runs.sessions.export import all_turns
from ...views.run_view import Activity, RunView

Json = Any
Update = dict[str, Json]

# The first matching prefix counts, so `fs_` follows the longer ones.
_KINDS = (
    ("fs_rm", "delete"),
    ("fs_mv", "move"),
    ("fs_write", "edit"),
    ("fs_patch", "edit"),
    ("fs_edit", "edit"),
    ("fs_grep", "search"),
    ("fs_glob", "search"),
    ("fs_", "read"),
    ("execute_", "execute"),
    ("web_search", "search"),
    ("search_", "search"),
    ("knowledge__", "search"),
    ("fetch_", "fetch"),
    ("agent__", "think"),
    ("todo__", "think"),
)


def kind_of(tool: str) -> str:
    """Return the `ToolKind` of ACP for a tool, by its name."""
    return next((kind for start, kind in _KINDS if tool.startswith(start)), "other")


class Updates:
    """Update mapper of one run.

    Args:
        window: returns a model's context window in tokens, None if unknown.
        cwd: working directory of its tools; None for the process's.
        notices: True if the client shows warnings.
        spent: cost of earlier prompts; None if unknown.

    Attributes:
        said: True if the agent's text was sent as it arrived.
    """

    def __init__(
        self,
        window: Callable[[str], int | None],
        *,
        cwd: Path | None = None,
        notices: bool = False,
        spent: float | None = 0.0,
    ) -> None:
        self.said = False
        self._window = window
        self._cwd = cwd
        self._notices = notices
        self._view = RunView()
        self._message = ""
        self._plan = TodoPlan()
        self._spent = spent
        self._used = 0
        self._size: int | None = None

    def of(self, event: Event) -> Iterator[Update]:
        """Yield the ACP `session/update`s for an event of the run."""
        about, speaks = self._view.see(event).about, self._view.speaks(event)
        match event.data:
            case ev.LlmDelta(text=text) if speaks:
                self.said = True
                yield self._chunk("agent_message_chunk", text, event)
            case ev.LlmReasoning(text=text) if speaks:
                yield self._chunk("agent_thought_chunk", text, event)
            case ev.LlmRequest() | ev.LlmRetry() | ev.LlmFallback() if speaks:
                # The next text begins a new message: chunks of a failed attempt cannot be withdrawn.
                self._message = ""
            case ev.ToolStarted(tool=tool, arguments=arguments):
                yield self._called(event.actor, tool, _decoded(arguments))
            case ev.ToolFinished() as finished:
                yield from self._finished(event.actor, finished, about)
            case ev.NodeEntered(node=node, type=type):
                yield tool_call(event.actor, f"{node} ({type})", kind="other")
            case ev.NodeExited(error=error):
                yield tool_call_update(event.actor, error or "", failed=bool(error))
            case ev.LlmResponse() as reply if speaks:
                # The last request shows the use of the window; a sum over requests would count the history again.
                self._used = reply.input_tokens + reply.output_tokens
                self._size = self._window(reply.model)
            case ev.UsageUpdate():
                yield from self._usage()
            case ev.Warned(message=message, code=code) if self._notices:
                title, _, rest = message.strip().partition("\n")
                notice = {"sessionUpdate": "notice", "severity": "warning", "title": title or code}
                yield {**notice, "description": rest} if rest else notice

    def _chunk(self, kind: str, text: str, event: Event) -> Update:
        """Return a chunk of the agent's text; all chunks of a message share its id."""
        thought = kind == "agent_thought_chunk"
        if not self._message or self._message.endswith("-thought") is not thought:
            self._message = f"{event.run}-{event.seq}" + ("-thought" if thought else "")
        return {**chunk(kind, text), "messageId": self._message}

    def _called(self, actor: str, tool: str, arguments: Json) -> Update:
        call = tool_call(actor, tool, kind=kind_of(tool), raw=arguments)
        path = arguments.get("path") if tool.startswith("fs_") and isinstance(arguments, dict) else None
        if isinstance(path, str) and path and "\0" not in path:
            call["locations"] = [{"path": str((self._cwd or Path.cwd()) / path)}]
        return call

    def _finished(self, actor: str, data: ev.ToolFinished, call: Activity | None) -> Iterator[Update]:
        yield tool_call_update(actor, data.error or data.result, failed=data.error is not None)
        if data.error is None and data.tool.startswith("todo__"):
            arguments = _decoded(call.data.arguments) if call is not None else None
            if self._plan.change(data.tool, arguments):
                yield {"sessionUpdate": "plan", "entries": self._plan.entries}

    @property
    def cost(self) -> float | None:
        """Cost of the session so far in USD; None if unknown."""
        return self._spent + self._view.cost if self._spent is not None and self._view.priced else None

    def _usage(self) -> Iterator[Update]:
        if self._size:
            update: Update = {"sessionUpdate": "usage_update", "used": self._used, "size": self._size}
            if self.cost:
                update["cost"] = {"amount": self.cost, "currency": "USD"}
            yield update


def replay(session: Session) -> Iterator[Update]:
    """Yield the stored messages of a session as ACP updates, in order."""
    plan = TodoPlan()
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
                ids[call.id] = f"{index}-{call.id}"  # ids of earlier calls may repeat
                yield tool_call(ids[call.id], call.name, kind=kind_of(call.name), raw=call.arguments)
                changed = plan.change(call.name, call.arguments) or changed
        elif isinstance(turn, ToolTurn):
            yield tool_call_update(ids.get(turn.call, turn.call), text_of(turn.content), failed=turn.error)
    if changed and plan.entries:
        yield {"sessionUpdate": "plan", "entries": plan.entries}


class TodoPlan:
    """Todo list of the agent, reconstructed from its `todo__*` calls."""

    def __init__(self) -> None:
        self._items: dict[int, tuple[str, bool]] = {}

    def change(self, tool: str, arguments: Json) -> bool:
        """Apply a call of a todo tool; return False for any other tool, and for an item that does not exist."""
        given = arguments if isinstance(arguments, dict) else {}
        if tool in ("todo__init", "todo__clear"):
            self._items = {}
        elif tool == "todo__add" and given.get("task"):
            self._items[max(self._items, default=0) + 1] = (str(given["task"]), False)
        elif tool == "todo__done":
            try:
                id = int(given.get("id", 0))
            except (TypeError, ValueError):
                return False
            if id not in self._items:
                return False
            self._items[id] = (self._items[id][0], True)
        else:
            return False
        return True

    @property
    def entries(self) -> list[Update]:
        """Entries of an ACP plan, in the order of the list; the first open one has the status `in_progress`."""
        at = next((id for id, (_, done) in self._items.items() if not done), None)
        return [
            {
                "content": text,
                "priority": "medium",
                "status": "completed" if done else "in_progress" if id == at else "pending",
            }
            for id, (text, done) in self._items.items()
        ]


def chunk(kind: str, text: str) -> Update:
    """Return an update with a message chunk."""
    return {"sessionUpdate": kind, "content": text_block(text)}


def tool_call(id: str, title: str, *, kind: str, raw: Json = None) -> Update:
    """Return an update for the start of a call."""
    update = {"sessionUpdate": "tool_call", "toolCallId": id, "title": title, "kind": kind, "status": "in_progress"}
    return update if raw is None else {**update, "rawInput": raw}


def tool_call_update(id: str, text: str, *, failed: bool) -> Update:
    """Return an update for the end of a call."""
    update: Update = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": id,
        "status": "failed" if failed else "completed",
    }
    return {**update, "content": [{"type": "content", "content": text_block(text)}]} if text else update


def _decoded(text: str) -> Json:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text  # truncated in the middle
