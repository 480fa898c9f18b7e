"""Narration of a run: each event as at most a few lines of text.

    ▸ graph: triage (start: read)
    ▸ 12:00:01 read (script) start
    ▸ 12:00:01 read done in 0.04s -> judge
    ▸ 12:00:02 judge (llm) FAILED in 310ms -- the model's answer did not fit

A nested graph and the items of a map appear only with `-v`, and so does the table of times. Agents, their tools and
model calls are in `agent_lines`. State values never appear here, because events do not contain them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from time import monotonic

from ...actors.views.activity import Activity, ViewedQuestion
from ...actors.views.run_view import RunView
from ...protocol import events as ev
from ...protocol.events import Event, EventData
from . import paths
from .agent_lines import AgentTeller, is_nested
from .brief import PATIENCE, TAIL, building_in_short, built_in_short, found_in_short
from .lines import StyledLine, duration
from .text import safe

__all__ = ["Narrator", "StyledLine"]


class Narrator(AgentTeller):
    """Converter of a run's events to lines.

    Args:
        verbose: include model calls, tool output and nested graphs.
        prompting: the same screen shows the questions in a prompt; only questions answered elsewhere are printed, once
            they are answered.
        by_hand: the user makes a single call, and the command prints its result.
        live: another display shows the current activities.
        mark: first character of a line; `>` for terminals without `▸`.
        whole: never cut a text, for readers other than terminals.
        thoughts: report how long models reason, because a terminal shows nothing else of it.
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
        thoughts: bool = False,
    ) -> None:
        view = RunView(text=TAIL if live else 0, clock=lambda _: monotonic())
        super().__init__(verbose=verbose, mark=mark, whole=whole, thoughts=thoughts, view=view)
        self._prompting = prompting
        self._by_hand = by_hand
        self._live = live
        self._wide: set[tuple[str, int]] = set()
        self._builds: dict[str, datetime] = {}
        """Time of the last progress line of each knowledge base build."""

    def lines(self, event: Event) -> list[StyledLine]:
        """Return the lines of an event, often none."""
        self._change = self.view.see(event)
        if self._by_hand and _is_outcome(event.data):
            return []
        return [StyledLine(safe(line.text), line.style) for line in self._lines_of(event)]

    def note(self, text: str) -> StyledLine:
        """Return a line that is not an event."""
        return self._line(safe(text))

    # --- the run and its graphs -------------------------------------------------------------------------

    def _run_started(self, data: ev.RunStarted, event: Event) -> Iterator[StyledLine]:
        if self._verbose:
            model = f", model {data.model}" if data.model else ""
            yield self._line(f"run {event.run} of {data.name} ({data.dialect}{model})")
        if data.sandbox and (self._verbose or data.sandbox != "workspace"):
            yield self._line(f"sandbox: {data.sandbox}")

    def _graph_started(self, data: ev.GraphStarted, event: Event) -> Iterator[StyledLine]:
        child = paths.child(event.actor) if data.depth else ""
        if child and not is_nested(self._above):
            yield self._timed(event, f"{child} ({data.graph}, a graph) start")
        if self._is_displayed(event):
            yield self._line(f"graph: {data.graph} (start: {data.start})", style="title")

    def _graph_finished(self, data: ev.GraphFinished, event: Event) -> Iterator[StyledLine]:
        child = paths.child(event.actor) if data.depth else ""
        if child and not is_nested(self._above):
            yield self._timed(event, f"{child} {_how(data)} {duration(data.seconds)}")
            if not self._verbose:
                return
        if not self._is_displayed(event):
            return
        if self._verbose and data.timing:
            width = max(len(node) for node in data.timing)
            for node, (visits, total, longest) in data.timing.items():
                times = f"{total:>8.2f}s in all  {longest:>8.2f}s longest"
                yield StyledLine(f"    {node:<{width}}  {visits:>4} x  {times}")
        name = f" {data.graph}" if data.depth else ""
        spent = "" if data.depth else self._spent()
        yield self._line(f"graph{name} {_how(data)} {data.seconds:.2f}s{spent}")

    # --- steps and nodes --------------------------------------------------------------------------------

    def _step_started(self, data: ev.StepStarted, event: Event) -> Iterator[StyledLine]:
        if self._is_displayed(event) and len(data.nodes) > 1:
            self._wide.add((event.actor, data.step))
            yield self._timed(event, f"super-step start: {', '.join(data.nodes)}")

    def _step_finished(self, data: ev.StepFinished, event: Event) -> Iterator[StyledLine]:
        if (event.actor, data.step) in self._wide:
            self._wide.discard((event.actor, data.step))
            onward = f" -> {', '.join(data.next)}" if data.next else ""
            yield self._timed(event, f"super-step end{onward}")

    def _node_entered(self, data: ev.NodeEntered, event: Event) -> Iterator[StyledLine]:
        if self._is_displayed(event, item=data.item):
            visit = f", visit {data.visit}" if data.visit > 1 else ""
            yield self._timed(event, f"{_name(data.node, data.item)} ({data.type}{visit}) start")

    def _node_exited(self, data: ev.NodeExited, event: Event) -> Iterator[StyledLine]:
        onward = f" -> {', '.join(data.next)}" if data.next else ""
        name = _name(data.node, data.item)
        if data.error is not None:
            type_ = self._change.about.data.type if self._change.about else "node"
            text = f"{name} ({type_}) FAILED in {duration(data.seconds)}{onward} -- {self._short(data.error)}"
            yield self._timed(event, text, style="error")
        elif self._is_displayed(event, item=data.item):
            yield self._timed(event, f"{name} done in {duration(data.seconds)}{onward}")

    def _node_skipped(self, data: ev.NodeSkipped, event: Event) -> Iterator[StyledLine]:
        if self._is_displayed(event):
            yield self._timed(event, f"{data.node} skipped: {self._short(data.reason)}")

    # --- knowledge --------------------------------------------------------------------------------------

    def _knowledge_building(self, data: ev.KnowledgeBuilding, event: Event) -> Iterator[StyledLine]:
        since = self._builds.setdefault(data.what, event.ts)
        if self._is_displayed(event) and not self._live and event.ts - since >= PATIENCE:
            self._builds[data.what] = event.ts
            yield self._timed(event, f"{data.what}: {building_in_short(data)}")

    def _knowledge_built(self, data: ev.KnowledgeBuilt, event: Event) -> Iterator[StyledLine]:
        self._builds.pop(data.what, None)
        if self._is_displayed(event):
            yield self._timed(event, f"{data.what} {built_in_short(data)}, in {duration(data.seconds)}")

    def _knowledge_retrieved(self, data: ev.KnowledgeRetrieved, event: Event) -> Iterator[StyledLine]:
        if self._is_displayed(event):
            yield self._timed(event, f"{data.what}: {found_in_short(data)} in {duration(data.seconds)}")

    # --- questions and warnings -------------------------------------------------------------------------

    def _question_asked(self, _: ev.QuestionAsked, __: Event) -> Iterator[StyledLine]:
        if not self._prompting and self._change.question is not None:
            yield self._asks(self._change.question)

    def _asks(self, asked: ViewedQuestion) -> StyledLine:
        text = self._short(str(asked.question.get("text", "")))
        who = paths.asker(asked.question) or "the run"
        return self._timed(asked.event, f"{who} asks: {text}", style="question")

    def _question_answered(self, data: ev.QuestionAnswered, event: Event) -> Iterator[StyledLine]:
        asked = self._change.question
        if self._prompting and asked is not None:
            if data.by == "terminal":
                return
            yield self._asks(asked)
        value = ", ".join(map(str, data.value)) if isinstance(data.value, list) else str(data.value)
        who = _BY.get(data.by) or f"by {paths.name(data.by) if data.by.startswith('/') else data.by}"
        secret = asked is not None and asked.question.get("secret")
        yield self._timed(event, f"answered {who}" + (" (a secret)" if secret else f": {self._short(value)}"))

    def _question_expired(self, data: ev.QuestionExpired, event: Event) -> Iterator[StyledLine]:
        if data.reason == "timeout":  # for other reasons the next lines explain it
            yield self._timed(event, "no answer in time")

    def _run_warning(self, data: ev.Warned, _event: Event) -> Iterator[StyledLine]:
        if _PROBLEM.match(data.message):  # the message already contains its file and line
            yield StyledLine(data.message, "warning")
            return
        node = f"[{data.node}] " if data.node else ""
        yield StyledLine(f"warning: {node}{data.message}", "warning")

    def _run_placed(self, data: ev.RunPlaced, event: Event) -> Iterator[StyledLine]:
        if self._verbose or not data.agent.endswith("]"):  # items of a map, which end with `]`, need -v
            yield self._timed(event, f"{data.agent} runs on another worker: {data.part}")

    def _actor_stuck(self, data: ev.ActorStuck, event: Event) -> Iterator[StyledLine]:
        yield StyledLine(f"warning: {event.actor} did not end within {data.seconds:.1f}s and was abandoned", "warning")

    def _actor_restarted(self, data: ev.ActorRestarted, event: Event) -> Iterator[StyledLine]:
        if not self._verbose:
            return
        yield self._timed(event, f"{event.actor} restarted ({data.restarts}) -- {self._short(data.error)}")

    # --- common -----------------------------------------------------------------------------------------

    def _of_node(self, event: Event) -> bool:
        return not self._live and super()._of_node(event)  # a live display shows it in the node's own line

    @property
    def _above(self) -> Activity | None:
        return self._change.about.above if self._change.about is not None else None


def _is_outcome(data: EventData) -> bool:
    """Return True if the command prints this result in full after a call by hand."""
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
"""Descriptions of answer sources other than front ends."""


def _how(data: ev.GraphFinished) -> str:
    return "done in" if data.error is None else "failed after"


def _name(node: str, item: int | None) -> str:
    return node if item is None else f"{node}[{item}]"
