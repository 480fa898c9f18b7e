"""Kinds of activities, and states of runs, in a `RunView`.

Records of a `RunView`: activities that are under way, actors, nodes and questions.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias, final

import msgspec

from ...protocol import events as ev
from ...protocol.control.resources import ActorKind
from ...protocol.events import Event, EventData

Kind: TypeAlias = Literal["graph", "agent", "node", "chat", "tool", "mcp", "knowledge"]

CANCELLED = "cancelled"
"""The `code` of an activity that did not end by itself."""

Status: TypeAlias = Literal["running", "waiting", "done", "failed", "cancelled", "interrupted"]

KINDS_OF_ACTORS: dict[Kind, ActorKind] = {
    "graph": "graph",
    "agent": "agent",
    "node": "node",
    "tool": "tool",
    "mcp": "mcp",
}
"""Kinds of actors by the first activity that begins in them."""

ENCLOSING = frozenset({"graph", "agent", "node", "tool"})
"""Kinds of activities that enclose others."""

ENDS: dict[type, Status] = {ev.RunFinished: "done", ev.RunFailed: "failed", ev.RunCancelled: "cancelled"}
"""Final states of runs by their last event."""


def end_of(kind: type, outcome: dict[str, Any]) -> Status:
    """Return the final state of a run. A cancelled run that another process may resume is `interrupted`."""
    return "interrupted" if kind is ev.RunCancelled and outcome.get("resumable") is True else ENDS[kind]


Key: TypeAlias = tuple[str, Kind, Any]
"""Actor of an activity, its kind, and an identifier that is unique for this actor and kind."""


@final
class Activity(msgspec.Struct, eq=False):
    """Activity of an actor, from its beginning to its end.

    Attributes:
        kind: `chat` is a request to a model, including retries; `mcp` is a server that starts; `knowledge` is a
            knowledge base that is built.
        name: name of the graph, agent, node, tool, server or knowledge base; for a chat, the model's id.
        began: the event that began it; `data` is the data of that event.
        at: time of that event on the view's clock.
        above: enclosing activity: the nearest one on the path to the root when it began.
        below: enclosed activities that are under way.
        news: data of the last event about it.
        requests: for an agent, the number of requests to its model.
        tokens: input, output and cached input tokens of its requests, including embeddings and reranking.
        waits: for a chat, True while it waits for its next attempt; `tried` is the start of the last attempt.
        pieces: number of chunks in the last attempt of a chat; `first` and `last` are their times on the view's clock.
        gap: seconds between the last two chunks; for the first chunk, since the chat began.
        over: True if it has ended. Then `code` is the code of its error ("" if none), and `error` the text.
    """

    kind: Kind
    actor: str
    key: Key
    name: str
    began: Event
    data: Any
    at: float
    above: Activity | None
    first: float
    last: float
    tried: float
    below: dict[Key, Activity] = {}
    news: EventData | None = None
    requests: int = 0
    tokens: tuple[int, int, int] = (0, 0, 0)
    waits: bool = False
    pieces: int = 0
    gap: float = 0.0
    over: bool = False
    code: str = ""
    error: str | None = None
    _text: list[str] = []
    _length: int = 0

    @property
    def text(self) -> str:
        """The last part of a chat's text so far."""
        return "".join(self._text)

    def hear(self, text: str, at: float, most: int) -> None:
        """Add a chunk of a chat's answer; at least the last `most` characters of the text are retained."""
        self.gap = max(0.0, at - (self.last if self.pieces else self.at))
        if not self.pieces:
            self.first = at
        self.last = at
        self.pieces += 1
        if most and text:
            self._text.append(text)
            self._length += len(text)
            # At twice the length, so that most chunks are appended without joining the text.
            if self._length > 2 * most:
                kept = self.text[-most:]
                self._text, self._length = [kept], len(kept)

    def restart_chat(self) -> None:
        """Discard the chunks of a failed attempt."""
        self.pieces = self._length = 0
        self._text.clear()

    def use(self, taken: int, given: int = 0, cached: int = 0) -> None:
        """Add a request's tokens to this activity and to all that enclose it."""
        each: Activity | None = self
        while each is not None:
            before = each.tokens
            each.tokens = (before[0] + taken, before[1] + given, before[2] + cached)
            each = each.above

    def within(self, other: Activity) -> bool:
        """Return whether this activity is `other`, or enclosed by it."""
        each: Activity | None = self
        while each is not None and each is not other:
            each = each.above
        return each is not None


@final
class ActorView(msgspec.Struct, gc=False):
    """State of a living actor, from its events.

    Attributes:
        kind: kind of the actor; `actor` until an event shows it.
        since: time of its spawn, if that event was seen.
        talks: True if it has a conversation with a model.
        open: its activities under way, oldest first.
        turns, input_tokens, output_tokens, cost: totals of its replies; cost in USD.
        priced: True if the prices of all replies are known.
        events: number of its events, without chunks of text.
        last_event: kind of the last of these events.
    """

    kind: ActorKind = "actor"
    since: datetime | None = None
    talks: bool = False
    open: list[Activity] = []
    paused: bool = False
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    priced: bool = True
    restarts: int = 0
    events: int = 0
    last_event: str = ""

    @property
    def doing(self) -> Activity | None:
        """The innermost node, request or tool call that is under way."""
        return next((each for each in reversed(self.open) if each.kind in ("node", "chat", "tool")), None)


@final
class NodeView(msgspec.Struct):
    """Node of the run's own graph: its entries (each item of a map is one), and the state of the last one."""

    type: str
    visits: int = 0
    running: int = 0
    seconds: float = 0.0
    state: Literal["", "done", "failed", "cancelled"] = ""
    error: str = ""

    def enter(self, visit: int) -> None:
        """Count an entry: the first of this visit, or another item of it."""
        # Each item of a map counts its own visits from 1. The maximum is for a view that begins in the middle of a run.
        self.visits = max(self.visits + (visit == 1), visit)
        self.running += 1
        self.error = ""

    def leave(self, code: str, error: str | None) -> None:
        """Record the end of an entry."""
        self.running -= 1
        self.state = "cancelled" if code == CANCELLED else "failed" if code or error else "done"
        self.error = error or ""


@final
class ViewedQuestion(msgspec.Struct, frozen=True):
    """Question in its wire form, with the event that asked it, and its time on the view's clock."""

    question: dict[str, Any]
    event: Event
    at: float


@final
class ActivityChange(msgspec.Struct, frozen=True, eq=False):
    """Changes by one event.

    Attributes:
        about: activity that the event began or ended, or that it reports on.
        began: True if `about` is new.
        ended: activities that it ended, innermost first.
        question: question that it asked or closed.
    """

    about: Activity | None = None
    began: bool = False
    ended: tuple[Activity, ...] = ()
    question: ViewedQuestion | None = None


NOTHING = ActivityChange()


def find(actor: ActorView | None, key: Key) -> Activity | None:
    """Return the actor's activity with this key; None if it is not under way, or without an actor."""
    if actor is not None:
        for each in reversed(actor.open):
            if each.key == key:
                return each
    return None
