"""Upper bounds of a request's tokens and cost, which an account reserves before the request (`spending.accounts`).

No tokenizer produces more tokens than a text has bytes, so the input is counted in bytes. The output is the request's
`max_tokens`, else the model's limit in the settings, else `ASSUMED` tokens. The price is the highest possible one,
which is that of input written to the provider's cache for an hour.

The encoded body may allow more output than the request: through patches, through `extra` keys of the provider, or
through reasoning, for which some codecs add tokens. In these cases the limit is read from the body. Such a body may
also ask for several choices, all of which are charged.
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
    from .catalog import ModelTarget
    from .prices.table import Tariff

ASSUMED = 16_384
"""Assumed output tokens if neither the request nor the settings have a limit."""

PICTURE = 50_000
"""Tokens of one image: slightly more than any provider counts."""

FRAME = 16
"""Tokens that providers add around each turn or tool."""

_LIMITS = (
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens", "maxTokens"),
    *("max_new_tokens", "num_predict", "n_predict"),
)
_CHOICES = ("n", "best_of", "candidateCount", "candidate_count", "num_generations")
_GROUPS = ("generationConfig", "generation_config", "inferenceConfig", "additionalModelRequestFields", "options")
"""Objects of the body in which providers have these keys, in addition to its top level."""


def bound(request: ChatRequest, target: ModelTarget) -> Amount:
    """Return the maximum tokens and cost of a complete request and its reply; 0 USD if the price is unknown."""
    added = 0 if target.patched is None else target.patched.size
    if request.extra:
        added += len(msgspec.json.encode(request.extra))
    return dearest(most_input(request) + added, most_output(request, target), target.price.tariff)


def dearest(input_tokens: int, output_tokens: int, tariff: Tariff | None) -> Amount:
    """Return the amount for these tokens at the highest rates; 0 USD without a tariff."""
    usage = TokenUsage(input_tokens=input_tokens, output_tokens=output_tokens)
    cost = 0.0
    if tariff is not None:
        written = msgspec.structs.replace(
            usage, cache_write_tokens=usage.input_tokens, cache_write_1h_tokens=usage.input_tokens
        )
        cost = max(tariff.cost(usage), tariff.cost(written))
    return Amount(input_tokens + output_tokens, cost)


def most_input(request: ChatRequest) -> int:
    """Return the maximum input tokens of a request."""
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


def most_output(request: ChatRequest, target: ModelTarget) -> int:
    """Return the maximum output tokens of a reply, over all its choices."""
    changed = target.patched is not None or bool(request.extra)
    if changed or request.thinking_budget is not None or request.reasoning_effort is not None:
        return most_allowed(target.codec.encode(request, target.name, stream=False).body, _unsaid(target))
    return request.max_tokens or _unsaid(target)


def most_allowed(body: bytes, unsaid: int) -> int:
    """Return the maximum output tokens by the body of a request, over all choices; `unsaid` if it has no limit."""
    top = _fields(body)
    found = [top, *(_fields(top[name]) for name in _GROUPS if name in top)]
    limits = [_number(fields[name]) for fields in found for name in _LIMITS if name in fields]
    choices = [_number(fields[name]) for fields in found for name in _CHOICES if name in fields]
    most = max((limit if limit > 0 else unsaid for limit in limits), default=unsaid)  # -1 means no limit
    return most * max(1, *choices, 1)


_fields_of = json_decoder(dict[str, msgspec.Raw]).decode


def _fields(value: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    try:
        return _fields_of(value)
    except msgspec.ValidationError:
        return {}  # not a mapping


def _number(value: msgspec.Raw) -> int:
    """Return a number, rounded up. Any other value counts as 0: the provider refuses or ignores it."""
    found = msgspec.json.decode(value)
    return math.ceil(found) if isinstance(found, int | float) else 0


def _unsaid(target: ModelTarget) -> int:
    return target.model.max_output_tokens or ASSUMED
