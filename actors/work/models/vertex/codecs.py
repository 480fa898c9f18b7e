"""Codecs of models on Vertex AI: the format of each model's maker, at Google's URLs.

    gemini-2.5-flash, google/...        {project}/publishers/google/models/{model}:generateContent
                                        {project}/publishers/google/models/{model}:streamGenerateContent?alt=sse
    claude-haiku-4-5@20251001           {project}/publishers/anthropic/models/{model}:rawPredict
    anthropic/...                       {project}/publishers/anthropic/models/{model}:streamRawPredict
    mistral-..., mistralai/...          {project}/publishers/mistralai/models/{model}:rawPredict, OpenAI's format
    meta/llama-..., any other maker     {project}/endpoints/openapi/chat/completions
    endpoints/123                       {project}/endpoints/123:generateContent, a tuned model; also by its full name,
                                        projects/.../locations/.../endpoints/123

Claude's body has `anthropic_version: vertex-2023-10-16` instead of the model, and accepts images only as bytes.

Sources: google-genai and anthropic's own clients (`anthropic.lib.vertex`);
https://cloud.google.com/vertex-ai/generative-ai/docs/maas/call-open-model-apis.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from .....protocol import chat
from .....protocol.errors import ConfigError, ModelError
from .....protocol.settings.model import Cache
from .. import codec
from ..anthropic import AnthropicCodec
from ..gemini import GeminiCodec
from ..openai import OpenAiCodec
from .publishers import maker_of
from .vertex_access import VertexAccess

Json = Any

CLAUDE_VERSION = "vertex-2023-10-16"

OnVertex = GeminiCodec | AnthropicCodec | OpenAiCodec


def vertex_codec(model: str, access: VertexAccess, cache: Cache, client: str) -> OnVertex:
    """Return the codec of a model.

    Raises:
        ConfigError: the model needs more than an API key.
    """
    maker, _ = maker_of(model)
    if maker == "google":
        return GeminiOnVertex(access)
    if access.is_express:
        raise ConfigError(
            f"'{client}:{model}' can't be reached with an API key alone: client '{client}' needs a `project_id`, and "
            "credentials in place of the key"
        )
    return ClaudeOnVertex(access, cache) if maker == "anthropic" else OpenOnVertex(access)


class GeminiOnVertex(GeminiCodec):
    """Codec for Gemini, and for models tuned from it."""

    def __init__(self, access: VertexAccess) -> None:
        super().__init__()
        self._door = access

    def headers(self, key: str) -> dict[str, str]:
        """Return the header with the API key, if one is used."""
        return self._door.headers(key)

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> codec.Outgoing:
        """Return the request in Gemini's format."""
        name = maker_of(model)[1].removeprefix("models/")
        outgoing = super().encode(request, name, stream=stream)
        # A name with a slash is the path of a tuned model (`endpoints/123`), which belongs to the project, not to
        # Google.
        return self._door.out(outgoing, outgoing.path if "/" in name else f"/publishers/google{outgoing.path}")


class ClaudeOnVertex(AnthropicCodec):
    """Codec for Claude."""

    def __init__(self, access: VertexAccess, cache: Cache) -> None:
        super().__init__(cache=cache)
        self._door = access

    def headers(self, key: str) -> dict[str, str]:
        """Return the header with the API key, if one is used."""
        return self._door.headers(key)

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> codec.Outgoing:
        """Return the request in Anthropic's format. Raises ModelError if it has an image by URL."""
        for turn in request.messages:
            parts = () if isinstance(turn, chat.AssistantTurn) else chat.parts_of(turn.content)
            for part in parts:
                if isinstance(part, chat.ImagePart) and part.url and not part.url.startswith("data:"):
                    raise ModelError(f"Claude on Vertex AI takes images as bytes only, not as a URL: {part.url}")
        name = maker_of(model)[1]
        what = "streamRawPredict" if stream else "rawPredict"
        outgoing = super().encode(request, name, stream=stream)
        return self._door.out(outgoing, f"/publishers/anthropic/models/{quote(name, safe='@')}:{what}")

    def addressed(self, _model: str) -> Mapping[str, Json]:
        """Return the version of the format; the path contains the model."""
        return {"anthropic_version": CLAUDE_VERSION}


class OpenOnVertex(OpenAiCodec):
    """Codec for models of other makers, in OpenAI's format."""

    def __init__(self, access: VertexAccess) -> None:
        super().__init__(own=False, cache="off")
        self._door = access

    def headers(self, key: str) -> dict[str, str]:
        """Return the header with the API key, if one is used."""
        return self._door.headers(key)

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> codec.Outgoing:
        """Return the request as a chat completion."""
        maker, name = maker_of(model)
        if maker == "mistralai":
            what = "streamRawPredict" if stream else "rawPredict"
            outgoing = super().encode(request, name, stream=stream)
            return self._door.out(outgoing, f"/publishers/{maker}/models/{quote(name, safe='@')}:{what}")
        # The shared endpoint of open models needs the maker in the model name; Mistral's own path does not.
        outgoing = super().encode(request, f"{maker}/{name}", stream=stream)
        return self._door.out(outgoing, f"/endpoints/openapi{outgoing.path}")
