"""A run's events as `session/update`s.

llm.delta, llm.reasoning        agent_message_chunk, agent_thought_chunk (of the agent itself, not of its children)
tool.call.*                     tool_call, tool_call_update; the todo family makes a `plan` as well
node.entered, node.exited       tool_call of kind `other`, so that one sees where a graph is
usage.update                    usage_update, where the window of the model is known
run.warning                     notice, if the client shows those
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ....protocol.control.acp import text_block

Json = Any
Update = dict[str, Json]

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
    """What ACP calls this sort of tool."""
    return next((kind for start, kind in _KINDS if tool.startswith(start)), "other")


class Updates:
    """Of one run.

    Args:
        window: tokens that a model takes, None if nobody knows.
        cwd: where its tools work; None for our directory.
        notices: whether the client shows warnings beside the conversation.
        spent: what the prompts before it have cost.

    Attributes:
        said: whether the agent's text was told as it came.
    """

    def __init__(
        self, window: Callable[[str], int | None], *, cwd: Path | None = None, notices: bool = False, spent: float = 0.0
    ) -> None:
        self.said = False
        self._window = window
        self._cwd = cwd
        self._notices = notices
        self._message = ""
        self._plan = Plan()
        self._costs: dict[str, float] = {}  # of the run, by model
        self._spent = spent
        self._used = 0
        self._size: int | None = None
        self._arguments: dict[str, tuple[str, str]] = {}

    def of(self, event: Mapping[str, Json]) -> Iterator[Update]:
        """What the client is told of an event (in its wire form)."""
        kind, actor = event["kind"], str(event.get("actor") or "")
        data: Mapping[str, Json] = event.get("data") or {}
        main = actor.count("/") == 2
        if kind == "llm.delta" and main:
            self.said = True
            yield self._chunk("agent_message_chunk", event)
        elif kind == "llm.reasoning" and main:
            yield self._chunk("agent_thought_chunk", event)
        elif kind in ("llm.request", "llm.retry") and main:
            self._message = ""
        elif kind == "tool.call.started":
            yield self._started(actor, data)
        elif kind == "tool.call.finished":
            yield from self._finished(actor, data)
        elif kind == "node.entered":
            title = f"{data['node']} ({data['type']})"
            yield tool_call(actor, title, kind="other")
        elif kind == "node.exited":
            yield tool_call_update(actor, str(data.get("error") or ""), failed=bool(data.get("error")))
        elif kind == "llm.response" and main:
            self._used = int(data.get("input_tokens") or 0) + int(data.get("output_tokens") or 0)
            self._size = self._window(str(data.get("model") or ""))
        elif kind == "usage.update":
            self._costs[str(data["model"])] = float(data.get("cost") or 0.0)
            yield from self._usage()
        elif kind == "run.warning" and self._notices:
            title, _, rest = str(data["message"]).strip().partition("\n")
            notice = {"sessionUpdate": "notice", "severity": "warning", "title": title or str(data["code"])}
            yield {**notice, "description": rest} if rest else notice

    def _chunk(self, kind: str, event: Mapping[str, Json]) -> Update:
        """A piece of what the agent says; all pieces of a message have its id."""
        thought = kind == "agent_thought_chunk"
        if not self._message or self._message.endswith("-thought") is not thought:
            self._message = f"{event['run']}-{event['seq']}" + ("-thought" if thought else "")
        return {**chunk(kind, str(event["data"]["text"])), "messageId": self._message}

    def _started(self, actor: str, data: Mapping[str, Json]) -> Update:
        tool, arguments = str(data["tool"]), str(data.get("arguments") or "")
        self._arguments[actor] = (tool, arguments)
        raw = _decoded(arguments)
        call = tool_call(actor, tool, kind=kind_of(tool), raw=raw)
        path = raw.get("path") if tool.startswith("fs_") and isinstance(raw, dict) else None
        if isinstance(path, str) and path and "\0" not in path:
            call["locations"] = [{"path": str((self._cwd or Path.cwd()) / path)}]
        return call

    def _finished(self, actor: str, data: Mapping[str, Json]) -> Iterator[Update]:
        tool, arguments = self._arguments.pop(actor, (str(data["tool"]), ""))
        error = data.get("error")
        yield tool_call_update(actor, str(error or data.get("result") or ""), failed=error is not None)
        if error is None and tool.startswith("todo__"):
            changed = self._plan.change(tool, _decoded(arguments))
            if changed:
                yield {"sessionUpdate": "plan", "entries": self._plan.entries}

    @property
    def cost(self) -> float:
        """What the session has cost so far, in USD."""
        return self._spent + sum(self._costs.values())

    def _usage(self) -> Iterator[Update]:
        if self._size:
            update: Update = {"sessionUpdate": "usage_update", "used": self._used, "size": self._size}
            if self.cost:
                update["cost"] = {"amount": self.cost, "currency": "USD"}
            yield update


class Plan:
    """The todo list of the agent, from the calls that change it."""

    def __init__(self) -> None:
        self._items: dict[int, tuple[str, bool]] = {}

    def change(self, tool: str, arguments: Json) -> bool:
        """A call was played; whether it has changed the list."""
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
        """The items in ACP's words; the first open one is what the agent is at."""
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
    """A piece of what somebody says."""
    return {"sessionUpdate": kind, "content": text_block(text)}


def tool_call(id: str, title: str, *, kind: str, raw: Json = None, status: str = "in_progress") -> Update:
    """A call begins."""
    update: Update = {"sessionUpdate": "tool_call", "toolCallId": id, "title": title, "kind": kind, "status": status}
    return update if raw is None else {**update, "rawInput": raw}


def tool_call_update(id: str, text: str, *, failed: bool) -> Update:
    """A call has ended."""
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
        return text  # its middle was left out
