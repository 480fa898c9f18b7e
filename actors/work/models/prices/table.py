"""Price table: providers, the models of each, their rates, and the cost of a reply.

Names are matched by genai-prices' rules: in lower case, and the first matching model counts. A provider that sells
models of others falls back to their lists.

`TokenUsage.input_tokens` includes the tokens that were read from or written to the provider's cache; `output_tokens`
includes reasoning. Each of these parts has its own rate, else the rate of the whole. With tiered rates, the highest
tier below the size of the input applies to all tokens of the request, as with all providers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from functools import cached_property
from typing import Annotated

import msgspec
from msgspec import Meta

from .....protocol.chat import TokenUsage
from .....protocol.decoding import json_decoder

USD = Annotated[float, Meta(ge=0)]


class Tier(msgspec.Struct, frozen=True, array_like=True):
    """Price per million tokens of requests with more than `above` input tokens."""

    above: Annotated[int, Meta(ge=0)]
    price: USD


class Tiered(msgspec.Struct, frozen=True, array_like=True):
    """Rate that depends on the size of the request, with its tiers in ascending order."""

    base: USD
    tiers: tuple[Tier, ...]


Rate = USD | Tiered
"""USD per million tokens."""


class Rates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Rates of a model for one period.

    Attributes:
        cached: rate of input that was read from the provider's cache.
        cache_write: rate of input that was written to the cache.
        cache_write_1h: rate of input that was written to the cache for an hour.
        reasoning: rate of reasoning tokens in the output.
        request: USD per request, in addition to its tokens.
        since: first day on which these rates apply; None for always.
        hours: start and end of the time of day at which they apply, in UTC; None for the whole day.
    """

    input: Rate | None = None
    output: Rate | None = None
    cached: Rate | None = None
    cache_write: Rate | None = None
    cache_write_1h: Rate | None = None
    reasoning: Rate | None = None
    request: USD = 0.0
    since: date | None = None
    hours: tuple[time, time] | None = None

    def count_at(self, now: datetime) -> bool:
        """Return True if these rates apply at `now` (UTC)."""
        if self.since is not None and now.date() < self.since:
            return False
        return self.hours is None or self.hours[0] <= now.timetz() < self.hours[1]

    def parts(self, usage: TokenUsage) -> Iterator[tuple[str, int, float]]:
        """Yield name, tokens and USD per million of each part of a reply that has tokens.

        The rates for input and output must be set.
        """
        # Counts of faulty servers may exceed the whole; each part is limited so that no share becomes negative.
        size = usage.input_tokens
        written = min(usage.cache_write_tokens, size)
        hour = min(usage.cache_write_1h_tokens, written)
        cached = min(usage.cached_tokens, size - written)
        thought = min(usage.reasoning_tokens, usage.output_tokens)
        shares = (
            ("input", size - cached - written, self.input),
            ("cached", cached, self.cached),
            ("cache_write", written - hour, self.cache_write),
            ("cache_write_1h", hour, self.cache_write if self.cache_write_1h is None else self.cache_write_1h),
            ("output", usage.output_tokens - thought, self.output),
            ("reasoning", thought, self.reasoning),
        )
        for position, (name, tokens, rate) in enumerate(shares):
            if tokens:
                whole = self.input if position < 4 else self.output
                yield name, tokens, _of_size(whole if rate is None else rate, size)

    def cost(self, usage: TokenUsage) -> float:
        """Return the cost of a reply in USD."""
        return sum((tokens * price for _, tokens, price in self.parts(usage)), 0.0) / 1e6 + self.request


def _of_size(rate: Rate | None, size: int) -> float:
    if not isinstance(rate, Tiered):
        return rate or 0.0
    return next((tier.price for tier in reversed(rate.tiers) if size > tier.above), rate.base)


class Tariff(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of one model.

    Attributes:
        rates: rates by period. The last that applies at a time is used, or the first if none applies.
        origins: origin of each rate, by its name.
    """

    rates: tuple[Rates, ...]
    origins: dict[str, str] = {}

    def now(self, moment: datetime | None = None) -> Rates:
        """Return the rates that apply at `moment`, by default the current time."""
        if len(self.rates) == 1:
            return self.rates[0]
        moment = moment or datetime.now(UTC)
        return next((rates for rates in reversed(self.rates) if rates.count_at(moment)), self.rates[0])

    def cost(self, usage: TokenUsage, moment: datetime | None = None) -> float:
        """Return the cost of a reply in USD, at `moment` or the current time."""
        return self.now(moment).cost(usage)


FREE = Tariff(rates=(Rates(input=0.0, output=0.0),), origins={"input": "it runs here", "output": "it runs here"})
"""Tariff of models on this machine."""


# --- providers and models


class Match(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Condition for names. Exactly one of the fields is set."""

    equals: str | None = None
    starts_with: str | None = None
    ends_with: str | None = None
    contains: str | None = None
    regex: str | None = None
    any: tuple[Match, ...] = msgspec.field(name="or", default=())
    all: tuple[Match, ...] = msgspec.field(name="and", default=())

    def __post_init__(self) -> None:
        """Raise ValueError unless exactly one field is set and a regular expression is valid."""
        given = [name for name in self.__struct_fields__ if getattr(self, name) not in (None, ())]
        if len(given) != 1:
            raise ValueError(
                f"a match must have exactly one of {', '.join(self.__struct_encode_fields__)}, not {len(given)} of them"
            )
        if self.regex is not None:
            compiled(self.regex)

    def fits(self, name: str) -> bool:
        """Return True if a name, in lower case, matches."""
        if self.equals is not None:
            return name == self.equals.lower()
        if self.starts_with is not None:
            return name.startswith(self.starts_with.lower())
        if self.ends_with is not None:
            return name.endswith(self.ends_with.lower())
        if self.contains is not None:
            return self.contains.lower() in name
        if self.regex is not None:
            return re.search(self.regex, name) is not None
        return any(part.fits(name) for part in self.any) if self.any else all(part.fits(name) for part in self.all)


def compiled(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern. Raises ValueError if it is invalid."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"'{pattern}' is not a valid regular expression: {error}") from None


class PriceEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Model in the price table.

    Attributes:
        id: name of the model in the table.
        match: condition for the names that users and providers give it.
        window: context window in tokens, if known.
        rates: rates by period, see `Tariff`.
    """

    id: str
    match: Match
    window: int | None = None
    rates: tuple[Rates, ...]


# dict=True: `cached_property` stores the decoded models in `__dict__`.
class Provider(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, dict=True):
    """Seller of models.

    Attributes:
        api: regular expression for the start of its base URLs.
        names: condition for its other names.
        falls_back: ids of the providers whose models it also sells.
        raw: its models as JSON, decoded on first use.
    """

    id: str
    api: str
    names: Match | None = None
    falls_back: tuple[str, ...] = ()
    raw: msgspec.Raw = msgspec.field(name="models")

    @cached_property
    def models(self) -> tuple[PriceEntry, ...]:
        """Models of the provider. The first access decodes them and may raise msgspec.ValidationError."""
        return _decode_entries(self.raw)

    def named(self, name: str) -> PriceEntry | None:
        """Return the model with a name in lower case, or None."""
        return next((entry for entry in self.models if entry.match.fits(name)), None)


_decode_entries = json_decoder(tuple[PriceEntry, ...]).decode


class PriceTable(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Price table of all providers. `source` is the origin of its prices, `made` their date."""

    source: str
    made: date
    providers: tuple[Provider, ...]

    def provider_at(self, url: str) -> Provider | None:
        """Return the provider with a base URL, or None."""
        return next((each for each in self.providers if re.match(each.api, url)), None)

    def provider_called(self, name: str) -> Provider | None:
        """Return the provider with an id or another name, or None. Ids take precedence."""
        name = name.strip().lower()
        # Ids first: another provider's match for names may be broad enough to include this id.
        for each in self.providers:
            if each.id == name:
                return each
        return next((each for each in self.providers if each.names is not None and each.names.fits(name)), None)

    def find(self, provider: Provider, model: str) -> tuple[str, PriceEntry] | None:
        """Return a provider's model, with the id of the provider whose list contains it; None if there is none."""
        name = model.lower()
        for each in self._sellers(provider):
            entry = each.named(name)
            if entry is not None:
                return each.id, entry
        return None

    def _sellers(self, provider: Provider) -> Iterator[Provider]:
        yield provider
        for id in provider.falls_back:
            yield from (each for each in self.providers if each.id == id)
