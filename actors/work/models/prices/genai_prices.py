"""Conversion of genai-prices' file to a price table. The whole file is validated before any of it is used.

The table contains the prices for which `TokenUsage` has counts: text tokens in and out, cached, written and reasoning
tokens, and requests. Prices of images, sound, video and searches are omitted, since providers include their tokens in
the input count.

`python -m callboard.actors.work.models.prices.genai_prices FILE SOURCE DATE` creates `table.json`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import date, time
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from .....protocol.decoding import json_decoder
from .....protocol.errors import ConfigError
from .table import USD, Match, PriceEntry, PriceTable, Provider, Rate, Rates, Tier, Tiered, compiled

URL = "https://raw.githubusercontent.com/pydantic/genai-prices/main/prices/new_data/v2/data_slim.json"
"""URL of genai-prices' published prices."""

LARGEST = 16 * 1024 * 1024
"""Maximum size of a price file in bytes; genai-prices' has a quarter of a megabyte."""

EXPECTED = "expected `data_slim.json` (or `data.json`) of genai-prices, or a price table written by Callboard"

_RATES = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_read_mtok": "cached",
    "cache_write_mtok": "cache_write",
    "cache_write_1h_mtok": "cache_write_1h",
    "output_reasoning_mtok": "reasoning",
}
"""Names of rates in `Rates`, by genai-prices' names."""


class _Tier(msgspec.Struct):
    start: Annotated[int, Meta(ge=0)]
    price: USD


class _Tiered(msgspec.Struct):
    base: USD
    tiers: list[_Tier]


class _Constraint(msgspec.Struct):
    start_date: date | None = None
    start_time: time | None = None
    end_time: time | None = None


class _Conditional(msgspec.Struct):
    prices: dict[str, USD | _Tiered]
    constraint: _Constraint | None = None


class _Model(msgspec.Struct):
    id: str
    match: Match
    prices: dict[str, USD | _Tiered] | list[_Conditional]
    context_window: Annotated[int, Meta(gt=0)] | None = None


class _Provider(msgspec.Struct):
    id: str
    api_pattern: str
    models: list[_Model]
    provider_match: Match | None = None
    fallback_model_providers: list[str] | None = None


_decode_theirs = json_decoder(list[_Provider]).decode
_decode_ours = json_decoder(PriceTable).decode


def read(data: bytes, *, where: str, today: date) -> PriceTable:
    """Decode a price file: genai-prices' own, or a table of Callboard.

    Args:
        where: path or URL of the file, for errors, and as the table's source.
        today: date of the table, if the file is genai-prices'; Callboard's own files contain their date.

    Raises:
        ConfigError: the file is not a price file, or has no prices; the text says where it is wrong.
    """
    if len(data) > LARGEST:
        raise ConfigError(f"{where} is not a price file: it is larger than {LARGEST >> 20} MB")
    try:
        if data.lstrip()[:1] == b"{":
            table = _decode_ours(data)
            count = sum(len(provider.models) for provider in table.providers)
        else:
            table = _table(_decode_theirs(data), where, today)
            count = sum(len(provider.models) for provider in table.providers)
        for provider in table.providers:
            compiled(provider.api)  # and the models were decoded above: `Provider.models` must not fail later
    except (msgspec.DecodeError, ValueError) as error:  # ValidationError is one, UnicodeDecodeError the other
        raise ConfigError(f"{where} is not a price file: {error}; {EXPECTED}") from error
    if not count:
        raise ConfigError(f"{where} has no prices; {EXPECTED}")
    return table


def encoded(table: PriceTable) -> bytes:
    """Return the contents of a table file."""
    return msgspec.json.encode(table) + b"\n"


def _table(providers: list[_Provider], where: str, today: date) -> PriceTable:
    return PriceTable(
        source=where,
        made=today,
        providers=tuple(
            Provider(
                id=provider.id.lower(),
                api=provider.api_pattern,
                names=provider.provider_match,
                falls_back=tuple(provider.fallback_model_providers or ()),
                raw=msgspec.Raw(msgspec.json.encode([_entry(model) for model in provider.models])),
            )
            for provider in providers
        ),
    )


def _entry(model: _Model) -> PriceEntry:
    dated = model.prices if isinstance(model.prices, list) else [_Conditional(model.prices)]
    rates = tuple(_rates(each) for each in dated)
    return PriceEntry(id=model.id, match=model.match, window=model.context_window, rates=rates)


def _rates(conditional: _Conditional) -> Rates:
    prices, when = conditional.prices, conditional.constraint or _Constraint()
    found: dict[str, Any] = {ours: _rate(prices[theirs]) for theirs, ours in _RATES.items() if theirs in prices}
    requests = prices.get("requests_kcount")
    if requests:
        found["request"] = (requests.base if isinstance(requests, _Tiered) else requests) / 1000
    if when.start_time is not None and when.end_time is not None:
        found["hours"] = when.start_time, when.end_time
    return Rates(**found, since=when.start_date)


def _rate(price: float | _Tiered) -> Rate:
    if not isinstance(price, _Tiered):
        return price
    tiers = sorted(price.tiers, key=lambda tier: tier.start)
    return Tiered(price.base, tuple(Tier(tier.start, tier.price) for tier in tiers))


def main(arguments: Sequence[str]) -> None:
    """Write the table of the package.

    Args:
        arguments: genai-prices' file, the name of the source, and the date of its prices.
    """
    file, source, day = arguments
    table = read(Path(file).read_bytes(), where=file, today=date.fromisoformat(day))
    table = msgspec.structs.replace(table, source=source)
    lines = encoded(table).replace(b'{"id":', b'\n{"id":')  # one line per model, for readable diffs of updates
    Path(__file__).with_name("table.json").write_bytes(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
