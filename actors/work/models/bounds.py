"""What a request may come to at most, before it goes out: what an account reserves for it (`spending.accounts`).

No tokenizer makes more tokens of a text than it has bytes, so the input is counted in bytes. The output is what the
request allows (`max_tokens`); where it says nothing, what the settings know of the model, or else `ASSUMED` tokens. The
price is the highest that the provider may ask: that of input which goes into its cache for an hour.

What a request allows is looked up in its body where that may differ from the request as it is asked: with patches, with
keys in the provider's own words (`extra`), and where a model thinks, for which some codecs make room. There a reply may
also have several choices, and all of them are paid for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from ....protocol.chat import AssistantTurn, FilePart, TextPart, TokenUsage, parts_of
from ....protocol.decoding import json_decoder
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

_LIMITS = (
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens", "maxTokens"),
    *("max_new_tokens", "num_predict", "n_predict"),
)
_CHOICES = ("n", "best_of", "candidateCount", "candidate_count", "num_generations")
_GROUPS = ("generationConfig", "generation_config", "inferenceConfig", "additionalModelRequestFields", "options")
"""Where providers have these keys, beside the top of the body."""


def bound(request: ChatRequest, target: Target) -> Amount:
    """The tokens of a complete request and its reply, and what they cost; 0 USD where the price is not known."""
    added = 0 if target.patched is None else target.patched.size
    if request.extra:
        added += len(msgspec.json.encode(request.extra))
    return dearest(most_input(request) + added, most_output(request, target), target.price.tariff)


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


def most_output(request: ChatRequest, target: Target) -> int:
    """Tokens that a reply may have at most, in all choices."""
    changed = target.patched is not None or bool(request.extra)
    if changed or request.thinking_budget is not None or request.reasoning_effort is not None:
        return most_allowed(target.codec.encode(request, target.name, stream=False).body, _unsaid(target))
    return request.max_tokens or _unsaid(target)


def most_allowed(body: bytes, unsaid: int) -> int:
    """Tokens that a reply may have by the body of its request, in all choices; `unsaid`: where it does not say."""
    top = _fields(body)
    found = [top, *(_fields(top[name]) for name in _GROUPS if name in top)]
    limits = [_number(fields[name]) for fields in found for name in _LIMITS if name in fields]
    choices = [_number(fields[name]) for fields in found for name in _CHOICES if name in fields]
    most = max((limit if limit > 0 else unsaid for limit in limits), default=unsaid)  # -1: as many as it likes
    return most * max(1, *choices, 1)


_fields_of = json_decoder(dict[str, msgspec.Raw]).decode


def _fields(value: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    try:
        return _fields_of(value)
    except msgspec.ValidationError:
        return {}  # no mapping


def _number(value: msgspec.Raw) -> int:
    """A number that is none counts as 0: the provider refuses it, or passes it over."""
    found = msgspec.json.decode(value)
    return math.ceil(found) if isinstance(found, int | float) else 0


def _unsaid(target: Target) -> int:
    return target.model.max_output_tokens or ASSUMED
