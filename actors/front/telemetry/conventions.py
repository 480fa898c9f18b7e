"""OpenTelemetry's conventions for generative AI and MCP: names that differ from Callboard's, histograms, and their
labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from opentelemetry.metrics import Meter

# The bucket boundaries that the conventions recommend, by kind of histogram.
OPERATION = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
INVOCATION = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
MCP = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
CALLS = (1, 2, 4, 8, 16, 32, 64, 128)

MOST_NAMES = 100
"""Maximum number of values of one label; later values are counted as `OTHER`."""

OTHER = "_OTHER"
"""The conventions' placeholder for an unlisted value."""

CANCELLED = "cancelled"
"""The `error.type` of an interrupted span."""

# The conventions' values of `gen_ai.provider.name`, for clients of another name.
_PROVIDERS = {
    "azure-openai": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "claude": "anthropic",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertexai": "gcp.vertex_ai",
    "xai": "x_ai",
}

FINISH_REASONS = {
    "end": "stop",
    "length": "length",
    "tools": "tool_call",
    "refused": "content_filter",
    "failed": "error",
}

TOOL_TYPES = {"mcp": "extension"}
"""Types of tools by origin; all other tools are functions."""

_BOUNDED = (
    "gen_ai.agent.name",
    "gen_ai.workflow.name",
    "gen_ai.tool.name",
    "gen_ai.request.model",
    "gen_ai.response.model",
    "gen_ai.data_source.id",
    "error.type",
)
"""Labels whose values come from files or models, and so need a bound."""


def provider_and_model(id: str) -> tuple[str, str]:
    """Split `client:model` into provider and model. A client with a user-defined name is its own provider."""
    client, _, model = id.partition(":")
    return _PROVIDERS.get(client, client), model or client


def server_attributes(server: str) -> dict[str, str | int]:
    """Return the attributes of `host:port`; none if nothing was asked over the network."""
    address, _, port = server.rpartition(":")
    return {"server.address": address, "server.port": int(port)} if address else {}


HISTOGRAMS: tuple[tuple[str, str, Sequence[float], str], ...] = (
    ("gen_ai.client.operation.duration", "s", OPERATION, "GenAI operation duration."),
    ("gen_ai.client.token.usage", "{token}", TOKENS, "Number of input and output tokens used."),
    ("gen_ai.client.operation.time_to_first_chunk", "s", OPERATION, "Time to receive the first chunk."),
    ("gen_ai.client.operation.time_per_output_chunk", "s", OPERATION, "Time per chunk after the first one."),
    ("gen_ai.workflow.duration", "s", INVOCATION, "Duration of a workflow."),
    ("gen_ai.invoke_agent.duration", "s", INVOCATION, "Duration of an agent's invocation."),
    ("gen_ai.invoke_agent.inference_calls", "{inference_call}", CALLS, "Model calls of an agent's invocation."),
    ("gen_ai.invoke_agent.tool_calls", "{tool_call}", CALLS, "Tool calls of an agent's invocation."),
    ("gen_ai.execute_tool.duration", "s", OPERATION, "Duration of a tool call."),
    ("mcp.client.operation.duration", "s", MCP, "Duration of a request to an MCP server."),
    ("mcp.client.session.duration", "s", MCP, "Life of a connection to an MCP server."),
)
"""Name, unit, buckets and description of each histogram."""


@final
class Instruments:
    """Histograms of a meter, by name."""

    def __init__(self, meter: Meter) -> None:
        self._by_name = {
            name: meter.create_histogram(name, unit, text, explicit_bucket_boundaries_advisory=buckets)
            for name, unit, buckets, text in HISTOGRAMS
        }
        self._known: dict[str, set[str]] = {label: set() for label in _BOUNDED}

    def record(self, name: str, value: float, labels: Mapping[str, str], code: str = "") -> None:
        """Record a value; `code` is the code of an error."""
        self._by_name[name].record(value, self.bounded({**labels, "error.type": code} if code else labels))

    def bounded(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the labels, with `OTHER` for a value beyond the first `MOST_NAMES` of its label."""
        told = dict(labels)
        for label in told.keys() & self._known.keys():
            known = self._known[label]
            if told[label] not in known and len(known) >= MOST_NAMES:
                told[label] = OTHER
            else:
                known.add(told[label])
        return told
