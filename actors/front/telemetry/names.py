"""What OpenTelemetry's conventions for generative AI and MCP call things, where our names differ, and their buckets."""

from __future__ import annotations

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


def provider_and_model(id: str) -> tuple[str, str]:
    """Of `client:model`. A client that the user has named is its own provider."""
    client, _, model = id.partition(":")
    return _PROVIDERS.get(client, client), model or client
