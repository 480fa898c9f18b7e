"""The state of a run, reduced from its events.

    view = RunView()
    for event in events:
        change = view.see(event)

A view holds what is under way and totals of what is over, so it grows with the living tree of actors and with the
names that files have (nodes, models), and not with the number of events. Of an actor that has ended nothing is kept.
One that begins in the middle of a run knows what it has seen. Where a run goes on in another process
(`run.resumed`), what was under way in the one before has come to no end; it begins again.

The kernel's own stream (events whose `run` is "") can be seen by a view as well: it has actors and activities and never
ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, TypeAlias, final

from ...protocol import events as ev
from ...protocol.events import Event, EventData
from .activity import NOTHING, Activity, ActorView, Asked, Change, Key, NodeView, find
from .kinds import CANCELLED, ENCLOSING, ENDS, KINDS_OF_ACTORS, Kind, Status, end_of

WARNINGS = 100
"""Warnings that are kept, the newest; `warned` counts all."""


_Table: TypeAlias = "dict[type[EventData], Callable[[RunView, Event, Any, ActorView | None], Change]]"

_PIECES = frozenset({ev.LlmDelta, ev.LlmReasoning})


@final
class RunView:
    """See the module.

    Args:
        text: how many characters of what each request under way says are kept.
        clock: a moment in seconds for `at`, `first` and `last` of activities and questions; by default the event's.

    Attributes:
        run: the run's id.
        seq: number of the last event that was seen.
        started, began: what its first event says, and when; None as long as that was not seen. `at`: on the clock.
        life: how many processes have played it.
        ended: when it ended.
        outcome: of a run that is over, what `-o json` prints.
        actors: those that live, by path.
        roots: the activities that nothing encloses.
        home: the graph or the agent that the run was started for, once it has begun.
        nodes: those of the run's own graph, by id.
        usage: by model; `input_tokens`, `output_tokens` and `cost` are their sums, `priced` says whether `cost` is all.
        questions: those that are open, by id, the oldest first.
        calls, failed_calls: how many tool calls have ended, and how many of these have failed.
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
        self.questions: dict[str, Asked] = {}
        self.calls = 0
        self.failed_calls = 0
        self.warnings: deque[ev.Warned] = deque(maxlen=WARNINGS)
        self.warned = 0
        self._end: Status | None = None
        self._last = 0  # number of the last beginning or end of a life
        self._text = text
        self._clock = clock

    # --- what can be asked -----------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """How the run stands; `waiting` while a question is open."""
        return self._end or ("waiting" if self.questions else "running")

    @property
    def is_agent(self) -> bool:
        """Whether the run is that of an agent, which speaks before the run's end."""
        return self.started is not None and self.started.dialect == "agent"

    def speaks(self, event: Event) -> bool:
        """Whether the event is about the run's own agent; what nodes and children say is not what the run says."""
        return self.home is not None and self.is_agent and event.actor == self.home.actor

    def calls_itself(self, event: Event) -> bool:
        """Whether a tool call's event is about a call of the run's own agent; in a graph all calls of models are."""
        if not self.is_agent:
            return bool(event.id)
        return bool(event.id) and self.home is not None and event.parent == self.home.actor

    def under_way(self, kind: Kind) -> list[Activity]:
        """All activities of a kind."""
        return [each for actor in self.actors.values() for each in actor.open if each.kind == kind]

    def nearest(self, path: str) -> Activity | None:
        """What an actor works on or in: its youngest graph, agent, node or call; else that of its nearest ancestor."""
        while path:
            actor = self.actors.get(path)
            if actor is not None:
                for each in reversed(actor.open):
                    if each.kind in ENCLOSING:
                        return each
            path = path.rpartition("/")[0]
        return None

    # --- what happens ----------------------------------------------------------------------------------------

    def see(self, event: Event) -> Change:
        """Take in the next event."""
        self.run, self.seq = event.run, event.seq
        data = event.data
        kind = type(data)
        if kind in _PIECES:
            return self._piece(event, data)
        actor = self.actors.get(event.actor)
        if actor is None and kind in self._MAKE_ACTORS and self._end is None:
            actor = self.actors[event.actor] = ActorView("run" if event.actor == f"/{event.run}" else "actor")
        if actor is not None:
            actor.events += 1
            actor.last_event = event.kind
        handler = self._HANDLERS.get(kind)
        return NOTHING if handler is None else handler(self, event, data, actor)

    # --- the run ---

    def _run_started(self, event: Event, data: ev.RunStarted, _: object) -> Change:
        change = NOTHING
        if self.started is None:
            self.began, self.at = event.ts, self._clock(event)
        elif event.seq > self._last:  # another process goes on with it: what the last one had under way is not
            change = Change(ended=self._close_all(again=True))
            self.actors[event.actor] = ActorView("run", events=1, last_event=event.kind)
            self.home = self.outcome = self.ended = self._end = None
        self.started, self._last = data, max(event.seq, self._last)
        return change

    def _run_resumed(self, _: Event, data: ev.RunResumed, __: object) -> Change:
        self.life = data.life
        return NOTHING

    def _run_ended(self, event: Event, data: Any, _: object) -> Change:
        self.outcome = data.outcome if isinstance(data.outcome, dict) else {}
        self._end, self.ended, self._last = end_of(type(data), self.outcome), event.ts, event.seq
        return Change(ended=self._close_all(again=self._end == "interrupted"))

    def _close_all(self, *, again: bool) -> tuple[Activity, ...]:
        """End what is open; nodes that another process enters `again` have not been visited."""
        for node in self.nodes.values() if again else ():
            node.visits -= node.running
        ended = [each for actor in reversed(self.actors.values()) for each in reversed(actor.open)]
        for each in ended:
            self._close(each, CANCELLED)
        self.actors.clear()
        self.questions.clear()
        return tuple(ended)

    def _warned(self, _: Event, data: ev.Warned, __: object) -> Change:
        self.warnings.append(data)
        self.warned += 1
        return NOTHING

    def _used(self, _: Event, data: ev.UsageUpdate, actor: ActorView | None) -> Change:
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

    def _asked(self, event: Event, data: ev.QuestionAsked, _: object) -> Change:
        if self._end is not None:
            return NOTHING
        question = data.question if isinstance(data.question, dict) else {}
        asked = self.questions[event.id] = Asked(question, event, self._clock(event))
        return Change(self.nearest(event.actor), question=asked)

    def _closed(self, event: Event, data: EventData, _: object) -> Change:
        return Change(self._tell(event, data), question=self.questions.pop(event.id, None))

    # --- actors ---

    def _spawned(self, event: Event, _: object, actor: ActorView | None) -> Change:
        if actor is not None:
            actor.since = event.ts
        return NOTHING

    def _paused(self, _: Event, data: EventData, actor: ActorView | None) -> Change:
        if actor is not None:
            actor.paused = type(data) is ev.ActorPaused
        return NOTHING

    def _restarted(self, _: Event, __: object, actor: ActorView | None) -> Change:
        if actor is not None:
            actor.restarts += 1
        return NOTHING

    def _waits(self, event: Event, data: ev.ActorWaiting, _: object) -> Change:
        return self._news(event, data, _) if data.on else NOTHING

    def _stopped(self, event: Event, data: ev.ActorStopped | ev.ActorFailed, actor: ActorView | None) -> Change:
        if actor is None:
            return NOTHING
        ended = tuple(reversed(actor.open))
        code = data.code if isinstance(data, ev.ActorFailed) else "" if data.reason == "normal" else CANCELLED
        for each in ended:
            self._close(each, code)
        del self.actors[event.actor]
        return Change(ended=ended) if ended else NOTHING

    # --- what begins ---

    def _graph_started(self, event: Event, data: ev.GraphStarted, actor: ActorView | None) -> Change:
        return self._begin("graph", None, data.graph, event, actor)

    def _agent_started(self, event: Event, data: ev.AgentStarted, actor: ActorView | None) -> Change:
        if actor is not None:
            actor.talks = True
        return self._begin("agent", None, data.agent, event, actor)

    def _node_entered(self, event: Event, data: ev.NodeEntered, actor: ActorView | None) -> Change:
        change = self._begin("node", (data.node, data.item), data.node, event, actor)
        if actor is not None:
            actor.talks = actor.talks or data.type == "llm"
        if change.about is not None and self._is_own(change.about):
            self.nodes.setdefault(data.node, NodeView(data.type)).enter(data.visit)
        return change

    def _llm_request(self, event: Event, data: ev.LlmRequest, actor: ActorView | None) -> Change:
        agent = find(actor, (event.actor, "agent", None))
        if agent is not None and data.attempt == 1:
            agent.requests += 1
        chat = find(actor, (event.actor, "chat", event.id))
        change = self._begin("chat", event.id, data.model, event, actor) if chat is None else Change(chat)
        if chat is not None:  # the next try, perhaps of another model
            chat.hear_anew()
            chat.name = data.model
            chat.waits, chat.tried = False, self._clock(event)
        self._tell(event, data)
        return change

    def _tool_started(self, event: Event, data: ev.ToolStarted, actor: ActorView | None) -> Change:
        return self._begin("tool", event.id or data.tool, data.tool, event, actor)

    def _server_starting(self, event: Event, data: ev.McpServerStarting, actor: ActorView | None) -> Change:
        return self._begin("mcp", data.server, data.server, event, actor)

    def _base_building(self, event: Event, data: ev.KnowledgeBuilding, actor: ActorView | None) -> Change:
        found = find(actor, (event.actor, "knowledge", data.what))
        change = self._begin("knowledge", data.what, data.what, event, actor) if found is None else Change(found)
        if change.about is not None:
            change.about.news = data
        return change

    # --- what is said about it ---

    def _piece(self, event: Event, data: Any) -> Change:
        actor = self.actors.get(event.actor)
        chat = find(actor, (event.actor, "chat", event.id))
        if chat is not None:
            chat.hear(data.text if type(data) is ev.LlmDelta else "", self._clock(event), self._text)
            if chat.above is not None:
                chat.above.news = data
        return NOTHING if chat is None else Change(chat)

    def _llm_waits(
        self, event: Event, data: ev.LlmRetry | ev.LlmWaiting | ev.LlmFallback, actor: ActorView | None
    ) -> Change:
        chat = find(actor, (event.actor, "chat", event.id))
        if chat is not None:
            chat.hear_anew()
            chat.waits = True
        self._tell(event, data)
        return Change(chat)

    def _news(self, event: Event, data: EventData, _: object) -> Change:
        return Change(self._tell(event, data))

    def _tell(self, event: Event, data: EventData) -> Activity | None:
        about = self.nearest(event.actor)
        if about is not None:
            about.news = data
        return about

    # --- what ends ---

    def _graph_finished(self, event: Event, data: ev.GraphFinished, actor: ActorView | None) -> Change:
        return self._over(actor, (event.actor, "graph", None), data.code, data.error)

    def _agent_finished(self, event: Event, data: ev.AgentFinished, actor: ActorView | None) -> Change:
        return self._over(actor, (event.actor, "agent", None), data.code, data.error)

    def _node_exited(self, event: Event, data: ev.NodeExited, actor: ActorView | None) -> Change:
        change = self._over(actor, (event.actor, "node", (data.node, data.item)), data.code, data.error)
        node = self.nodes.get(data.node)
        if node is not None and change.about is not None and self._is_own(change.about):
            node.seconds += data.seconds
        return change

    def _llm_response(self, event: Event, data: ev.LlmResponse, actor: ActorView | None) -> Change:
        if actor is not None:
            actor.turns += 1
            actor.input_tokens += data.input_tokens
            actor.output_tokens += data.output_tokens
        chat = find(actor, (event.actor, "chat", event.id))
        if chat is not None:
            chat.use(data.input_tokens, data.output_tokens, data.cached_tokens)
        self._tell(event, data)
        return self._over(actor, (event.actor, "chat", event.id))

    def _looked(self, event: Event, data: ev.LlmEmbedding | ev.LlmRerank, actor: ActorView | None) -> Change:
        about = self.nearest(event.actor)
        if actor is not None:
            actor.input_tokens += data.input_tokens
        if about is not None:
            about.use(data.input_tokens)
        return Change(about)

    def _llm_failed(self, event: Event, data: ev.LlmFailed, actor: ActorView | None) -> Change:
        return self._over(actor, (event.actor, "chat", event.id), data.code, data.error)

    def _tool_finished(self, event: Event, data: ev.ToolFinished, actor: ActorView | None) -> Change:
        self.calls += 1
        self.failed_calls += data.error is not None
        return self._over(actor, (event.actor, "tool", event.id or data.tool), data.code, data.error)

    def _server_started(self, event: Event, data: Any, actor: ActorView | None) -> Change:
        return self._over(actor, (event.actor, "mcp", data.server), error=getattr(data, "error", None))

    def _base_built(self, event: Event, data: ev.KnowledgeBuilt, actor: ActorView | None) -> Change:
        return self._over(actor, (event.actor, "knowledge", data.what))

    # --- beginnings and ends ---

    def _begin(self, kind: Kind, key: object, name: str, event: Event, actor: ActorView | None) -> Change:
        if actor is None:  # told after the run's end
            return NOTHING
        found = find(actor, (event.actor, kind, key))
        ended = () if found is None else self._over(actor, found.key, CANCELLED).ended
        if actor.kind == "actor" and not (kind == "mcp" and event.run):  # a run hears of servers that are not its own
            actor.kind = KINDS_OF_ACTORS.get(kind, "actor")
        above = self.nearest(event.actor)
        while kind == "node" and above is not None and above.kind == "node" and above.actor == event.actor:
            above = above.above  # nodes of one actor stand side by side
        at, path = self._clock(event), (event.actor, kind, key)
        begun = Activity(kind, event.actor, path, name, event, event.data, at, above, at, at, at)
        (self.roots if above is None else above.below)[path] = begun
        actor.open.append(begun)
        if self.home is None and kind == ("agent" if self.is_agent else "graph") and not begun.data.depth:
            self.home = begun
        return Change(begun, began=True, ended=ended)

    def _over(self, actor: ActorView | None, key: Key, code: str = "", error: str | None = None) -> Change:
        """End one, and what is open within it for the same actor: an error may have gone past its end."""
        found = find(actor, key)
        if actor is None or found is None:
            return NOTHING
        ended = tuple(each for each in reversed(actor.open) if each.within(found))
        for each in ended:
            self._close(each, code or ("" if each is found else CANCELLED), error)
        actor.open = [each for each in actor.open if not each.over]
        return Change(found, ended=ended)

    def _close(self, activity: Activity, code: str, error: str | None = None) -> None:
        activity.over, activity.code, activity.error = True, code, error
        (self.roots if activity.above is None else activity.above.below).pop(activity.key, None)
        if activity.kind == "node" and self._is_own(activity) and (node := self.nodes.get(activity.name)) is not None:
            node.leave(code, error)

    def _is_own(self, node: Activity) -> bool:
        """Whether a node belongs to the run's own graph and not to one below it."""
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
    """Events that only living actors tell. Others may come after an actor's end: it would never be taken out again."""

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
        **dict.fromkeys((ev.LlmEmbedding, ev.LlmRerank), _looked),
        ev.ToolFinished: _tool_finished,
        ev.McpServerStarted: _server_started,
        ev.McpServerFailed: _server_started,
        ev.KnowledgeBuilt: _base_built,
    }
