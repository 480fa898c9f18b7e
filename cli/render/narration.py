"""What happened, in words: one or a few lines per event, for people.

    ▸ graph: triage (start: read)
    ▸ 12:00:01 read (script) start
    ▸ 12:00:01 read done in 0.04s -> judge
    ▸ 12:00:02 judge (llm) FAILED in 310ms -- the model's answer did not fit

A graph inside a graph and the items of a map are told only with `-v`; so is the table of times. Agents, their tools
and model calls have a teller of their own, `troupe`. Values of the state never appear here: events do not carry them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import singledispatchmethod

from ...protocol.events import (
    ActorRestarted,
    ActorStuck,
    Event,
    EventData,
    GraphFinished,
    GraphStarted,
    KnowledgeBuilding,
    KnowledgeBuilt,
    KnowledgeRetrieved,
    NodeEntered,
    NodeExited,
    NodeSkipped,
    QuestionAnswered,
    QuestionAsked,
    QuestionExpired,
    RunStarted,
    StepFinished,
    StepStarted,
    ToolFinished,
    UsageUpdate,
    Warned,
)
from . import paths
from .knowledge import KnowledgeTeller
from .lines import Line, Pen, duration
from .text import safe
from .troupe import TroupeTeller

__all__ = ["Line", "Narrator"]


class Narrator:
    """Turns a run's events into lines. Keeps only what a later line needs: node types, nesting, usage.

    Args:
        verbose: tell about model calls, the output of tools and nested graphs too.
        prompting: a person is asked on the same screen, where the prompt shows the question; only questions
            that others answer are told, once they are answered.
        by_hand: a person makes the one call there is, and is told otherwise what came of it.
        live: what runs at the moment is shown elsewhere.
        mark: what a line begins with; `>` for terminals without the real one.
        whole: nothing is cut, for readers that are no terminal.
    """

    def __init__(
        self,
        *,
        verbose: bool = False,
        prompting: bool = False,
        by_hand: bool = False,
        live: bool = False,
        mark: str = "▸",
        whole: bool = False,
    ) -> None:
        self._verbose = verbose
        self._prompting = prompting
        self._by_hand = by_hand
        self._held: dict[str, Line] = {}
        self._secret: set[str] = set()
        self._pen = Pen(mark, whole=whole)
        self._troupe = TroupeTeller(
            self._pen, verbose=verbose, told=self._told, spent=self._spent, of_node=self._of_node
        )
        self._knowledge = KnowledgeTeller(self._pen, live=live)
        self._types: dict[str, str] = {}
        self._live = live
        self._graph = ""  # the actor of the graph that was started
        self._nested: set[str] = set()
        self._wide: set[tuple[str, int]] = set()
        self._usage: dict[str, UsageUpdate] = {}

    def lines(self, event: Event) -> list[Line]:
        """What to say about the event; often nothing."""
        if self._by_hand and _is_outcome(event.data):
            return []
        return [Line(safe(line.text), line.style) for line in self._tell(event.data, event)]

    def note(self, text: str) -> Line:
        """A line about something that is no event."""
        return self._pen.line(safe(text))

    @singledispatchmethod
    def _tell(self, data: EventData, event: Event) -> Iterator[Line]:
        """A kind that is the troupe's matter, or that nothing is said about."""
        return self._troupe.tell(data, event)

    # --- the run and its graphs -------------------------------------------------------------------------

    @_tell.register
    def _run_started(self, data: RunStarted, event: Event) -> Iterator[Line]:
        if self._verbose:
            model = f", model {data.model}" if data.model else ""
            yield self._pen.line(f"run {event.run} of {data.name} ({data.dialect}{model})")

    @_tell.register
    def _graph_started(self, data: GraphStarted, event: Event) -> Iterator[Line]:
        if data.depth > 0:
            child = paths.child(event.actor)
            if child and not self.nested(event.actor):
                yield self._pen.timed(event, f"{child} ({data.graph}, a graph) start")
            self._nested.add(event.actor)
        else:
            self._graph = event.actor
        if self._told(event):
            yield self._pen.line(f"graph: {data.graph} (start: {data.start})", style="title")

    @_tell.register
    def _graph_finished(self, data: GraphFinished, event: Event) -> Iterator[Line]:
        child = paths.child(event.actor) if data.depth else ""
        if child and not self.nested(event.actor.rpartition("/")[0]):
            yield self._pen.timed(event, f"{child} {_how(data)} {duration(data.seconds)}")
            if not self._verbose:
                return
        if not self._told(event):
            return
        if self._verbose and data.timing:
            width = max(len(node) for node in data.timing)
            for node, (visits, total, longest) in data.timing.items():
                times = f"{total:>8.2f}s in all  {longest:>8.2f}s longest"
                yield Line(f"    {node:<{width}}  {visits:>4} x  {times}")
        name = f" {data.graph}" if data.depth else ""
        spent = "" if data.depth else self._spent()
        yield self._pen.line(f"graph{name} {_how(data)} {data.seconds:.2f}s{spent}")

    def _spent(self) -> str:
        if not self._usage:
            return ""
        taken = sum(usage.input_tokens for usage in self._usage.values())
        given = sum(usage.output_tokens for usage in self._usage.values())
        cost = sum(usage.cost for usage in self._usage.values())
        money = f", ${cost:.4f}" if cost else ""
        return f", {taken} tokens in, {given} out{money}"

    @_tell.register
    def _usage_update(self, data: UsageUpdate, _event: Event) -> Iterator[Line]:
        self._usage[data.model] = data
        yield from ()

    # --- steps and nodes --------------------------------------------------------------------------------

    @_tell.register
    def _step_started(self, data: StepStarted, event: Event) -> Iterator[Line]:
        if self._told(event) and len(data.nodes) > 1:
            self._wide.add((event.actor, data.step))
            yield self._pen.timed(event, f"super-step start: {', '.join(data.nodes)}")

    @_tell.register
    def _step_finished(self, data: StepFinished, event: Event) -> Iterator[Line]:
        if (event.actor, data.step) in self._wide:
            self._wide.discard((event.actor, data.step))
            onward = f" -> {', '.join(data.next)}" if data.next else ""
            yield self._pen.timed(event, f"super-step end{onward}")

    @_tell.register
    def _node_entered(self, data: NodeEntered, event: Event) -> Iterator[Line]:
        self._types[data.node] = data.type
        if data.item is not None:
            self._nested.add(event.actor)
        if self._told(event, item=data.item):
            visit = f", visit {data.visit}" if data.visit > 1 else ""
            yield self._pen.timed(event, f"{_name(data.node, data.item)} ({data.type}{visit}) start")

    @_tell.register
    def _node_exited(self, data: NodeExited, event: Event) -> Iterator[Line]:
        onward = f" -> {', '.join(data.next)}" if data.next else ""
        name = _name(data.node, data.item)
        if data.item is not None:
            self._nested.discard(event.actor)
        if data.error is not None:
            type_ = self._types.get(data.node, "node")
            text = f"{name} ({type_}) FAILED in {duration(data.seconds)}{onward} -- {self._pen.short(data.error)}"
            yield self._pen.timed(event, text, style="error")
        elif self._told(event, item=data.item):
            yield self._pen.timed(event, f"{name} done in {duration(data.seconds)}{onward}")

    @_tell.register
    def _node_skipped(self, data: NodeSkipped, event: Event) -> Iterator[Line]:
        if self._told(event):
            yield self._pen.timed(event, f"{data.node} skipped: {self._pen.short(data.reason)}")

    # --- knowledge --------------------------------------------------------------------------------------

    @_tell.register(KnowledgeBuilding | KnowledgeBuilt | KnowledgeRetrieved)
    def _knows(self, data: EventData, event: Event) -> Iterator[Line]:
        if self._told(event):
            yield from self._knowledge.tell(data, event)

    # --- questions and warnings -------------------------------------------------------------------------

    @_tell.register
    def _question_asked(self, data: QuestionAsked, event: Event) -> Iterator[Line]:
        question = data.question if isinstance(data.question, dict) else {}
        if question.get("secret"):
            self._secret.add(event.id)
        text = self._pen.short(str(question.get("text", "")))
        line = self._pen.timed(event, f"{paths.asker(question) or 'somebody'} asks: {text}", style="question")
        if self._prompting:
            self._held[event.id] = line
        else:
            yield line

    @_tell.register
    def _question_answered(self, data: QuestionAnswered, event: Event) -> Iterator[Line]:
        held = self._held.pop(event.id, None)
        secret = event.id in self._secret
        self._secret.discard(event.id)
        if held is not None:
            if data.by == "terminal":
                return
            yield held
        value = ", ".join(map(str, data.value)) if isinstance(data.value, list) else str(data.value)
        who = _BY.get(data.by) or f"by {paths.name(data.by) if data.by.startswith('/') else data.by}"
        yield self._pen.timed(event, f"answered {who}" + (" (a secret)" if secret else f": {self._pen.short(value)}"))

    @_tell.register
    def _question_expired(self, data: QuestionExpired, event: Event) -> Iterator[Line]:
        self._held.pop(event.id, None)
        self._secret.discard(event.id)
        if data.reason == "timeout":  # for the other reasons, what follows says it
            yield self._pen.timed(event, "nobody answered in time")

    @_tell.register
    def _warned(self, data: Warned, _event: Event) -> Iterator[Line]:
        if _PROBLEM.match(data.message):  # of a file, which says so and where
            yield Line(data.message, "warning")
            return
        node = f"[{data.node}] " if data.node else ""
        yield Line(f"warning: {node}{data.message}", "warning")

    @_tell.register
    def _actor_stuck(self, data: ActorStuck, event: Event) -> Iterator[Line]:
        yield Line(f"warning: {event.actor} did not end within {data.seconds:.1f}s and was left behind", "warning")

    @_tell.register
    def _actor_restarted(self, data: ActorRestarted, event: Event) -> Iterator[Line]:
        if not self._verbose:
            return
        yield self._pen.timed(event, f"{event.actor} restarted ({data.restarts}) -- {self._pen.short(data.error)}")

    # --- common -----------------------------------------------------------------------------------------

    def _told(self, event: Event, *, item: int | None = None) -> bool:
        """Whether this depth of detail is wanted: nested graphs and map items only with `-v`."""
        if self._verbose:
            return True
        return item is None and not self.nested(event.actor)

    def _of_node(self, event: Event) -> bool:
        """Whether it is the work of a node of the graph that was started, and nothing else shows that."""
        return not self._live and bool(self._graph) and event.actor.rpartition("/")[0] == self._graph

    def nested(self, actor: str) -> bool:
        """Whether the actor belongs to a graph that another graph runs."""
        while self._nested and actor:
            if actor in self._nested:
                return True
            actor = actor.rpartition("/")[0]
        return False


def _is_outcome(data: EventData) -> bool:
    """Whether it is what somebody who did one thing by hand is shown in full."""
    match data:
        case ToolFinished(error=error):
            return error is not None
        case Warned(code=code):
            return code == "knowledge_unreadable"
    return isinstance(data, KnowledgeBuilt | KnowledgeRetrieved)


_PROBLEM = re.compile(r"[^\n]*?: warning: |[^\n]*?:\d+: error: ")

_BY = {
    "answers": "as given beforehand",
    "default": "by default",
    "terminal": "at the terminal",
    "always": "as before (always)",
}
"""How to say who answered, where it was no front end."""


def _how(data: GraphFinished) -> str:
    return "done in" if data.error is None else "failed after"


def _name(node: str, item: int | None) -> str:
    return node if item is None else f"{node}[{item}]"
