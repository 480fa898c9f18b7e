"""What a request may come to at most, before it goes out: what an account reserves for it (`spending.accounts`).

No tokenizer makes more tokens of a text than it has bytes, so the input is counted in bytes. The output is what the
request allows (`max_tokens`); where it says nothing, what the settings know of the model, or else `ASSUMED` tokens. The
price is the highest that the provider may ask: that of input which goes into its cache for an hour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ....protocol.chat import AssistantTurn, FilePart, TextPart, TokenUsage, parts_of
from ..spending.accounts import Amount
from .codec import is_text

if TYPE_CHECKING:
    from ....protocol.chat import ChatRequest
    from .prices.rates import Tariff
    from .target import Target

ASSUMED = 16_384
"""Tokens of a reply for which neither the request nor the settings have a bound."""

PICTURE = 50_000
"""Tokens of one image: a little more than what any provider counts."""

FRAME = 16
"""Tokens around a turn, or a tool, that stand in no text of it."""


def bound(request: ChatRequest, target: Target) -> Amount:
    """The tokens of a complete request and its reply, and what they cost; 0 USD where the price is not known."""
    return dearest(most_input(request), _most_output(request, target), target.price.tariff)


def dearest(input_tokens: int, output_tokens: int, tariff: Tariff | None) -> Amount:
    """That many tokens at the highest rates; 0 USD without a tariff."""
    usage = TokenUsage(input_tokens=input_tokens, output_tokens=output_tokens)
    cost = 0.0
    if tariff is not None:
        written = msgspec.structs.replace(
            usage, cache_write_tokens=usage.input_tokens, cache_write_1h_tokens=usage.input_tokens
        )
        cost = max(tariff.cost(usage), tariff.cost(written))
    return Amount(input_tokens + output_tokens, cost)


def most_input(request: ChatRequest) -> int:
    """Tokens that a request has at most."""
    tokens = FRAME + len(request.system.encode("utf-8", "surrogatepass"))
    for turn in request.messages:
        tokens += FRAME
        if isinstance(turn, AssistantTurn):
            tokens += len(msgspec.json.encode(turn))
            continue
        for part in parts_of(turn.content):
            if isinstance(part, TextPart):
                tokens += len(part.text.encode("utf-8", "surrogatepass"))
            elif isinstance(part, FilePart):
                tokens += len(part.data) if is_text(part) else PICTURE + len(part.data)
            else:
                tokens += PICTURE
    for tool in request.tools:
        tokens += FRAME + len(msgspec.json.encode(tool))
    if request.response_schema is not None:
        tokens += len(msgspec.json.encode(request.response_schema))
    return tokens


def _most_output(request: ChatRequest, target: Target) -> int:
    return request.max_tokens or target.model.max_output_tokens or ASSUMED
