"""Lists of usable models with short descriptions (context window, prices), for selection and completion of names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from ....protocol.chat import models_of
from .catalog import ModelCatalog
from .prices.table import Rate, Tiered
from .providers import base_of, usable_clients

if TYPE_CHECKING:
    from ....protocol.settings import ClientSettings, ModelSettings, Settings
    from .prices.price_lookup import Finder


def model_names(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the ids of known chat models, each once. This may block while the price table is loaded.

    The configured models are first. Then follow the models of each usable client: its list in `config.yaml`, else its
    models in the price table whose names suggest a chat model.
    """
    chosen = models_of(settings.model) if settings.model else ()
    yield from dict.fromkeys(chosen)
    yield from (name for name in _of_clients(settings, environ) if name not in chosen)


def _of_clients(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    catalog = ModelCatalog(settings, environ)
    for client in usable_clients(settings, environ):
        if client.models:
            yield from (f"{client.name}:{model.name}" for model in client.models if model.type == "chat")
        else:
            yield from (
                f"{client.name}:{name}"
                for name in catalog.prices.finder.known(client, base_of(client, environ))
                if chats(name) and not name.startswith("regional.")  # prefix of Bedrock's regional prices in the table
            )


_NO_CHAT = re.compile(
    r"(?<![a-z])("
    r"audio|computer-use|guard|images?|imagen|live|moderation|ocr|realtime|robotics|safeguard|sonic|transcribe|tts|veo|"
    r"whisper|bge|clip|embed|embeddings?|minilm|rerank(er)?|ada|babbage|curie|davinci|ft"
    r")(?![a-z])"
)
"""Words in the names of models that are not for conversations, or are fine-tuned for one customer."""


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Context window in tokens, and prices in USD per million tokens of a small request. None means unknown."""

    window: int | None = None
    input_price: float | None = None
    output_price: float | None = None

    def __str__(self) -> str:
        """Return text like `window 400k; $0.75 in, $4.50 out`; "" if nothing is known."""
        facts = []
        if self.window:
            facts.append(f"window {_tokens(self.window)}")
        if self.input_price is not None or self.output_price is not None:
            prices = self.input_price or 0.0, self.output_price or 0.0
            facts.append(f"{usd(prices[0])} in, {usd(prices[1])} out" if any(prices) else "free")
        return "; ".join(facts)


def facts_of(finder: Finder, client: ClientSettings, model: ModelSettings, environ: Mapping[str, str]) -> ModelFacts:
    """Return context window and prices of a model, from settings and price table. The first call blocks: it loads the
    table.
    """
    found = finder.find(client, model, base_of(client, environ))
    window = model.max_input_tokens or (found.entry.window if found.entry is not None else None)
    # Only the current base rate is shown: tiers and cache rates do not fit into one line of a list.
    rates = found.tariff.now() if found.tariff is not None else None
    if rates is None:
        return ModelFacts(window=window)
    return ModelFacts(window=window, input_price=_base(rates.input), output_price=_base(rates.output))


def chats(name: str) -> bool:
    """Return True if the name suggests a chat model."""
    return _NO_CHAT.search(name.lower()) is None


def usd(price: float) -> str:
    """Return a price with two to six decimal places: `$0.075`, `$2.50`."""
    text = f"{price:.6f}".rstrip("0")
    whole, _, part = text.partition(".")
    return f"${whole}.{part:0<2}"


def _base(rate: Rate | None) -> float | None:
    return rate.base if isinstance(rate, Tiered) else rate


def _tokens(window: int) -> str:
    return f"{window / 1_000_000:g}M" if window >= 1_000_000 else f"{round(window / 1000)}k"
