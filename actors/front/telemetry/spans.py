"""The spans of one run: which events open them, which end them, and what is measured when they do."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, final

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.util.types import AttributeValue

from ....protocol.events import (
    AgentFinished,
    AgentStarted,
    Event,
    GraphFinished,
    GraphStarted,
    KnowledgeRetrieved,
    LlmDelta,
    LlmFailed,
    LlmReasoning,
    LlmRequest,
    LlmResponse,
    LlmRetry,
    NodeEntered,
    NodeExited,
    RunStarted,
    ToolFinished,
    ToolStarted,
)
from .content import ENOUGH, Content
from .metrics import Instruments
from .names import CANCELLED, FINISH_REASONS, OTHER, TOOL_TYPES, provider_and_model
from .tree import Kind, Open, Tree

Attributes = dict[str, AttributeValue]


@final
class RunSpans:
    """See the module.

    Args:
        event: the run's first.
        above: the context that the run's own span belongs to.
        conversation: the session that the run is a turn of, if any.
        content: how words are told, if they are.
    """

    def __init__(
        self,
        tracer: Tracer,
        measured: Instruments,
        content: Content | None,
        event: Event,
        above: Context,
        conversation: str,
    ) -> None:
        data = event.data
        assert isinstance(data, RunStarted)
        self._tracer = tracer
        self._measured = measured
        self._content = content
        self._common: Attributes = {"gen_ai.conversation.id": conversation or event.run, "callboard.run.id": event.run}
        self._home = ""
        kind: Kind = "agent" if data.dialect == "agent" else "workflow"
        attributes: Attributes = {"callboard.dialect": data.dialect}
        if content is not None and data.prompt:
            attributes["gen_ai.input.messages"] = content.message("user", data.prompt)
        self._top = self._invoked(kind, data.name, event, None, above, attributes)
        self._tree = Tree(self._top)

    # --- what is invoked: graphs, workflows, agents --------------------------------------------------------

    def graph_started(self, event: Event, data: GraphStarted) -> None:
        """The run's own graph is the run's span; others have one of their own."""
        if not self._is_top("workflow", event):
            self._tree.put(event.actor, self._invoked("workflow", data.graph, event, self._tree.above(event.actor)))

    def agent_started(self, event: Event, data: AgentStarted) -> None:
        """The same for agents."""
        if self._is_top("agent", event):
            return
        above = self._tree.above(event.actor)
        attributes: Attributes = {"callboard.agent.depth": data.depth}
        if data.child is not None:
            attributes["gen_ai.agent.id"] = data.child
            above.span.add_event("callboard.agent.spawned", {"gen_ai.agent.id": data.child}, _ns(event.ts))
        self._tree.put(event.actor, self._invoked("agent", data.agent, event, above, attributes=attributes))

    def graph_finished(self, event: Event, data: GraphFinished) -> None:
        """A child's graph ended."""
        if event.actor != self._home:
            self._end(event, "workflow", code=data.code, message=data.error)

    def agent_finished(self, event: Event, data: AgentFinished) -> None:
        """An agent's loop ended; the run's own span goes on to the run's end."""
        found = self._top if event.actor == self._home else self._tree.find(event.actor, "agent")
        if found is None:
            return
        found.span.set_attributes({"callboard.agent.turns": data.turns, "callboard.agent.tool_calls": data.tool_calls})
        if not data.error:
            found.span.set_attribute("callboard.agent.stop", data.stop)
        labels = self._measured.bounded({**found.labels, **({"error.type": data.code} if data.code else {})})
        self._measured.agent_turns.record(data.turns, labels)
        self._measured.agent_tools.record(data.tool_calls, labels)
        if found is not self._top:
            self._end(event, "agent", found.key, code=data.code, message=data.error)

    def over(self, event: Event, code: str) -> None:
        """The run's last event: everything ends. `code` is empty if it is done."""
        outcome: Mapping[str, Any] = getattr(event.data, "outcome", None) or {}
        for actor in self._tree.actors:
            self._end_all(actor, event.ts, code or CANCELLED)
        if self._content is not None and outcome.get("output"):
            said = self._content.message("assistant", str(outcome["output"]))
            self._top.span.set_attribute("gen_ai.output.messages", said)
        error = outcome.get("error") or {}
        self._finish(self._top, event.ts, error.get("code") or code, error.get("message"))

    # --- what is in them: nodes, models, tools --------------------------------------------------------------

    def node_entered(self, event: Event, data: NodeEntered) -> None:
        """A node begins. Nodes of one actor stand side by side, however their events come."""
        attributes: Attributes = {
            "callboard.node.id": data.node,
            "callboard.node.type": data.type,
            "callboard.node.visit": data.visit,
        }
        if data.item is not None:
            attributes["callboard.node.item"] = data.item
        above = self._tree.above(event.actor, beside="node")
        key = (data.node, data.item)
        self._tree.put(event.actor, self._begin("node", key, f"node {data.node}", event.ts, above, attributes))

    def node_exited(self, event: Event, data: NodeExited) -> None:
        """It ended, or failed."""
        self._end(event, "node", (data.node, data.item), code=data.code, message=data.error)

    def llm_request(self, event: Event, data: LlmRequest) -> None:
        """A request goes out; those that follow a retry belong to the same span."""
        if self._tree.find(event.actor, "chat", event.id) is not None:
            return
        provider, model = provider_and_model(data.model)
        labels = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": provider, "gen_ai.request.model": model}
        above = self._tree.above(event.actor)
        if above.kind == "agent" and "gen_ai.request.model" not in above.labels:
            asked = {"gen_ai.provider.name": provider, "gen_ai.request.model": model}
            above.labels.update(asked)
            above.span.set_attributes(asked)
        attributes: Attributes = {**labels, "gen_ai.request.stream": data.stream}
        begun = self._begin("chat", event.id, f"chat {model}", event.ts, above, attributes, labels, SpanKind.CLIENT)
        self._tree.put(event.actor, begun)

    def llm_chunk(self, event: Event, data: LlmDelta | LlmReasoning) -> None:
        """A piece of the answer."""
        chat = self._tree.find(event.actor, "chat", event.id)
        if chat is None:
            return
        first = chat.chunk is None
        seconds = max(0.0, (event.ts - (chat.chunk or chat.began)).total_seconds())
        chat.chunk = event.ts
        (self._measured.first_chunk if first else self._measured.per_chunk).record(
            seconds, self._measured.bounded(chat.labels)
        )
        if first:
            chat.span.set_attribute("gen_ai.response.time_to_first_chunk", seconds)
        if self._content is not None and isinstance(data, LlmDelta) and chat.length <= ENOUGH:
            chat.told.append(data.text)
            chat.length += len(data.text)

    def llm_retry(self, event: Event, data: LlmRetry) -> None:
        """It is tried again; what was heard does not count."""
        chat = self._tree.find(event.actor, "chat", event.id)
        if chat is None:
            return
        chat.told, chat.length, chat.chunk = [], 0, None
        attributes: Attributes = {"callboard.attempt": data.attempt, "callboard.wait": data.wait}
        if self._content is not None:
            attributes["callboard.error"] = self._content.text(data.error)
        chat.span.add_event("callboard.retry", attributes, _ns(event.ts))

    def llm_response(self, event: Event, data: LlmResponse) -> None:
        """The answer is there."""
        chat = self._tree.find(event.actor, "chat", event.id)
        if chat is None:
            return
        reason = FINISH_REASONS.get(data.stop, data.stop)
        answered = provider_and_model(data.model)[1]
        chat.labels["gen_ai.response.model"] = answered
        chat.span.set_attributes({"gen_ai.response.model": answered, "gen_ai.response.finish_reasons": (reason,)})
        counts = (data.input_tokens, data.output_tokens, data.cached_tokens)
        labels = self._measured.bounded(chat.labels)
        for type, count in zip(("input", "output"), counts, strict=False):
            if count:  # a provider that does not count them is no measurement
                self._measured.tokens.record(count, {**labels, "gen_ai.token.type": type})
        above: Open | None = chat
        while above is not None:
            above.tokens = [had + more for had, more in zip(above.tokens, counts, strict=True)]
            above = above.parent
        if self._content is not None and chat.told:
            said = self._content.message("assistant", "".join(chat.told), reason)
            chat.span.set_attribute("gen_ai.output.messages", said)
        self._end(event, "chat", event.id)

    def llm_failed(self, event: Event, data: LlmFailed) -> None:
        """It is given up."""
        self._end(event, "chat", event.id, code=data.code, message=data.error)

    def tool_started(self, event: Event, data: ToolStarted) -> None:
        """A tool is called, or a script runs."""
        labels = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": data.tool}
        attributes: Attributes = {**labels, "gen_ai.tool.type": TOOL_TYPES.get(data.origin, "function")}
        if event.id:
            attributes["gen_ai.tool.call.id"] = event.id
        if data.origin == "mcp":
            labels["mcp.method.name"] = attributes["mcp.method.name"] = "tools/call"
        if self._content is not None and data.arguments:
            attributes["gen_ai.tool.call.arguments"] = self._content.text(data.arguments)
        above = self._tree.above(event.actor)
        key = event.id or data.tool
        self._tree.put(
            event.actor, self._begin("tool", key, f"execute_tool {data.tool}", event.ts, above, attributes, labels)
        )

    def tool_finished(self, event: Event, data: ToolFinished) -> None:
        """It has its result, or failed."""
        key = event.id or data.tool
        tool = self._tree.find(event.actor, "tool", key)
        if tool is None:
            return
        if data.status is not None:
            tool.span.set_attribute("process.exit.code", data.status)
        if self._content is not None and data.result:
            tool.span.set_attribute("gen_ai.tool.call.result", self._content.text(data.result))
        code = data.code or (OTHER if data.error is not None else "process" if data.status else "")
        self._end(event, "tool", key, code=code, message=data.error)

    def retrieved(self, event: Event, data: KnowledgeRetrieved) -> None:
        """Something was looked up; this is told when it is over."""
        labels = {"gen_ai.operation.name": "retrieval", "gen_ai.data_source.id": data.what}
        span = self._tracer.start_span(
            f"retrieval {data.what}",
            set_span_in_context(self._tree.above(event.actor).span, Context()),
            SpanKind.CLIENT,
            {**self._common, **labels, "callboard.chunks": data.chunks},
            start_time=_ns(event.ts) - int(data.seconds * 1e9),
        )
        span.end(_ns(event.ts))
        self._measured.chat.record(data.seconds, self._measured.bounded(labels))

    def question(self, event: Event, _: object) -> None:
        """A person is asked, or need not be any more."""
        self._tree.above(event.actor).span.add_event(
            f"callboard.{event.kind}", {"callboard.question": event.id}, _ns(event.ts)
        )

    def actor_over(self, event: Event, code: str) -> None:
        """An actor has ended, and so has all that it left open."""
        self._end_all(event.actor, event.ts, code)

    # --- beginnings and ends ----------------------------------------------------------------------------------

    def _is_top(self, kind: Kind, event: Event) -> bool:
        """Whether it is what the run was started for, which has the run's span."""
        if self._home or self._top.kind != kind:
            return False
        self._home = event.actor
        return True

    def _invoked(
        self,
        kind: Kind,
        name: str,
        event: Event,
        parent: Open | None,
        above: Context | None = None,
        attributes: Attributes | None = None,
    ) -> Open:
        labels = {"gen_ai.operation.name": f"invoke_{kind}", f"gen_ai.{kind}.name": name}
        title = f"invoke_{kind} {name}" if name else f"invoke_{kind}"
        return self._begin(
            kind, event.actor, title, event.ts, parent, {**labels, **(attributes or {})}, labels, above=above
        )

    def _begin(
        self,
        kind: Kind,
        key: object,
        title: str,
        at: datetime,
        parent: Open | None,
        attributes: Attributes,
        labels: dict[str, str] | None = None,
        span_kind: SpanKind = SpanKind.INTERNAL,
        above: Context | None = None,
    ) -> Open:
        context = above if parent is None else set_span_in_context(parent.span, Context())
        span = self._tracer.start_span(title, context, span_kind, {**self._common, **attributes}, start_time=_ns(at))
        return Open(kind, key, span, parent, at, labels if labels is not None else {})

    def _end(self, event: Event, kind: Kind, key: object = None, *, code: str = "", message: str | None = None) -> None:
        """End one, and what is open within it for the same actor: an error may have gone past its end."""
        found = self._tree.find(event.actor, kind, key)
        if found is not None:
            for open in self._tree.taken(event.actor, within=found):
                self._finish(open, event.ts, code or (CANCELLED if open is not found else ""), message)

    def _end_all(self, actor: str, at: datetime, code: str) -> None:
        for open in self._tree.taken(actor):
            self._finish(open, at, code)

    def _finish(self, open: Open, at: datetime, code: str, message: str | None = None) -> None:
        if code:
            open.span.set_attribute("error.type", code)
            told = self._content.text(message) if self._content is not None and message else None
            open.span.set_status(Status(StatusCode.ERROR, told))
        if open.kind in ("chat", "agent") and any(open.tokens):
            open.span.set_attributes({name: count for name, count in zip(_USAGE, open.tokens, strict=True) if count})
        self._measure(open, max(0.0, (at - open.began).total_seconds()), code)
        open.span.end(_ns(at))

    def _measure(self, open: Open, seconds: float, code: str) -> None:
        if open.kind == "node":
            return
        measured = self._measured
        labels = measured.bounded({**open.labels, **({"error.type": code} if code else {})})
        {"workflow": measured.workflow, "agent": measured.agent, "chat": measured.chat, "tool": measured.tool}[
            open.kind
        ].record(seconds, labels)
        if "mcp.method.name" in labels:
            measured.mcp_call.record(seconds, labels)


_USAGE = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.cache_read.input_tokens")


def _ns(at: datetime) -> int:
    """Nanoseconds since 1970."""
    return round(at.timestamp() * 1e6) * 1000
