"""Writes events as text for people: one or a few lines each.

    ▸ graph: triage (start: read)
    ▸ 12:00:01 read (script) start
    ▸ 12:00:01 read done in 0.04s -> judge
    ▸ 12:00:02 judge (llm) FAILED in 310ms -- the model's answer did not fit

A graph inside a graph and the items of a map show only with `-v`; so does the table of times. Agents, their tools
and model calls have a module of their own, `troupe`. Values of the state never appear here: events do not carry them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, ClassVar

from ...actors.views.activity import NOTHING, Activity, Asked
from ...actors.views.run_view import RunView
from ...protocol import events as ev
from ...protocol.events import Event, EventData
from . import paths
from .board import TAIL
from .knowledge import KnowledgeTeller
from .lines import Line, Pen, duration
from .text import safe
from .troupe import TroupeTeller

__all__ = ["Line", "Narrator"]


class Narrator:
    """Turns a run's events into lines.

    Args:
        verbose: tell about model calls, the output of tools and nested graphs too.
        prompting: a person is asked on the same screen, where the prompt shows the question; only questions
            that others answer are shown, once they are answered.
        by_hand: a person makes the only call; the command prints its result.
        live: what runs at the moment is shown elsewhere.
        mark: what a line begins with; `>` for terminals without the real one.
        whole: nothing is cut, for readers that are no terminal.

    Attributes:
        view: what the events come to.
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
        self.view = RunView(text=TAIL if live else 0, clock=lambda _: monotonic())
        self._change = NOTHING
        self._pen = Pen(mark, whole=whole)
        self._troupe = TroupeTeller(
            self._pen, self.view, verbose=verbose, told=self._told, spent=self._spent, of_node=self._of_node
        )
        self._knowledge = KnowledgeTeller(self._pen, live=live)
        self._live = live
        self._wide: set[tuple[str, int]] = set()

    def lines(self, event: Event) -> list[Line]:
        """What to say about the event; often nothing."""
        self._change = self.view.see(event)
        data = event.data
        if self._by_hand and _is_outcome(data):
            return []
        handler = self._TELL.get(type(data))
        told = handler(self, data, event) if handler else self._troupe.tell(data, event, self._change.about)
        return [Line(safe(line.text), line.style) for line in told]

    def note(self, text: str) -> Line:
        """A line about something that is no event."""
        return self._pen.line(safe(text))

    # --- the run and its graphs -------------------------------------------------------------------------

    def _run_started(self, data: ev.RunStarted, event: Event) -> Iterator[Line]:
        if self._verbose:
            model = f", model {data.model}" if data.model else ""
            yield self._pen.line(f"run {event.run} of {data.name} ({data.dialect}{model})")

    def _graph_started(self, data: ev.GraphStarted, event: Event) -> Iterator[Line]:
        child = paths.child(event.actor) if data.depth else ""
        if child and not self._is_nested(self._above):
            yield self._pen.timed(event, f"{child} ({data.graph}, a graph) start")
        if self._told(event):
            yield self._pen.line(f"graph: {data.graph} (start: {data.start})", style="title")

    def _graph_finished(self, data: ev.GraphFinished, event: Event) -> Iterator[Line]:
        child = paths.child(event.actor) if data.depth else ""
        if child and not self._is_nested(self._above):
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
        view = self.view
        if not view.usage:
            return ""
        money = f", ${view.cost:.4f}" if view.cost else ""
        return f", {view.input_tokens} tokens in, {view.output_tokens} out{money}"

    # --- steps and nodes --------------------------------------------------------------------------------

    def _step_started(self, data: ev.StepStarted, event: Event) -> Iterator[Line]:
        if self._told(event) and len(data.nodes) > 1:
            self._wide.add((event.actor, data.step))
            yield self._pen.timed(event, f"super-step start: {', '.join(data.nodes)}")

    def _step_finished(self, data: ev.StepFinished, event: Event) -> Iterator[Line]:
        if (event.actor, data.step) in self._wide:
            self._wide.discard((event.actor, data.step))
            onward = f" -> {', '.join(data.next)}" if data.next else ""
            yield self._pen.timed(event, f"super-step end{onward}")

    def _node_entered(self, data: ev.NodeEntered, event: Event) -> Iterator[Line]:
        if self._told(event, item=data.item):
            visit = f", visit {data.visit}" if data.visit > 1 else ""
            yield self._pen.timed(event, f"{_name(data.node, data.item)} ({data.type}{visit}) start")

    def _node_exited(self, data: ev.NodeExited, event: Event) -> Iterator[Line]:
        onward = f" -> {', '.join(data.next)}" if data.next else ""
        name = _name(data.node, data.item)
        if data.error is not None:
            type_ = self._change.about.data.type if self._change.about else "node"
            text = f"{name} ({type_}) FAILED in {duration(data.seconds)}{onward} -- {self._pen.short(data.error)}"
            yield self._pen.timed(event, text, style="error")
        elif self._told(event, item=data.item):
            yield self._pen.timed(event, f"{name} done in {duration(data.seconds)}{onward}")

    def _node_skipped(self, data: ev.NodeSkipped, event: Event) -> Iterator[Line]:
        if self._told(event):
            yield self._pen.timed(event, f"{data.node} skipped: {self._pen.short(data.reason)}")

    # --- knowledge --------------------------------------------------------------------------------------

    def _knows(self, data: EventData, event: Event) -> Iterator[Line]:
        if self._told(event):
            yield from self._knowledge.tell(data, event)

    # --- questions and warnings -------------------------------------------------------------------------

    def _question_asked(self, _: ev.QuestionAsked, __: Event) -> Iterator[Line]:
        if not self._prompting and self._change.question is not None:
            yield self._asks(self._change.question)

    def _asks(self, asked: Asked) -> Line:
        text = self._pen.short(str(asked.question.get("text", "")))
        who = paths.asker(asked.question) or "somebody"
        return self._pen.timed(asked.event, f"{who} asks: {text}", style="question")

    def _question_answered(self, data: ev.QuestionAnswered, event: Event) -> Iterator[Line]:
        asked = self._change.question
        if self._prompting and asked is not None:
            if data.by == "terminal":
                return
            yield self._asks(asked)
        value = ", ".join(map(str, data.value)) if isinstance(data.value, list) else str(data.value)
        who = _BY.get(data.by) or f"by {paths.name(data.by) if data.by.startswith('/') else data.by}"
        secret = asked is not None and asked.question.get("secret")
        yield self._pen.timed(event, f"answered {who}" + (" (a secret)" if secret else f": {self._pen.short(value)}"))

    def _question_expired(self, data: ev.QuestionExpired, event: Event) -> Iterator[Line]:
        if data.reason == "timeout":  # for the other reasons, what follows says it
            yield self._pen.timed(event, "nobody answered in time")

    def _warned(self, data: ev.Warned, _event: Event) -> Iterator[Line]:
        if _PROBLEM.match(data.message):  # of a file, which says so and where
            yield Line(data.message, "warning")
            return
        node = f"[{data.node}] " if data.node else ""
        yield Line(f"warning: {node}{data.message}", "warning")

    def _actor_stuck(self, data: ev.ActorStuck, event: Event) -> Iterator[Line]:
        yield Line(f"warning: {event.actor} did not end within {data.seconds:.1f}s and was left behind", "warning")

    def _actor_restarted(self, data: ev.ActorRestarted, event: Event) -> Iterator[Line]:
        if not self._verbose:
            return
        yield self._pen.timed(event, f"{event.actor} restarted ({data.restarts}) -- {self._pen.short(data.error)}")

    # --- common -----------------------------------------------------------------------------------------

    def _told(self, event: Event, *, item: int | None = None) -> bool:
        """Whether this depth of detail is wanted: nested graphs and map items only with `-v`."""
        if self._verbose:
            return True
        return item is None and not self._is_nested(self._change.about or self.view.nearest(event.actor))

    def _of_node(self, event: Event) -> bool:
        """Whether it is the work of a node of the graph that was started, and nothing else shows that."""
        home = self.view.home
        return (
            not self._live
            and home is not None
            and home.kind == "graph"
            and event.actor.rpartition("/")[0] == home.actor
        )

    @property
    def _above(self) -> Activity | None:
        """What encloses what the event is about."""
        return self._change.about.above if self._change.about is not None else None

    def _is_nested(self, activity: Activity | None) -> bool:
        """Whether it belongs to a graph that another graph runs, or to an item of a map."""
        while activity is not None:
            kind, data = activity.kind, activity.data
            if (kind == "graph" and data.depth) or (kind == "node" and data.item is not None):
                return True
            activity = activity.above
        return False

    _TELL: ClassVar[dict[type[EventData], Callable[[Narrator, Any, Event], Iterator[Line]]]] = {
        ev.RunStarted: _run_started,
        ev.GraphStarted: _graph_started,
        ev.GraphFinished: _graph_finished,
        ev.StepStarted: _step_started,
        ev.StepFinished: _step_finished,
        ev.NodeEntered: _node_entered,
        ev.NodeExited: _node_exited,
        ev.NodeSkipped: _node_skipped,
        ev.KnowledgeBuilding: _knows,
        ev.KnowledgeBuilt: _knows,
        ev.KnowledgeRetrieved: _knows,
        ev.QuestionAsked: _question_asked,
        ev.QuestionAnswered: _question_answered,
        ev.QuestionExpired: _question_expired,
        ev.Warned: _warned,
        ev.ActorStuck: _actor_stuck,
        ev.ActorRestarted: _actor_restarted,
    }


def _is_outcome(data: EventData) -> bool:
    """Whether it is shown in full after a call by hand."""
    match data:
        case ev.ToolFinished(error=error):
            return error is not None
        case ev.Warned(code=code):
            return code == "knowledge_unreadable"
    return isinstance(data, ev.KnowledgeBuilt | ev.KnowledgeRetrieved)


_PROBLEM = re.compile(r"[^\n]*?: warning: |[^\n]*?:\d+: error: ")

_BY = {
    "answers": "as given beforehand",
    "default": "by default",
    "terminal": "at the terminal",
    "always": "as before (always)",
}
"""How to say who answered, where it was no front end."""


def _how(data: ev.GraphFinished) -> str:
    return "done in" if data.error is None else "failed after"


def _name(node: str, item: int | None) -> str:
    return node if item is None else f"{node}[{item}]"
