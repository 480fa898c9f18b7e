"""Narration of a run: each event as at most a few lines of text.

    ▸ graph: triage (start: read)
    ▸ 12:00:01 read (script) start
    ▸ 12:00:01 read done in 0.04s -> judge
    ▸ 12:00:02 judge (llm) FAILED in 310ms -- the model's answer did not fit

    ▸ agent: boss (12 tools)
    ▸ 12:00:01 fs_read path=src/a.py done in 4ms
    ▸ 12:00:02 agent_scout_949da8fc start
    ▸ 12:00:03 agent_scout_949da8fc: fs_grep pattern=todo done in 9ms
    ▸ 12:00:04 agent_scout_949da8fc done in 2.10s, 3 turns, 1 tool call
    ▸ agent done in 4.00s, 2 turns, 4 tool calls, 210 tokens in, 40 out

A nested graph and the items of a map appear only with `-v`, and so do their agents and the table of times. A finished
tool call has a line; with `-v` its start and every model call have lines too. Without `-v` a model call has a line only
if a node of the run's own graph makes it. State values never appear here, because events do not contain them.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from ...actors.views.money import usd
from ...actors.views.run_view import NOTHING, Activity, RunView, ViewedQuestion
from ...protocol import events as ev
from ...protocol.errors import CallRefused
from ...protocol.events import Event, EventData
from . import paths
from .brief import (
    PATIENCE,
    TAIL,
    building_in_short,
    built_in_short,
    call_in_short,
    found_in_short,
    progress_in_short,
    waiting_in_short,
)
from .text import counted, one_line, safe, uncoloured

_DAY = 86_400

PASSED_OVER = timedelta(seconds=60)
"""Time after a fallback line during which further fallbacks from the same model print no line."""

THINKING = 1_000
"""Limit of requests with a known start of reasoning."""

WORTH_TELLING = timedelta(seconds=1)
"""Shortest reasoning time that gets a line."""

_INTERRUPTED = "interrupted"
_STOPS = {
    "todo_limit": "todos are still open, and max_auto_continues is reached",
    "todo_stuck": "todos are still open, and it gave the same answer twice",
}
"""Explanations of stop reasons other than normal completion."""


class StyledLine(NamedTuple):
    """Line of output and the style for `text.paint`."""

    text: str
    style: str = "dim"


class Narrator:
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
        self.view = RunView(text=TAIL if live else 0, clock=lambda _: time.monotonic())
        self._verbose = verbose
        self._prompting = prompting
        self._by_hand = by_hand
        self._live = live
        self._mark = mark
        self._whole = whole
        self._thoughts = thoughts
        self._change = NOTHING
        self._last: tuple[ev.AgentFinished, Event] | None = None
        """End of the root agent, held back until its children have ended, so that its line is the last."""
        self._thinking: dict[tuple[str, str], datetime] = {}
        """Start of reasoning by request."""
        self._passed_over: dict[str, datetime] = {}
        """By model: the end of its silence after a fallback line."""
        self._waits_printed: dict[str, datetime] = {}
        """By model: the end of its silence after a waiting line."""
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

    def _lines_of(self, event: Event) -> Iterator[StyledLine]:
        """Dispatch an event to the method of its kind: `node.entered` to `_node_entered`, if that exists."""
        method: Callable[[Any, Event], Iterator[StyledLine]] | None
        method = getattr(self, f"_{event.data.kind.replace('.', '_')}", None)
        if method is not None:
            yield from method(event.data, event)
        if self._last is not None and not self._has_children():
            (data, ended), self._last = self._last, None
            yield from self._agent_ended(data, ended)

    def _short(self, text: str) -> str:
        return one_line(text, sys.maxsize) if self._whole else one_line(text)

    def _line(self, text: str, style: str = "dim") -> StyledLine:
        return StyledLine(f"{self._mark} {text}", style)

    def _timed(self, event: Event, text: str, style: str = "dim") -> StyledLine:
        return self._line(f"{event.ts.astimezone().strftime('%H:%M:%S')} {text}", style)

    def _has_children(self) -> bool:
        return any(agent.data.child for agent in self.view.under_way("agent"))

    def _is_displayed(self, event: Event, *, item: int | None = None) -> bool:
        """Return True if the event is within the requested detail: nested graphs and map items need `-v`."""
        if self._verbose:
            return True
        return item is None and not is_nested(self._change.about or self.view.nearest(event.actor))

    def _spent(self) -> str:
        view = self.view
        if not view.usage:
            return ""
        money = f", {usd(view.cost)}" if view.cost else ""
        if not view.priced:
            unknown = ", ".join(model for model, used in view.usage.items() if not used.priced)
            money = f"{money} without {unknown} (unpriced)" if money else ", unpriced"
        word = "token" if view.input_tokens == 1 else "tokens"
        return f", {view.input_tokens} {word} in, {view.output_tokens} out{money}"

    def _of_node(self, event: Event) -> bool:
        """Return True for a request of a node of the run's own graph; a live display shows it in the node's line."""
        home = self.view.home
        own = home is not None and home.kind == "graph" and event.actor.rpartition("/")[0] == home.actor
        return own and not self._live

    @property
    def _above(self) -> Activity | None:
        return self._change.about.above if self._change.about is not None else None

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

    # --- agents -----------------------------------------------------------------------------------------

    def _agent_started(self, data: ev.AgentStarted, event: Event) -> Iterator[StyledLine]:
        if not self._is_displayed(event):
            return
        if data.child:
            yield self._timed(event, f"{data.child} start")
        elif not data.depth:
            yield self._line(f"agent: {data.agent} ({counted(len(data.tools), 'tool')})", "title")
        elif self._verbose:
            yield self._timed(event, f"agent {data.agent} start")
        if self._verbose and data.tools:
            yield StyledLine(f"    tools: {', '.join(data.tools)}")

    def _agent_finished(self, data: ev.AgentFinished, event: Event) -> Iterator[StyledLine]:
        """Print the agent's end. An interrupted root agent ends before its children do, so its line is held back."""
        if not data.depth and self._last is None and self._has_children():
            self._last = data, event
        else:
            yield from self._agent_ended(data, event)

    def _agent_ended(self, data: ev.AgentFinished, event: Event) -> Iterator[StyledLine]:
        if not self._is_displayed(event) or (data.depth and not data.child and not self._verbose):
            return
        who = data.child or (f"agent {data.agent}" if data.depth else "agent")
        did = f"{counted(data.turns, 'turn')}, {counted(data.tool_calls, 'tool call')}"
        took = duration(data.seconds)
        if data.error is None:
            why = _STOPS.get(data.stop, "")
            text = f"{who} {'stopped after' if why else 'done in'} {took}, {did}"
            style = "warning" if why else "dim"
            text += (self._spent() if not data.depth else "") + (f" -- {why}" if why else "")
        # the last line of the run gives the reason for the root agent
        elif not data.depth or data.error == _INTERRUPTED:
            text, style = f"{who} stopped after {took}, {did}", "dim"
        else:
            text, style = f"{who} FAILED in {took}, {did} -- {self._short(data.error)}", "error"
        yield self._timed(event, text, style) if data.depth else self._line(text, style)

    def _agent_continued(self, data: ev.AgentContinued, event: Event) -> Iterator[StyledLine]:
        if self._is_displayed(event):
            open_ = counted(data.open, "open todo")
            times = f"time {data.count} of at most {data.most}"
            yield self._timed(event, f"{paths.child(event.actor) or data.agent} goes on: {open_} ({times})")

    def _history_compacting(self, data: ev.HistoryCompacting, event: Event) -> Iterator[StyledLine]:
        if self._is_displayed(event):
            who = paths.child(event.actor) or data.agent
            what = (
                f"summarises its first {counted(data.turns, 'message')}, since the next request "
                f"has {data.tokens} tokens"
            )
            yield self._timed(event, f"{who} {what}")

    def _history_compacted(self, data: ev.HistoryCompacted, event: Event) -> Iterator[StyledLine]:
        if self._is_displayed(event):
            who = paths.child(event.actor) or data.agent
            sizes = f"{data.tokens} tokens, now {data.tokens_now}"
            what = f"has summarised its first {counted(data.turns, 'message')}"
            if data.results:
                what = f"keeps beginning and end of {counted(data.results, 'result')} of tools"
            yield self._timed(event, f"{who} {what} ({sizes})")

    # --- tools ------------------------------------------------------------------------------------------

    def _tool_call_started(self, data: ev.ToolStarted, event: Event) -> Iterator[StyledLine]:
        if self._verbose:
            call = self._call(data, event)
            yield self._timed(event, f"  {call} start" if event.id else f"  tool {call} start")

    def _call(self, data: ev.ToolStarted, event: Event) -> str:
        call = call_in_short(data.tool, data.arguments, whole=self._whole)
        who = paths.caller(event.actor) if event.id else ""  # a script node's process has none, and its node shows
        return f"{who}: {call}" if who else call

    def _tool_call_delta(self, data: ev.ToolDelta, _event: Event) -> Iterator[StyledLine]:
        if self._verbose:
            yield StyledLine(f"    {data.tool}: {self._short(uncoloured(data.text))}")

    def _tool_call_progress(self, data: ev.ToolProgress, _event: Event) -> Iterator[StyledLine]:
        if self._verbose:
            yield StyledLine(f"    {data.tool}: {progress_in_short(data)}")

    def _file_changed(self, data: ev.FileChanged, _event: Event) -> Iterator[StyledLine]:
        if self._verbose:
            lines = "" if data.added is None else f" +{data.added} -{data.removed}"
            yield StyledLine(f"    {data.tool}: {data.how} {self._short(data.path)}{lines}")

    def _tool_call_finished(self, data: ev.ToolFinished, event: Event) -> Iterator[StyledLine]:
        about = self._change.about
        call = self._call(about.data, event) if about is not None and event.id else ""
        if not self._is_displayed(event) or not (call or self._verbose):
            return
        status = f" (exit {data.status})" if data.status else ""
        took = duration(data.seconds)
        name = ("  " if self._verbose else "") + (call or f"tool {data.tool}")
        if data.error is None:
            yield self._timed(event, f"{name} done{status} in {took}")
        elif data.error == _INTERRUPTED:
            yield self._timed(event, f"{name} stopped after {took}")
        elif data.code == CallRefused.code:
            why = _plain(data.error).partition("the user refused")[2].removeprefix(": ")
            yield self._timed(event, f"{name} refused" + (f": {self._short(why)}" if why else ""), "warning")
        else:
            why = self._short(_plain(data.error))
            yield self._timed(event, f"{name} FAILED{status} in {took} -- {why}", "warning")

    # --- MCP servers ------------------------------------------------------------------------------------

    def _mcp_starting(self, data: ev.McpServerStarting, event: Event) -> Iterator[StyledLine]:
        if self._verbose:
            wait = f" in {duration(data.wait)}, since it failed before" if data.wait else ""
            yield self._timed(event, f"MCP server {data.server} starts{wait}")

    def _mcp_started(self, data: ev.McpServerStarted, event: Event) -> Iterator[StyledLine]:
        speaks = f" (version {data.version}, MCP {data.protocol})" if self._verbose else ""
        took = f"{duration(data.seconds)}, {counted(data.tools, 'tool')}"
        yield self._timed(event, f"MCP server {data.server} started in {took}{speaks}")

    def _mcp_failed(self, data: ev.McpServerFailed, event: Event) -> Iterator[StyledLine]:
        if self._verbose:  # without -v the consequence has a line: a warning, or a failed call
            yield self._timed(event, f"MCP server {data.server} did not start -- {self._short(data.error)}", "warning")

    def _mcp_stopped(self, data: ev.McpServerStopped, event: Event) -> Iterator[StyledLine]:
        if self._verbose:
            why = f" -- {self._short(data.error)}" if data.error else ""
            yield self._timed(event, f"MCP server {data.server} {'was lost' if why else 'ended'}{why}")

    # --- models -----------------------------------------------------------------------------------------

    def _llm_retry(self, data: ev.LlmRetry, event: Event) -> Iterator[StyledLine]:
        self._thinking.pop((event.actor, event.id), None)
        failed = f"{data.model}: try {data.attempt} failed, next in {duration(data.wait)}"
        yield self._timed(event, f"{failed} -- {self._short(data.error)}", style="warning")

    def _llm_fallback(self, data: ev.LlmFallback, event: Event) -> Iterator[StyledLine]:
        """Print a line per model that was asked; print skipped models once in `PASSED_OVER`."""
        if not data.asked and not self._verbose:
            known = self._passed_over.get(data.model)
            self._passed_over[data.model] = event.ts + PASSED_OVER
            if known is not None and event.ts < known:
                return
        failed = "did not answer" if data.asked else "is skipped"
        text = f"{data.model} {failed}, {data.next} is asked -- {self._short(data.error)}"
        yield self._timed(event, text, style="warning")

    def _llm_waiting(self, data: ev.LlmWaiting, event: Event) -> Iterator[StyledLine]:
        """Print one line for all requests that wait for the same limit."""
        known = self._waits_printed.get(data.model)
        if known is None or event.ts >= known:
            self._waits_printed[data.model] = event.ts + timedelta(seconds=min(max(1.0, data.wait), 3600.0))
            why = f" -- {self._short(data.error)}" if data.error else ""
            yield self._timed(event, f"{waiting_in_short(data)}{why}", style="dim")

    def _llm_cache_missed(self, data: ev.CacheMissed, event: Event) -> Iterator[StyledLine]:
        if self._verbose:
            changed = " and ".join(data.changed)
            yield self._timed(event, f"{data.agent}: {changed} changed, nothing that was cached can be used")

    def _llm_request(self, data: ev.LlmRequest, event: Event) -> Iterator[StyledLine]:
        tools = ",".join(data.tools) if len(data.tools) <= 5 else str(len(data.tools))
        if self._verbose:
            about = f"model={data.model} messages={data.messages} tools={tools or 'none'} try={data.attempt}"
            yield self._timed(event, f"  llm call: {about}")
        elif data.attempt == 1 and self._of_node(event):
            yield self._line(f"  llm call: model={data.model} tools={tools or '<none>'}")

    def _llm_embedding(self, data: ev.LlmEmbedding, event: Event) -> Iterator[StyledLine]:
        yield from self._model_request("embedding", data, event)

    def _llm_rerank(self, data: ev.LlmRerank, event: Event) -> Iterator[StyledLine]:
        yield from self._model_request("rerank", data, event)

    def _model_request(self, what: str, data: ev.LlmEmbedding | ev.LlmRerank, event: Event) -> Iterator[StyledLine]:
        if self._verbose:
            ended = f"FAILED -- {self._short(data.error)}" if data.error is not None else f"in={data.input_tokens}"
            text = f"  {what}: model={data.model} texts={data.texts} {duration(data.seconds)} {ended}"
            yield self._timed(event, text)

    def _llm_reasoning(self, _: ev.LlmReasoning, event: Event) -> Iterator[StyledLine]:
        """Record when reasoning began. The text is never printed; its duration is, once the reply starts."""
        if self._thoughts:
            self._thinking.setdefault((event.actor, event.id), event.ts)
            if len(self._thinking) > THINKING:  # an interrupted request has no event for its end
                del self._thinking[next(iter(self._thinking))]
        return iter(())

    def _llm_delta(self, _: ev.LlmDelta, event: Event) -> Iterator[StyledLine]:
        return self._thought(event) if self._thinking else iter(())

    def _llm_failed(self, _: ev.LlmFailed, event: Event) -> Iterator[StyledLine]:
        self._thinking.pop((event.actor, event.id), None)
        return iter(())

    def _thought(self, event: Event) -> Iterator[StyledLine]:
        since = self._thinking.pop((event.actor, event.id), None)
        who = paths.child(event.actor)
        if since is not None and self._is_displayed(event) and (self._verbose or not who):
            took = event.ts - since
            if took < WORTH_TELLING:
                return
            text = f"thought for {duration(took.total_seconds())}"
            yield self._timed(event, f"{who}: {text}" if who else text) if self._verbose else self._line(text)

    def _llm_response(self, data: ev.LlmResponse, event: Event) -> Iterator[StyledLine]:
        yield from self._thought(event)
        if self._verbose:
            used = f"in={data.input_tokens} out={data.output_tokens}"
            stop = f" ({data.stop})" if data.stop else ""
            text = f"  llm answer: model={data.model} {used} {duration(data.seconds)}{stop}"
            yield self._timed(event, text)


def is_nested(activity: Activity | None) -> bool:
    """Return True if the activity belongs to a nested graph or to a map item."""
    while activity is not None:
        kind, data = activity.kind, activity.data
        if (kind == "graph" and data.depth) or (kind == "node" and data.item is not None):
            return True
        activity = activity.above
    return False


def _plain(error: str) -> str:
    head = '{"tool_call_error":"'
    if not error.startswith(head):
        return error
    import json

    try:
        return str(json.loads(error)["tool_call_error"])
    except (ValueError, KeyError, TypeError):
        return error


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
    "answers": "from the prepared answers",
    "default": "by default",
    "terminal": "at the terminal",
    "always": "by a stored approval",
}
"""Descriptions of answer sources other than front ends."""


def _how(data: ev.GraphFinished) -> str:
    return "done in" if data.error is None else "failed after"


def _name(node: str, item: int | None) -> str:
    return node if item is None else f"{node}[{item}]"


def duration(seconds: float) -> str:
    """Format a duration: `40ms`, `1.30s`."""
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.2f}s"


def ago(moment: float) -> str:
    """Format the age of a Unix timestamp: `today`, `3 days ago`."""
    days = int((time.time() - moment) // _DAY)
    return "today" if days < 1 else f"{counted(days, 'day')} ago"
