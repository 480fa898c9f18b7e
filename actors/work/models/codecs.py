"""Codec selection by client type. Each codec is imported by the first model that needs it."""

from __future__ import annotations

from ....protocol.settings import ClientSettings, ModelSettings
from ....protocol.settings.model import Cache, Interface, ReasoningSummary
from . import providers
from .codec import Codec


def codec_of(client: ClientSettings, model: ModelSettings, name: str, base: str, cache: Cache) -> Codec:
    """Return the codec of a client that needs only a key.

    Args:
        name: the provider's name of the model.
        base: base URL.
    """
    match providers.BUILT_IN.get(client.type, client.type):
        case "claude":
            from .anthropic import AnthropicCodec

            return AnthropicCodec(cache=cache)
        case "cohere":
            from .cohere import CohereCodec

            return CohereCodec()
        case "gemini":
            from .gemini import GeminiCodec

            return GeminiCodec()
        case "ollama":
            from .ollama import OllamaCodec

            return OllamaCodec()
        case _:
            own = base == providers.OPENAI
            if interface(client, model, name, own=own) == "chat":
                from .openai import OpenAiCodec

                return OpenAiCodec(own=own, cache=cache, base=base)
            from .responses import ResponsesCodec

            return ResponsesCodec(own=own, cache=cache, summary=summary(client, model))


def module_of(kind: str) -> str:
    """Return the codec module of a client type, for callers that import it in a thread."""
    return f".actors.work.models.{_MODULES.get(providers.BUILT_IN.get(kind, kind), 'openai')}"


_MODULES = {"claude": "anthropic", "cohere": "cohere", "gemini": "gemini", "ollama": "ollama", "local": "local"}


def interface(client: ClientSettings, model: ModelSettings, name: str, *, own: bool) -> Interface:
    """Return the OpenAI interface of a model: the configured one, else for OpenAI (`own`) the one that it needs."""
    said = model.api or client.api
    if said or not own:
        return said or "chat"
    from .reasoning.families import wants_responses

    return "responses" if wants_responses(name) else "chat"


def summary(client: ClientSettings, model: ModelSettings) -> ReasoningSummary:
    """Return the configured reasoning summary of a model."""
    return model.reasoning_summary or client.reasoning_summary or "auto"
