"""Which codec speaks to a client. Those that few use are imported by the first model that needs one."""

from __future__ import annotations

from ....protocol.settings import ClientSettings, ModelSettings
from ....protocol.settings.model import Cache, Interface, ReasoningSummary
from . import anthropic, gemini, ollama, openai, providers
from .codec import Codec
from .reasoning.families import wants_responses


def codec_of(client: ClientSettings, model: ModelSettings, name: str, base: str, cache: Cache) -> Codec:
    """The codec for a client that needs no more than a key, at `base`; the provider calls the model `name`."""
    match providers.BUILT_IN.get(client.type, client.type):
        case "claude":
            return anthropic.AnthropicCodec(cache=cache)
        case "cohere":
            from .cohere import CohereCodec

            return CohereCodec()
        case "gemini":
            return gemini.GeminiCodec()
        case "ollama":
            return ollama.OllamaCodec()
        case _:
            own = base == openai.DEFAULT_BASE
            if interface(client, model, name, own=own) == "chat":
                return openai.OpenAiCodec(own=own, cache=cache, base=base)
            from .responses import ResponsesCodec

            return ResponsesCodec(own=own, cache=cache, summary=summary(client, model))


def interface(client: ClientSettings, model: ModelSettings, name: str, *, own: bool) -> Interface:
    """By which interface of OpenAI's a model is asked: what is said, or (`own`: it is OpenAI's) the one it needs."""
    return model.api or client.api or ("responses" if own and wants_responses(name) else "chat")


def summary(client: ClientSettings, model: ModelSettings) -> ReasoningSummary:
    """What it shows of its thinking."""
    return model.reasoning_summary or client.reasoning_summary or "auto"
