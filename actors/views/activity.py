"""What a `RunView` keeps: activities that are under way, actors, nodes and questions."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias, final

import msgspec

from ...protocol.control.things import ActorKind
from ...protocol.events import Event, EventData
from .kinds import CANCELLED, Kind

Key: TypeAlias = tuple[str, Kind, Any]
"""An activity's actor, its kind, and what tells it from others of this kind and actor."""


@final
class Activity(msgspec.Struct, eq=False):
    """Something that has begun, and what has become of it.

    Attributes:
        kind: `chat` is a request to a model, its further tries included; `mcp` a server that starts, `knowledge` a
            base that is built.
        name: of the graph, agent, node, tool, server or base; of a chat, the model's id.
        began: the event that began it; `data` is what that says.
        at: when that was, on the clock of its view.
        above: what encloses it: the activity nearest to its actor on the way up when it began.
        below: what it encloses and is under way.
        news: the last thing that was said about it.
        requests: of an agent, how many it has sent to its model.
        tokens: input, output and cached input of the requests in it, those for vectors and for an order included.
        waits: of a chat, whether its next try is waited for; `tried` is when the last one went out.
        pieces: how many pieces the last try of a chat has brought; `first` and `last` say when, on the view's clock.
        gap: seconds between the last piece and the one before it; of the first, since the chat began.
        over: whether it has ended; then `code` is that of its error ("" if it has none), `error` its text.
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
        """The end of what a chat has said so far."""
        return "".join(self._text)

    def hear(self, text: str, at: float, most: int) -> None:
        """A piece of a chat's answer came; of all its text, the last `most` characters are kept at least."""
        self.gap = max(0.0, at - (self.last if self.pieces else self.at))
        if not self.pieces:
            self.first = at
        self.last = at
        self.pieces += 1
        if most and text:
            self._text.append(text)
            self._length += len(text)
            if self._length > 2 * most:
                kept = self.text[-most:]
                self._text, self._length = [kept], len(kept)

    def hear_anew(self) -> None:
        """A chat is tried again: what was heard does not count."""
        self.pieces = self._length = 0
        self._text.clear()

    def use(self, taken: int, given: int = 0, cached: int = 0) -> None:
        """A request has used tokens: they count here and in all that encloses this."""
        each: Activity | None = self
        while each is not None:
            before = each.tokens
            each.tokens = (before[0] + taken, before[1] + given, before[2] + cached)
            each = each.above

    def within(self, other: Activity) -> bool:
        """Whether it is `other`, or enclosed by it."""
        each: Activity | None = self
        while each is not None and each is not other:
            each = each.above
        return each is not None


@final
class ActorView(msgspec.Struct, gc=False):
    """What the events of a living actor have told.

    Attributes:
        kind: what it is; `actor` as long as it has said nothing about that.
        since: when it was spawned, if that was heard.
        talks: whether it holds a conversation with a model.
        open: its activities under way, the oldest first.
        turns, input_tokens, output_tokens, cost: of the replies that it has had; USD.
        priced: whether the price of all of them is known.
        events: how many it has told; pieces of text are not counted.
        last_event: kind of the last of these.
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
        """The node, request or call that it is at."""
        return next((each for each in reversed(self.open) if each.kind in ("node", "chat", "tool")), None)


@final
class NodeView(msgspec.Struct):
    """A node of the run's own graph: its entries (each item of a map is one), and how the last of them stands."""

    type: str
    visits: int = 0
    running: int = 0
    seconds: float = 0.0
    state: Literal["", "done", "failed", "cancelled"] = ""
    error: str = ""

    def enter(self, visit: int) -> None:
        """It is entered: for the first time in this visit, or by another item of it."""
        self.visits = max(self.visits + (visit == 1), visit)
        self.running += 1
        self.error = ""

    def leave(self, code: str, error: str | None) -> None:
        """It was left."""
        self.running -= 1
        self.state = "cancelled" if code == CANCELLED else "failed" if code or error else "done"
        self.error = error or ""


@final
class Asked(msgspec.Struct, frozen=True):
    """A question, as it is on the wire, with the event that told it, and when that was on the view's clock."""

    question: dict[str, Any]
    event: Event
    at: float


@final
class Change(msgspec.Struct, frozen=True, eq=False):
    """What an event has changed.

    Attributes:
        about: the activity that began or ended with it, or that it is news of.
        began: whether `about` is new.
        ended: what ended with it, the innermost first.
        question: what was asked or is closed by it.
    """

    about: Activity | None = None
    began: bool = False
    ended: tuple[Activity, ...] = ()
    question: Asked | None = None


NOTHING = Change()


def find(actor: ActorView | None, key: Key) -> Activity | None:
    """The activity of an actor that is under way and has this key; None if there is none, or no actor."""
    if actor is not None:
        for each in reversed(actor.open):
            if each.key == key:
                return each
    return None
