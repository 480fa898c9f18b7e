"""Models for `callboard models`: lists with prices, weights of local models, one model's limits, and the price table.

The wizard and the demo fetch weights here too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import trio

from ...actors.work.models import weights
from ...actors.work.models.catalog import ModelCatalog
from ...actors.work.models.model_listing import usd
from ...actors.work.models.prices.price_lookup import Finder, FoundPrice
from ...actors.work.models.prices.table import Rate, Tariff, Tiered
from ...actors.work.models.providers import KEYLESS, base_of, has_credentials, signs_in, usable_clients
from ...protocol.chat import models_of
from ...protocol.errors import CallboardError
from ...protocol.settings import ClientSettings, ModelSettings
from ...supervisors import Root
from ..render.text import json_object, redrawable

if TYPE_CHECKING:
    from ...protocol.settings import Settings

_MEGABYTE = 1_000_000


def pull_weights(name: str, *, quiet: bool) -> Path:
    """Fetch the weights of a local model and return their path.

    Raises:
        CallboardError: as `weights.pull`.
        click.exceptions.Exit: a signal interrupted it; the code is 128 plus its number.
    """
    return trio.run(_pull, name, (lambda *_: None) if quiet else _progress_printer(name))


def list_models(settings: Settings, *, as_json: bool) -> str:
    """Return the available local models, the installed ones, and the clients' models, as a table or as JSON."""
    here = {entry.model: entry for entry in weights.installed(os.environ)}
    rows = [
        {
            "model": known.id,
            "name": known.name,
            "title": known.title,
            "size": known.size,
            "path": here[known.id].path if known.id in here else None,
        }
        for known in weights.KNOWN.values()
    ]
    named = {row["model"] for row in rows}
    rows += [
        {"model": entry.model, "name": None, "title": "", "size": entry.size, "path": entry.path}
        for model, entry in here.items()
        if model not in named
    ]

    clients = usable_models(settings)
    if as_json:
        return json_object(models=rows, clients=clients)
    lines = [f"  {_client(client)}\n" for client in clients]
    return "".join([*map(_row, rows), *(["\nmodels of clients\n", *lines] if lines else [])])


def _client(client: Mapping[str, Any]) -> str:
    key = {None: "", True: " (key set)", False: " (no key)"}[client["key"]]
    key = {None: key, True: " (signed in)", False: " (not signed in)"}[client["signed_in"]]

    listed = (f"{each['id']} ({price_in_words(each)})" for each in client["models"])
    models = ", ".join(listed) or f"{client['client']}:<any name>"
    return f"{client['client']}{key}: {models}"


def _row(row: Mapping[str, Any]) -> str:
    where = row["path"] or f"not installed (callboard models pull {row['name']})"
    return f"{row['model']:<16} {row['size'] // _MEGABYTE:>5} MB  {row['title']}\n    {where}\n"


async def _pull(name: str, tell: Callable[[str, int, int], None]) -> Path:
    async with Root(signals=True) as root:
        ref = root.spawn(lambda me: weights.pull(me, name, os.environ, tell), name="pull", link=False)
        end = await ref.wait()
    if isinstance(end.error, CallboardError):
        raise end.error
    if end.reason != "normal" and end.error is None and root.signal is not None:
        sys.stderr.write("\ncallboard: stopped before the weights were complete\n")
        raise click.exceptions.Exit(128 + root.signal)
    return await ref.result()


def _progress_printer(name: str) -> Callable[[str, int, int], None]:
    live = redrawable(sys.stderr)
    last = ("", -1)

    def print_progress(what: str, done: int, total: int) -> None:
        nonlocal last
        percent = done * 100 // total if total else 0
        step = (what, percent if live else percent // 50)
        # Without a live line, every 50 % is a line of its own; more would fill a log.
        if step == last or what == "checked":
            return
        last = step
        text = f"{name}: {what}" + (f" {percent}% of {total // _MEGABYTE} MB" if total else "")
        # \x1b[K erases the rest of the row: the text before may have been longer.
        sys.stderr.write(f"\r\x1b[K{text}" if live else f"{text}\n")
        if live and total and done >= total:
            sys.stderr.write("\n")
        sys.stderr.flush()

    return print_progress


def usable_models(settings: Settings) -> list[dict[str, Any]]:
    """Return the clients of `config.yaml` and those with a key in the environment, with their models.

    Without a list in `config.yaml` a client accepts any model name. `key` is None if no key is needed, `signed_in` is
    None if there is no sign-in.
    """
    catalog = ModelCatalog(settings, os.environ)
    # The model may be a list of fallbacks, of which the first is asked first.
    default = models_of(catalog.choice().model)[0]
    return [
        {
            "client": client.name,
            "type": client.type,
            "models": [
                {
                    "id": f"{client.name}:{each.name}",
                    "type": each.type,
                    **price_in_list(client, each, catalog.prices.finder),
                }
                for each in client.models
            ],
            "key": _has_key(client, settings.file),
            "signed_in": _signed_in(client, settings) if signs_in(client) else None,
            "default": default if default.partition(":")[0] == client.name else None,
        }
        for client in usable_clients(settings, os.environ)
    ]


def _signed_in(client: ClientSettings, settings: Settings) -> bool:
    from ...actors.work.models.signed_in import is_signed_in

    return is_signed_in(client, os.environ, settings.file)


def _has_key(client: ClientSettings, file: str) -> bool | None:
    if client.type in KEYLESS or signs_in(client):
        return None
    return has_credentials(client, os.environ, file)


_RATES = ("input", "cached", "cache_write", "cache_write_1h", "output", "reasoning")
_OF_MODEL = ("max_input_tokens", "max_output_tokens")
_OF_BOTH = ("requests_per_minute", "tokens_per_minute", "max_concurrency")


def show_model(model: str, settings: Settings, *, as_json: bool) -> str:
    """Return limits and prices of a model, with the source of each.

    Raises:
        ConfigError: there is no such client or model.
        Unsupported: its client is of a type that is not supported yet.
    """
    catalog = ModelCatalog(settings, os.environ)
    client, entry = catalog.named(model)
    finder = catalog.prices.finder
    found, kept = finder.find(client, entry, base_of(client, os.environ)), finder.tables
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
        # `origins` has no entry for a price per request; a priced model always has one for `input`.
        told["request"] = {"price": rates.request, "tiers": [], "from": tariff.origins["input"]}
    return told


def _limits(
    client: ClientSettings, entry: ModelSettings, found: FoundPrice, settings: Settings
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


def price_in_list(client: ClientSettings, model: ModelSettings, finder: Finder) -> dict[str, Any]:
    """Return the current input and output prices of a model for a small request."""
    tariff = finder.find(client, model, base_of(client, os.environ)).tariff
    if tariff is None:
        return {"priced": False, "input_price": None, "output_price": None}
    rates = tariff.now()
    return {"priced": True, "input_price": _base(rates.input), "output_price": _base(rates.output)}


def _base(rate: Rate | None) -> float | None:
    return rate.base if isinstance(rate, Tiered) else rate


def price_in_words(model: Mapping[str, Any]) -> str:
    """Return the prices of `price_in_list` as text."""
    if not model["priced"]:
        return "unpriced"
    if model["output_price"] is None:
        return f"{usd(model['input_price'])} in"
    return f"{usd(model['input_price'])} in, {usd(model['output_price'])} out"


def update_prices(source: str, settings: Settings, *, as_json: bool) -> str:
    """Fetch a table of prices and store it.

    Args:
        source: a path or a URL; "" for the setting `sync_models_url`, or else genai-prices' own table.

    Raises:
        ConfigError: it is not a table of prices, or can't be read or stored.
        UpstreamError: it can't be fetched.
    """
    from ...actors.work.models.prices.update import PriceUpdate, update

    source = (source or settings.other.get("sync_models_url") or "").strip()  # a folded YAML block ends with a line end

    async def fetch() -> PriceUpdate:
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
