"""What is known of a model, in a few words, for lists to choose from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from .prices.rates import Rate, Tiered
from .providers import base_of

if TYPE_CHECKING:
    from ....protocol.settings import ClientSettings, ModelSettings
    from .prices.find import Finder

_NO_CHAT = re.compile(
    r"(?<![a-z])("
    r"audio|computer-use|guard|images?|imagen|live|moderation|ocr|realtime|robotics|safeguard|sonic|transcribe|tts|veo|"
    r"whisper|bge|clip|embed|embeddings?|minilm|rerank(er)?|ada|babbage|curie|davinci|ft"
    r")(?![a-z])"
)
"""Words in the names of models that are for something else than conversations, or for one customer alone."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens that a model takes in, and USD per million tokens of a small request."""

    window: int | None = None
    input_price: float | None = None
    output_price: float | None = None

    def __str__(self) -> str:
        """`window 400k; $0.75 in, $4.50 out`; "" where nothing is known."""
        told = []
        if self.window:
            told.append(f"window {_tokens(self.window)}")
        if self.input_price is not None or self.output_price is not None:
            prices = self.input_price or 0.0, self.output_price or 0.0
            told.append(f"{usd(prices[0])} in, {usd(prices[1])} out" if any(prices) else "free")
        return "; ".join(told)


def facts_of(finder: Finder, client: ClientSettings, model: ModelSettings, environ: Mapping[str, str]) -> Facts:
    """What settings and the table of prices know of a model. Blocks the first time: the table is read."""
    found = finder.find(client, model, base_of(client, environ))
    window = model.max_input_tokens or (found.entry.window if found.entry is not None else None)
    rates = found.tariff.now() if found.tariff is not None else None
    if rates is None:
        return Facts(window=window)
    return Facts(window=window, input_price=_base(rates.input), output_price=_base(rates.output))


def chats(name: str) -> bool:
    """Whether a model is one to chat with, as far as its name tells."""
    return _NO_CHAT.search(name.lower()) is None


def usd(price: float) -> str:
    """`$0.075`, `$2.50`."""
    text = f"{price:.6f}".rstrip("0")
    whole, _, part = text.partition(".")
    return f"${whole}.{part:0<2}"


def _base(rate: Rate | None) -> float | None:
    return rate.base if isinstance(rate, Tiered) else rate


def _tokens(window: int) -> str:
    return f"{window / 1_000_000:g}M" if window >= 1_000_000 else f"{round(window / 1000)}k"
