"""Which codec speaks to a client. Each is imported by the first model that needs it."""

from __future__ import annotations

from ....protocol.settings import ClientSettings, ModelSettings
from ....protocol.settings.model import Cache, Interface, ReasoningSummary
from . import providers
from .codec import Codec


def codec_of(client: ClientSettings, model: ModelSettings, name: str, base: str, cache: Cache) -> Codec:
    """The codec for a client that needs no more than a key, at `base`; the provider calls the model `name`."""
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
    """The module of the codec for a type of clients, for those who import it in a thread."""
    return f".actors.work.models.{_MODULES.get(providers.BUILT_IN.get(kind, kind), 'openai')}"


_MODULES = {"claude": "anthropic", "cohere": "cohere", "gemini": "gemini", "ollama": "ollama", "local": "local"}


def interface(client: ClientSettings, model: ModelSettings, name: str, *, own: bool) -> Interface:
    """By which interface of OpenAI's a model is asked: what is said, or (`own`: it is OpenAI's) the one it needs."""
    said = model.api or client.api
    if said or not own:
        return said or "chat"
    from .reasoning.families import wants_responses

    return "responses" if wants_responses(name) else "chat"


def summary(client: ClientSettings, model: ModelSettings) -> ReasoningSummary:
    """What it shows of its thinking."""
    return model.reasoning_summary or client.reasoning_summary or "auto"
