"""What runs right now: the state behind the live tree, kept up to date by events and knowing no terminal.

A lane is one thing under way: a node, an item of a map, a graph inside a graph, an agent, a tool call. It hangs below
the nearest lane whose actor is its ancestor, so the tree on the screen is the tree of actors, thinned out to what
people know by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...protocol.events import (
    TERMINAL,
    ActorWaiting,
    AgentFinished,
    AgentStarted,
    Event,
    GraphFinished,
    GraphStarted,
    KnowledgeBuilding,
    KnowledgeBuilt,
    LlmDelta,
    LlmRequest,
    LlmResponse,
    LlmRetry,
    McpServerFailed,
    McpServerStarted,
    McpServerStarting,
    NodeEntered,
    NodeExited,
    QuestionAnswered,
    QuestionAsked,
    QuestionExpired,
    RunStarted,
    ToolDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from . import paths
from .calls import call_in_short, progress_in_short
from .knowledge import building_in_short
from .text import counted, one_line, uncoloured

Key = tuple[str, str]
"""A lane's actor, and what tells it apart from others of that actor."""

_WITHIN = ("tool ", "knowledge ")
"""What belongs to the lane that its own actor has already."""


@dataclass(slots=True)
class Lane:
    """One thing under way. `since` is on the clock given to the board."""

    actor: str
    what: str
    label: str
    since: float
    above: Lane | None
    detail: str = ""
    turns: int = 0
    children: dict[Key, Lane] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """What the board files the lane under."""
        return (self.actor, self.what)

    @property
    def title(self) -> str:
        """The label, with the turns of an agent."""
        return f"{self.label}, {counted(self.turns, 'turn')}" if self.turns else self.label


class Board:
    """The lanes under way.

    Args:
        clock: seconds, only ever growing.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lanes: dict[Key, Lane] = {}
        self._of_actor: dict[str, list[Lane]] = {}
        self._tails: dict[str, str] = {}
        self.title = ""
        self.started = clock()
        self.roots: dict[Key, Lane] = {}
        self.questions: set[str] = set()

    def on_event(self, event: Event) -> None:
        """Opens, changes or closes the lane that the event is about."""
        actor = event.actor
        match event.data:
            case RunStarted(name=name):
                self.title, self.started = one_line(name, 60), self._clock()
            case GraphStarted(graph=graph, depth=depth) if depth > 0:
                self._open(actor, "graph", f"{paths.child(actor) or graph} (graph)")
            case GraphFinished(depth=depth) if depth > 0:
                self._close(actor, "graph")
            case NodeEntered(node=node, item=item, type=type_):
                name = node if item is None else f"{node}[{item}]"
                self._open(actor, f"node {name}", f"{name} ({type_})")
            case NodeExited(node=node, item=item):
                self._close(actor, f"node {node if item is None else f'{node}[{item}]'}")
            case McpServerStarting(server=server):
                self._open(actor, f"server {server}", f"MCP server {server} starts")
            case McpServerStarted(server=server) | McpServerFailed(server=server):
                self._close(actor, f"server {server}")
            case KnowledgeBuilding(what=what):
                self._note(actor, f"knowledge {what}", what, building_in_short(event.data))
            case KnowledgeBuilt(what=what):
                self._close(actor, f"knowledge {what}")
            case AgentStarted(agent=agent, child=child):
                self._open(actor, "agent", f"{child or agent} (agent)")
            case AgentFinished():
                self._close(actor, "agent")
            case ToolStarted(tool=tool, arguments=arguments):
                self._open(actor, f"tool {event.id or tool}", call_in_short(tool, arguments))
            case ToolFinished(tool=tool):
                self._close(actor, f"tool {event.id or tool}")
            case LlmRequest(model=model, attempt=attempt):
                self._tails.pop(actor, None)
                self._count_turn(actor, attempt)
                self._detail(actor, model)
            case LlmRetry(wait=wait, error=error):
                self._detail(actor, f"tries again in {wait:.1f}s -- {error}")
            case LlmDelta(text=text):
                tail = (self._tails.get(actor, "") + text)[-200:]
                self._tails[actor] = tail
                self._detail(actor, tail.rpartition("\n")[2] or tail)
            case LlmResponse():
                self._tails.pop(actor, None)
                self._detail(actor, "")
            case ToolDelta(text=text):
                self._detail(actor, uncoloured(text))
            case ToolProgress():
                self._detail(actor, progress_in_short(event.data))
            case ActorWaiting(on=on) if on:
                self._detail(actor, f"waits for {on}")
            case QuestionAsked():
                self.questions.add(event.id)
            case QuestionAnswered() | QuestionExpired():
                self.questions.discard(event.id)
            case _ if event.kind in TERMINAL:
                for lane in list(self.roots.values()):
                    self._close(lane.actor, lane.what)

    def _count_turn(self, actor: str, attempt: int) -> None:
        agent = self._lanes.get((actor, "agent"))
        if agent is not None and attempt == 1:
            agent.turns += 1

    def _open(self, actor: str, what: str, label: str) -> None:
        above = self._nearest(actor if what.startswith(_WITHIN) else actor.rpartition("/")[0])
        lane = Lane(actor, what, one_line(label, 90), self._clock(), above)
        (above.children if above else self.roots)[lane.key] = lane
        self._lanes[lane.key] = lane
        self._of_actor.setdefault(actor, []).append(lane)

    def _note(self, actor: str, what: str, label: str, detail: str) -> None:
        """Say how far something is, which begins with the first word about it."""
        if (actor, what) not in self._lanes:
            self._open(actor, what, label)
        self._lanes[actor, what].detail = one_line(detail, 80)

    def _close(self, actor: str, what: str) -> None:
        lane = self._lanes.pop((actor, what), None)
        if lane is None:
            return
        for orphan in list(lane.children.values()):
            self._close(orphan.actor, orphan.what)
        (lane.above.children if lane.above else self.roots).pop(lane.key, None)
        same_actor = self._of_actor[actor]
        same_actor.remove(lane)
        if not same_actor:
            del self._of_actor[actor]

    def _detail(self, actor: str, text: str) -> None:
        lane = self._nearest(actor)
        if lane is not None:
            lane.detail = one_line(text, 80)

    def _nearest(self, actor: str) -> Lane | None:
        """The latest lane of the actor, or of the nearest of its ancestors that has one."""
        while actor:
            if actor in self._of_actor:
                return self._of_actor[actor][-1]
            actor = actor.rpartition("/")[0]
        return None
