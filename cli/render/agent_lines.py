"""Narration of agent events: turns, tool calls, MCP servers, model calls, and child agents.

    ▸ agent: boss (12 tools)
    ▸ 12:00:01 fs_read path=src/a.py done in 4ms
    ▸ 12:00:02 agent_scout_949da8fc start
    ▸ 12:00:03 agent_scout_949da8fc: fs_grep pattern=todo done in 9ms
    ▸ 12:00:04 agent_scout_949da8fc done in 2.10s, 3 turns, 1 tool call
    ▸ agent done in 4.00s, 2 turns, 4 tool calls, 210 tokens in, 40 out

A finished tool call has a line. With `-v` its start and every model call have lines too. Without `-v` a model call has
a line only if a node of the run's own graph makes it. Agents inside nested graphs and map items appear only with `-v`,
like those graphs and items themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from ...actors.views.activity import Activity
from ...actors.views.money import usd
from ...protocol import events as ev
from ...protocol.errors import CallRefused
from ...protocol.events import Event
from . import paths
from .brief import call_in_short, progress_in_short, waiting_in_short
from .lines import StyledLine, Teller, duration
from .text import counted, uncoloured

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


class AgentTeller(Teller):
    """Narrator of agent events."""

    _last: tuple[ev.AgentFinished, Event] | None = None
    """End of the root agent, held back until its children have ended, so that its line is the last."""

    def _lines_of(self, event: Event) -> Iterator[StyledLine]:
        yield from super()._lines_of(event)
        if self._last is not None and not self._has_children():
            (data, ended), self._last = self._last, None
            yield from self._agent_ended(data, ended)

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
        home = self.view.home
        return home is not None and home.kind == "graph" and event.actor.rpartition("/")[0] == home.actor

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
        known = self._waits_told.get(data.model)
        if known is None or event.ts >= known:
            self._waits_told[data.model] = event.ts + timedelta(seconds=min(max(1.0, data.wait), 3600.0))
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
