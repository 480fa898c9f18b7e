"""State of a run, reduced from its events.

    view = RunView()
    for event in events:
        change = view.see(event)

A view has the activities under way (graphs, agents, nodes, requests, tool calls), actors, nodes, open questions, and
totals of completed activities. So it grows with the living actors and with the names in files (nodes, models), and not
with the number of events. Nothing is retained of an actor that has ended.

A view may begin in the middle of a run; it then has the state of the events seen. If another process resumes the run
(`run.resumed`), activities of the former process have no end event. The view cancels them, and they begin again.

A view also accepts the kernel's own stream (events whose `run` is ""), which has actors and activities and never ends.

The records of a view (`Activity`, `ActorView`, `NodeView`) precede it in this module.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, Literal, TypeAlias, final

import msgspec

from ...protocol import events as ev
from ...protocol.control.resources import ActorKind
from ...protocol.events import Event, EventData
from ...protocol.kernel.questions import NETWORK_ACTOR

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
        """Retained end of a chat's text so far; see `hear`."""
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


WARNINGS = 100
"""Maximum of retained warnings, the newest; `warned` counts all."""


_Table: TypeAlias = "dict[type[EventData], Callable[[RunView, Event, Any, ActorView | None], ActivityChange]]"

_PIECES = frozenset({ev.LlmDelta, ev.LlmReasoning})


@final
class RunView:
    """State of a run; see the module.

    Args:
        text: number of characters at the end of each unfinished reply that are retained; 0 for none.
        clock: returns a time in seconds for `at`, `first` and `last` of activities and questions; by default that of
            the event.

    Attributes:
        run: id of the run.
        seq: number of the last event seen.
        started, began: data and time of its first event; None until it is seen. `at` is that time on the clock.
        life: number of processes that have executed it.
        ended: time of its end.
        outcome: for a run that is over, the output of `-o json`.
        actors: living actors, by path.
        roots: activities without an enclosing one.
        home: the graph or agent that the run was started for, once it has begun.
        nodes: nodes of the run's own graph, by id.
        usage: usage by model. `input_tokens`, `output_tokens` and `cost` are the sums; `priced` is True if `cost` is
            complete.
        questions: open questions by id, oldest first.
        calls, failed_calls: number of tool calls that have ended, and of failed ones.
        warnings, warned: see `WARNINGS`.
    """

    def __init__(self, *, text: int = 0, clock: Callable[[Event], float] = lambda event: event.ts.timestamp()) -> None:
        self.run = ""
        self.seq = 0
        self.started: ev.RunStarted | None = None
        self.began: datetime | None = None
        self.at = 0.0
        self.life = 1
        self.ended: datetime | None = None
        self.outcome: dict[str, Any] | None = None
        self.actors: dict[str, ActorView] = {}
        self.roots: dict[Key, Activity] = {}
        self.home: Activity | None = None
        self.nodes: dict[str, NodeView] = {}
        self.usage: dict[str, ev.UsageUpdate] = {}
        self.input_tokens = 0
        self.output_tokens = 0
        self.cost = 0.0
        self.priced = True
        self.questions: dict[str, ViewedQuestion] = {}
        self.calls = 0
        self.failed_calls = 0
        self.warnings: deque[ev.Warned] = deque(maxlen=WARNINGS)
        self.warned = 0
        self._end: Status | None = None
        self._last = 0  # number of the last event that began or ended an incarnation
        self._text = text
        self._clock = clock

    # --- queries ---------------------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """State of the run; `waiting` while a question is open."""
        return self._end or ("waiting" if self.questions else "running")

    @property
    def is_agent(self) -> bool:
        """True if the run's target is an agent, whose text appears before the run's end."""
        return self.started is not None and self.started.dialect == "agent"

    def speaks(self, event: Event) -> bool:
        """Return whether the event is of the run's own agent. Texts of nodes and children are not output of the run."""
        return self.home is not None and self.is_agent and event.actor == self.home.actor

    def calls_itself(self, event: Event) -> bool:
        """Return whether a tool call's event is a call by the run's own agent; in a graph, by any model."""
        if not self.is_agent:
            return bool(event.id)
        return bool(event.id) and self.home is not None and event.parent == self.home.actor

    def under_way(self, kind: Kind) -> list[Activity]:
        """Return the activities of this kind that have begun and not ended."""
        return [each for actor in self.actors.values() for each in actor.open if each.kind == kind]

    def nearest(self, path: str) -> Activity | None:
        """Return the innermost graph, agent, node or call of an actor, else of its nearest ancestor."""
        while path:
            actor = self.actors.get(path)
            if actor is not None:
                for each in reversed(actor.open):
                    if each.kind in ENCLOSING:
                        return each
            path = path.rpartition("/")[0]
        return None

    # --- events ----------------------------------------------------------------------------------------------

    def see(self, event: Event) -> ActivityChange:
        """Update the state with the next event; return the changes."""
        self.run, self.seq = event.run, event.seq
        data = event.data
        kind = type(data)
        if kind in _PIECES:
            return self._piece(event, data)
        actor = self.actors.get(event.actor)
        # After the run's end no actor is created: its end would never be reported.
        if actor is None and kind in self._MAKE_ACTORS and self._end is None:
            actor = self.actors[event.actor] = ActorView("run" if event.actor == f"/{event.run}" else "actor")
        if actor is not None:
            actor.events += 1
            actor.last_event = event.kind
        handler = self._HANDLERS.get(kind)
        return NOTHING if handler is None else handler(self, event, data, actor)

    # --- the run ---

    def _run_started(self, event: Event, data: ev.RunStarted, _: object) -> ActivityChange:
        change = NOTHING
        if self.started is None:
            self.began, self.at = event.ts, self._clock(event)
        elif event.seq > self._last:  # Another process resumed the run: activities of the former one are lost.
            change = ActivityChange(ended=self._close_all(again=True))
            self.actors[event.actor] = ActorView("run", events=1, last_event=event.kind)
            self.home = self.outcome = self.ended = self._end = None
        self.started, self._last = data, max(event.seq, self._last)
        return change

    def _run_resumed(self, _: Event, data: ev.RunResumed, __: object) -> ActivityChange:
        self.life = data.life
        return NOTHING

    def _run_ended(self, event: Event, data: Any, _: object) -> ActivityChange:
        self.outcome = data.outcome if isinstance(data.outcome, dict) else {}
        self._end, self.ended, self._last = end_of(type(data), self.outcome), event.ts, event.seq
        return ActivityChange(ended=self._close_all(again=self._end == "interrupted"))

    def _close_all(self, *, again: bool) -> tuple[Activity, ...]:
        """End all activities. With `again`, running nodes do not count as visited: another process enters them."""
        for node in self.nodes.values() if again else ():
            node.visits -= node.running
        ended = [each for actor in reversed(self.actors.values()) for each in reversed(actor.open)]
        for each in ended:
            self._close(each, CANCELLED)
        self.actors.clear()
        self.questions.clear()
        return tuple(ended)

    def _warned(self, _: Event, data: ev.Warned, __: object) -> ActivityChange:
        self.warnings.append(data)
        self.warned += 1
        return NOTHING

    def _used(self, _: Event, data: ev.UsageUpdate, actor: ActorView | None) -> ActivityChange:
        # The event has the totals of its model, so only the difference is new.
        before = self.usage.get(data.model)
        self.usage[data.model] = data
        self.input_tokens += data.input_tokens - (before.input_tokens if before else 0)
        self.output_tokens += data.output_tokens - (before.output_tokens if before else 0)
        more = data.cost - (before.cost if before else 0.0)
        self.cost += more
        self.priced = self.priced and data.priced
        if actor is not None:
            actor.cost += more
            actor.priced = actor.priced and data.priced
        return NOTHING

    def _asked(self, event: Event, data: ev.QuestionAsked, _: object) -> ActivityChange:
        if self._end is not None:
            return NOTHING
        question = data.question if isinstance(data.question, dict) else {}
        asked = self.questions[event.id] = ViewedQuestion(question, event, self._clock(event))
        return ActivityChange(self.nearest(event.actor), question=asked)

    def _closed(self, event: Event, data: EventData, _: object) -> ActivityChange:
        # Before the question is removed, because `_mark_held` looks it up.
        self._mark_held(event, data)
        return ActivityChange(self._record(event, data), question=self.questions.pop(event.id, None))

    def _mark_held(self, event: Event, data: EventData) -> None:
        """Report a question of the sandbox to the tool calls whose processes caused it."""
        asked = self.questions.get(event.id)
        if asked is not None and event.actor.rpartition("/")[2] == NETWORK_ACTOR:
            for each in self.under_way("tool"):
                if each.name == asked.question.get("permission"):
                    each.news = data

    # --- actors ---

    def _spawned(self, event: Event, _: object, actor: ActorView | None) -> ActivityChange:
        if actor is not None:
            actor.since = event.ts
        return NOTHING

    def _paused(self, _: Event, data: EventData, actor: ActorView | None) -> ActivityChange:
        if actor is not None:
            actor.paused = type(data) is ev.ActorPaused
        return NOTHING

    def _restarted(self, _: Event, __: object, actor: ActorView | None) -> ActivityChange:
        if actor is not None:
            actor.restarts += 1
        return NOTHING

    def _waits(self, event: Event, data: ev.ActorWaiting, _: object) -> ActivityChange:
        self._mark_held(event, data)
        return self._news(event, data, _) if data.on else NOTHING

    def _stopped(self, event: Event, data: ev.ActorStopped | ev.ActorFailed, actor: ActorView | None) -> ActivityChange:
        if actor is None:
            return NOTHING
        ended = tuple(reversed(actor.open))
        code = data.code if isinstance(data, ev.ActorFailed) else "" if data.reason == "normal" else CANCELLED
        for each in ended:
            self._close(each, code)
        del self.actors[event.actor]
        return ActivityChange(ended=ended) if ended else NOTHING

    # --- beginnings ---

    def _graph_started(self, event: Event, data: ev.GraphStarted, actor: ActorView | None) -> ActivityChange:
        return self._begin("graph", None, data.graph, event, actor)

    def _agent_started(self, event: Event, data: ev.AgentStarted, actor: ActorView | None) -> ActivityChange:
        if actor is not None:
            actor.talks = True
        return self._begin("agent", None, data.agent, event, actor)

    def _node_entered(self, event: Event, data: ev.NodeEntered, actor: ActorView | None) -> ActivityChange:
        change = self._begin("node", (data.node, data.item), data.node, event, actor)
        if actor is not None:
            actor.talks = actor.talks or data.type == "llm"
        if change.about is not None and self._is_own(change.about):
            self.nodes.setdefault(data.node, NodeView(data.type)).enter(data.visit)
        return change

    def _llm_request(self, event: Event, data: ev.LlmRequest, actor: ActorView | None) -> ActivityChange:
        agent = find(actor, (event.actor, "agent", None))
        if agent is not None and data.attempt == 1:
            agent.requests += 1
        chat = find(actor, (event.actor, "chat", event.id))
        change = self._begin("chat", event.id, data.model, event, actor) if chat is None else ActivityChange(chat)
        if chat is not None:  # the next attempt, perhaps with another model
            chat.restart_chat()
            chat.name = data.model
            chat.waits, chat.tried = False, self._clock(event)
        self._record(event, data)
        return change

    def _tool_started(self, event: Event, data: ev.ToolStarted, actor: ActorView | None) -> ActivityChange:
        return self._begin("tool", event.id or data.tool, data.tool, event, actor)

    def _server_starting(self, event: Event, data: ev.McpServerStarting, actor: ActorView | None) -> ActivityChange:
        return self._begin("mcp", data.server, data.server, event, actor)

    def _base_building(self, event: Event, data: ev.KnowledgeBuilding, actor: ActorView | None) -> ActivityChange:
        found = find(actor, (event.actor, "knowledge", data.what))
        change = (
            self._begin("knowledge", data.what, data.what, event, actor) if found is None else ActivityChange(found)
        )
        if change.about is not None:
            change.about.news = data
        return change

    # --- progress ---

    def _piece(self, event: Event, data: Any) -> ActivityChange:
        actor = self.actors.get(event.actor)
        chat = find(actor, (event.actor, "chat", event.id))
        if chat is not None:
            chat.hear(data.text if type(data) is ev.LlmDelta else "", self._clock(event), self._text)
            if chat.above is not None:
                chat.above.news = data
        return NOTHING if chat is None else ActivityChange(chat)

    def _llm_waits(
        self, event: Event, data: ev.LlmRetry | ev.LlmWaiting | ev.LlmFallback, actor: ActorView | None
    ) -> ActivityChange:
        chat = find(actor, (event.actor, "chat", event.id))
        if chat is not None:
            chat.restart_chat()
            chat.waits = True
        self._record(event, data)
        return ActivityChange(chat)

    def _news(self, event: Event, data: EventData, _: object) -> ActivityChange:
        return ActivityChange(self._record(event, data))

    def _record(self, event: Event, data: EventData) -> Activity | None:
        about = self.nearest(event.actor)
        if about is not None:
            about.news = data
        return about

    # --- ends ---

    def _graph_finished(self, event: Event, data: ev.GraphFinished, actor: ActorView | None) -> ActivityChange:
        return self._over(actor, (event.actor, "graph", None), data.code, data.error)

    def _agent_finished(self, event: Event, data: ev.AgentFinished, actor: ActorView | None) -> ActivityChange:
        return self._over(actor, (event.actor, "agent", None), data.code, data.error)

    def _node_exited(self, event: Event, data: ev.NodeExited, actor: ActorView | None) -> ActivityChange:
        change = self._over(actor, (event.actor, "node", (data.node, data.item)), data.code, data.error)
        node = self.nodes.get(data.node)
        if node is not None and change.about is not None and self._is_own(change.about):
            node.seconds += data.seconds
        return change

    def _llm_response(self, event: Event, data: ev.LlmResponse, actor: ActorView | None) -> ActivityChange:
        if actor is not None:
            actor.turns += 1
            actor.input_tokens += data.input_tokens
            actor.output_tokens += data.output_tokens
        chat = find(actor, (event.actor, "chat", event.id))
        if chat is not None:
            chat.use(data.input_tokens, data.output_tokens, data.cached_tokens)
        self._record(event, data)
        return self._over(actor, (event.actor, "chat", event.id))

    def _model_used(
        self, event: Event, data: ev.LlmEmbedding | ev.LlmRerank, actor: ActorView | None
    ) -> ActivityChange:
        about = self.nearest(event.actor)
        if actor is not None:
            actor.input_tokens += data.input_tokens
        if about is not None:
            about.use(data.input_tokens)
        return ActivityChange(about)

    def _llm_failed(self, event: Event, data: ev.LlmFailed, actor: ActorView | None) -> ActivityChange:
        return self._over(actor, (event.actor, "chat", event.id), data.code, data.error)

    def _tool_finished(self, event: Event, data: ev.ToolFinished, actor: ActorView | None) -> ActivityChange:
        self.calls += 1
        self.failed_calls += data.error is not None
        return self._over(actor, (event.actor, "tool", event.id or data.tool), data.code, data.error)

    def _server_started(self, event: Event, data: Any, actor: ActorView | None) -> ActivityChange:
        return self._over(actor, (event.actor, "mcp", data.server), error=getattr(data, "error", None))

    def _base_built(self, event: Event, data: ev.KnowledgeBuilt, actor: ActorView | None) -> ActivityChange:
        return self._over(actor, (event.actor, "knowledge", data.what))

    # --- shared by beginnings and ends ---

    def _begin(self, kind: Kind, key: object, name: str, event: Event, actor: ActorView | None) -> ActivityChange:
        if actor is None:  # an event after the run's end
            return NOTHING
        found = find(actor, (event.actor, kind, key))
        ended = () if found is None else self._over(actor, found.key, CANCELLED).ended
        # A run also gets start events of MCP servers that it does not own; they do not make an actor a server.
        if actor.kind == "actor" and not (kind == "mcp" and event.run):
            actor.kind = KINDS_OF_ACTORS.get(kind, "actor")
        above = self.nearest(event.actor)
        while kind == "node" and above is not None and above.kind == "node" and above.actor == event.actor:
            above = above.above  # Nodes of one actor are siblings.
        at, path = self._clock(event), (event.actor, kind, key)
        begun = Activity(kind, event.actor, path, name, event, event.data, at, above, at, at, at)
        (self.roots if above is None else above.below)[path] = begun
        actor.open.append(begun)
        if self.home is None and kind == ("agent" if self.is_agent else "graph") and not begun.data.depth:
            self.home = begun
        return ActivityChange(begun, began=True, ended=ended)

    def _over(self, actor: ActorView | None, key: Key, code: str = "", error: str | None = None) -> ActivityChange:
        """End an activity, and the actor's activities within it: an error may have skipped their end events."""
        found = find(actor, key)
        if actor is None or found is None:
            return NOTHING
        ended = tuple(each for each in reversed(actor.open) if each.within(found))
        for each in ended:
            self._close(each, code or ("" if each is found else CANCELLED), error)
        actor.open = [each for each in actor.open if not each.over]
        return ActivityChange(found, ended=ended)

    def _close(self, activity: Activity, code: str, error: str | None = None) -> None:
        activity.over, activity.code, activity.error = True, code, error
        (self.roots if activity.above is None else activity.above.below).pop(activity.key, None)
        if activity.kind == "node" and self._is_own(activity) and (node := self.nodes.get(activity.name)) is not None:
            node.leave(code, error)

    def _is_own(self, node: Activity) -> bool:
        """Return whether a node belongs to the run's own graph and not to one below it."""
        each = node.above
        while each is not None and each.kind != "graph":
            each = each.above
        return each is self.home if each is not None else self.home is None or self.home.kind != "graph"

    _BEGIN: ClassVar[_Table] = {
        ev.GraphStarted: _graph_started,
        ev.AgentStarted: _agent_started,
        ev.NodeEntered: _node_entered,
        ev.LlmRequest: _llm_request,
        ev.ToolStarted: _tool_started,
        ev.McpServerStarting: _server_starting,
        ev.KnowledgeBuilding: _base_building,
    }

    _MAKE_ACTORS: ClassVar = frozenset({*_BEGIN, ev.RunStarted, ev.ActorSpawned, ev.ActorRestarted})
    """Events that only living actors emit. Others may follow an actor's end, and its record would then never be
    removed.
    """

    _HANDLERS: ClassVar[_Table] = {
        **_BEGIN,
        **dict.fromkeys(ENDS, _run_ended),
        ev.RunStarted: _run_started,
        ev.RunResumed: _run_resumed,
        ev.Warned: _warned,
        ev.UsageUpdate: _used,
        ev.QuestionAsked: _asked,
        ev.QuestionAnswered: _closed,
        ev.QuestionExpired: _closed,
        ev.ActorSpawned: _spawned,
        ev.ActorPaused: _paused,
        ev.ActorResumed: _paused,
        ev.ActorRestarted: _restarted,
        ev.ActorWaiting: _waits,
        ev.ActorStopped: _stopped,
        ev.ActorFailed: _stopped,
        **dict.fromkeys((ev.LlmRetry, ev.LlmWaiting, ev.LlmFallback), _llm_waits),
        ev.ToolDelta: _news,
        ev.ToolProgress: _news,
        ev.GraphFinished: _graph_finished,
        ev.AgentFinished: _agent_finished,
        ev.NodeExited: _node_exited,
        ev.LlmResponse: _llm_response,
        ev.LlmFailed: _llm_failed,
        **dict.fromkeys((ev.LlmEmbedding, ev.LlmRerank), _model_used),
        ev.ToolFinished: _tool_finished,
        ev.McpServerStarted: _server_started,
        ev.McpServerFailed: _server_started,
        ev.KnowledgeBuilt: _base_built,
    }
