"""OpenTelemetry's conventions for generative AI and MCP: names where ours differ, histograms, and their labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from opentelemetry.metrics import Histogram, Meter

OPERATION = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
INVOCATION = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
MCP = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
CALLS = (1, 2, 4, 8, 16, 32, 64, 128)

MOST_NAMES = 100
"""Values that a label of a metric has at most; what comes later is counted as `OTHER`."""

OTHER = "_OTHER"
"""The conventions' word for a value that is not among those known."""

CANCELLED = "cancelled"
"""The `error.type` of what was interrupted."""

_PROVIDERS = {
    "azure-openai": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "claude": "anthropic",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertexai": "gcp.vertex_ai",
    "xai": "x_ai",
}

FINISH_REASONS = {"end": "stop", "length": "length", "tools": "tool_call", "refused": "content_filter"}

TOOL_TYPES = {"mcp": "extension"}
"""By origin; all others are functions."""

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
"""Labels whose values are words from files, or from models."""


def provider_and_model(id: str) -> tuple[str, str]:
    """Of `client:model`. A client that the user has named is its own provider."""
    client, _, model = id.partition(":")
    return _PROVIDERS.get(client, client), model or client


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
