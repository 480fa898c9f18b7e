"""What `callboard models show` and `update` do, the prices in `list`, and the names that complete a model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import trio

from ..actors.work.models.catalog import Catalog
from ..actors.work.models.facts import usd
from ..actors.work.models.prices.find import Finder, Found
from ..actors.work.models.prices.rates import Rate, Tariff, Tiered
from ..actors.work.models.providers import base_of
from ..protocol.settings import ClientSettings, ModelSettings
from .render.text import json_object

if TYPE_CHECKING:
    from ..protocol.settings import Settings

_RATES = ("input", "cached", "cache_write", "cache_write_1h", "output", "reasoning")
_OF_MODEL = ("max_input_tokens", "max_output_tokens")
_OF_BOTH = ("requests_per_minute", "tokens_per_minute", "max_concurrency")


def show_model(model: str, settings: Settings, *, as_json: bool) -> str:
    """Limits and prices of a model, and where each of them is from.

    Raises:
        ConfigError: no such client or model.
        Unsupported: its client is of a type that can't be used yet.
    """
    catalog = Catalog(settings, os.environ)
    client, entry = catalog.named(model)
    finder = catalog.prices.finder
    found, kept = finder.find(client, entry, base_of(client, os.environ)), finder.kept
    told: dict[str, Any] = {
        "model": f"{client.name}:{entry.name}",
        "client": client.name,
        "type": client.type,
        "name": entry.real_name or entry.name,
        "api_base": base_of(client, os.environ),
        "priced": found.tariff is not None,
        "prices": {} if found.tariff is None else _prices(found.tariff),
        "limits": dict(_limits(client, entry, found, settings)),
        "table": {"source": kept.table.source, "made": kept.table.made.isoformat(), "problem": kept.problem},
    }
    return json_object(**told) if as_json else _as_text(told)


def _prices(tariff: Tariff) -> dict[str, Any]:
    rates = tariff.now()
    told: dict[str, Any] = {}
    for name in _RATES:
        rate: Rate | None = getattr(rates, name)
        if rate is None:
            continue
        tiers = rate.tiers if isinstance(rate, Tiered) else ()
        told[name] = {
            "price": rate.base if isinstance(rate, Tiered) else rate,
            "tiers": [{"above": tier.above, "price": tier.price} for tier in tiers],
            "from": tariff.origins[name],
        }
    if rates.request:
        told["request"] = {"price": rates.request, "tiers": [], "from": tariff.origins["input"]}
    return told


def _limits(
    client: ClientSettings, entry: ModelSettings, found: Found, settings: Settings
) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in (*_OF_MODEL, *_OF_BOTH):
        value = getattr(entry, name)
        if value is not None:
            yield name, {"value": value, "from": f"the model in {settings.file}"}
        elif name in _OF_BOTH and (of_client := getattr(client, name)) is not None:
            yield name, {"value": of_client, "from": f"the client in {settings.file}"}
    if found.entry is not None and found.entry.window is not None:
        origin = f"price table: {found.seller} {found.entry.id}"
        yield "context_window", {"value": found.entry.window, "from": origin}


def _as_text(told: Mapping[str, Any]) -> str:
    rows = [("client", f"{told['client']} (type {told['type']})", told["api_base"]), ("name", told["name"], "")]
    for name, price in told["prices"].items():
        unit = "a request" if name == "request" else "per million tokens"
        tiers = "".join(f", {usd(tier['price'])} above {tier['above']:,} of input" for tier in price["tiers"])
        rows.append((name, f"{usd(price['price'])} {unit}{tiers}", price["from"]))
    rows += [(name, f"{limit['value']:,}", limit["from"]) for name, limit in told["limits"].items()]
    if not told["priced"]:
        rows.append(("price", "unpriced", "give it `input_price` and `output_price` in config.yaml"))
    wide = max(len(value) for _, value, _ in rows)
    lines = [f"  {name:<19} {value:<{wide}}  {origin}".rstrip() for name, value, origin in rows]
    table = told["table"]
    problem = f"warning: {table['problem']}\n" if table["problem"] else ""
    return "\n".join([told["model"], *lines, f"prices: {table['source']}, of {table['made']}\n{problem}"])


def in_short(client: ClientSettings, model: ModelSettings, finder: Finder) -> dict[str, Any]:
    """The prices of a model in a list: those of input and output, of a small request, now."""
    tariff = finder.find(client, model, base_of(client, os.environ)).tariff
    if tariff is None:
        return {"priced": False, "input_price": None, "output_price": None}
    rates = tariff.now()
    return {"priced": True, "input_price": _base(rates.input), "output_price": _base(rates.output)}


def _base(rate: Rate | None) -> float | None:
    return rate.base if isinstance(rate, Tiered) else rate


def in_words(model: Mapping[str, Any]) -> str:
    """What `in_short` says, in a line."""
    if not model["priced"]:
        return "unpriced"
    if model["output_price"] is None:
        return f"{usd(model['input_price'])} in"
    return f"{usd(model['input_price'])} in, {usd(model['output_price'])} out"


def update_prices(source: str, settings: Settings, *, as_json: bool) -> str:
    """Fetches a table of prices and keeps it.

    Args:
        source: a path or a URL; "" for `sync_models_url` of the settings, or else genai-prices' own.

    Raises:
        ConfigError: it is no table of prices, or can't be read or kept.
        UpstreamError: it can't be fetched.
    """
    from ..actors.work.models.prices.update import Updated, update

    source = source or settings.other.get("sync_models_url") or ""

    async def fetch() -> Updated:
        return await update(source, os.environ, today=datetime.now(UTC).date())

    updated = trio.run(fetch)
    table = updated.table
    models = sum(len(provider.models) for provider in table.providers)
    told = {
        "source": table.source,
        "made": table.made.isoformat(),
        "file": str(updated.file),
        "providers": len(table.providers),
        "models": models,
    }
    if as_json:
        return json_object(**told)
    return f"prices of {models} models of {len(table.providers)} providers, from {table.source}\n{updated.file}\n"
