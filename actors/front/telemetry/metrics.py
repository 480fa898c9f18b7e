"""The histograms that the conventions name, and how many values their labels may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from opentelemetry.metrics import Histogram, Meter

from .names import CALLS, INVOCATION, MCP, MOST_NAMES, OPERATION, OTHER, TOKENS

Labels = dict[str, str]

_BOUNDED = (
    "gen_ai.agent.name",
    "gen_ai.workflow.name",
    "gen_ai.tool.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "gen_ai.data_source.id",
    "error.type",
)
"""Labels whose values are words from files, or from strangers."""


@final
class Instruments:
    """Everything that is measured."""

    def __init__(self, meter: Meter) -> None:
        def histogram(name: str, unit: str, buckets: Sequence[float], description: str) -> Histogram:
            return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=buckets)

        self.chat = histogram("gen_ai.client.operation.duration", "s", OPERATION, "GenAI operation duration.")
        self.tokens = histogram(
            "gen_ai.client.token.usage", "{token}", TOKENS, "Number of input and output tokens used."
        )
        self.first_chunk = histogram(
            "gen_ai.client.operation.time_to_first_chunk", "s", OPERATION, "Time to receive the first chunk."
        )
        self.per_chunk = histogram(
            "gen_ai.client.operation.time_per_output_chunk", "s", OPERATION, "Time per chunk after the first one."
        )
        self.workflow = histogram("gen_ai.workflow.duration", "s", INVOCATION, "Duration of a workflow.")
        self.agent = histogram("gen_ai.invoke_agent.duration", "s", INVOCATION, "Duration of an agent's invocation.")
        self.agent_turns = histogram(
            "gen_ai.invoke_agent.inference_calls", "{inference_call}", CALLS, "Model calls of an agent's invocation."
        )
        self.agent_tools = histogram(
            "gen_ai.invoke_agent.tool_calls", "{tool_call}", CALLS, "Tool calls of an agent's invocation."
        )
        self.tool = histogram("gen_ai.execute_tool.duration", "s", OPERATION, "Duration of a tool call.")
        self.mcp_call = histogram("mcp.client.operation.duration", "s", MCP, "Duration of a request to an MCP server.")
        self.mcp_session = histogram("mcp.client.session.duration", "s", MCP, "Life of a connection to an MCP server.")
        self._known: dict[str, set[str]] = {}

    def bounded(self, labels: Mapping[str, str]) -> Labels:
        """The labels; a value that comes after too many others of its label is `OTHER`."""
        told = dict(labels)
        for label in _BOUNDED:
            value = told.get(label)
            if value is None:
                continue
            known = self._known.setdefault(label, set())
            if value not in known:
                if len(known) >= MOST_NAMES:
                    told[label] = OTHER
                else:
                    known.add(value)
        return told
