"""Which codec speaks to a client. Those that few use are imported by the first model that needs one."""

from __future__ import annotations

from ....protocol.settings.model import Cache
from . import anthropic, gemini, ollama, openai, providers
from .codec import Codec


def codec_of(kind: str, *, own: bool, cache: Cache, base: str) -> Codec:
    """The codec for a type of clients that need no more than a key, at `base`. `own`: it is OpenAI itself."""
    match providers.BUILT_IN.get(kind, kind):
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
            return openai.OpenAiCodec(own=own, cache=cache, base=base)
