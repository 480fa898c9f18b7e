"""Models for `callboard models`: list, prices, limits, checks, weights of local models, and the price table.

`callboard doctor --models` checks models too. A check without `--live` sends no request: it examines the entry, its
credentials, price and limits. The wizard and the demo download weights here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
import trio

from ...actors.io.directories import config_dir as configured
from ...actors.io.vault.lookups import ForChecks
from ...actors.io.vault.vault import Vault
from ...actors.runs.model_checks import AT_ONCE, Checked, all_models, ask, check, exit_code
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
from ..frame import act, choose_display
from ..render.text import json_object, one_line, redrawable, safe

if TYPE_CHECKING:
    from ...actors.runs.root import Root as RunRoot
    from ...protocol.settings import Settings
    from ...supervisors import Actor


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
        sys.stderr.write("\ncallboard: the download of the weights was interrupted\n")
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
        tiers = "".join(f", {usd(tier['price'])} above {tier['above']:,} input tokens" for tier in price["tiers"])
        rows.append((name, f"{usd(price['price'])} {unit}{tiers}", price["from"]))
    rows += [(name, f"{limit['value']:,}", limit["from"]) for name, limit in told["limits"].items()]
    if not told["priced"]:
        rows.append(("price", "unpriced", "set `input_price` and `output_price` in config.yaml"))
    wide = max(len(value) for _, value, _ in rows)
    lines = [f"  {name:<19} {value:<{wide}}  {origin}".rstrip() for name, value, origin in rows]
    table = told["table"]
    problem = f"warning: {table['problem']}\n" if table["problem"] else ""
    return "\n".join([told["model"], *lines, f"prices: {table['source']}, of {table['made']}\n{problem}"])


def price_in_list(client: ClientSettings, model: ModelSettings, finder: Finder) -> dict[str, Any]:
    """Return the current input and output prices of a model for a small request, in USD per million tokens.

    Both are None, and `priced` is false, if no price is known.
    """
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


_SAID = 40
"""Characters shown of a reply."""


def check_models(names: Sequence[str], settings: Settings, config_dir: str | None, *, live: bool, as_json: bool) -> int:
    """Check these models, or all of config.yaml; return the exit code of the first unusable one, or 0.

    With `live`, one request is sent to each model that passes the check.

    Raises:
        ConfigError: there is no such client or model.
    """
    found = checked_models(names, settings, configured(config_dir, os.environ)[0])
    if live:
        found = _asked(found, config_dir, shown=not as_json)
    elif not as_json:
        sys.stdout.write("".join(f"{as_check_text(each)}\n" for each in found))
    if as_json:
        sys.stdout.write(json_object(models=msgspec.to_builtins(found)))
    return exit_code(found)


def checked_models(names: Sequence[str], settings: Settings, home: Path) -> list[Checked]:
    """Check the named models, or all of config.yaml, without a request: entry, credentials, price, and limits."""
    vault = Vault(settings, home, os.environ)
    catalog = ModelCatalog(settings, os.environ, vault=ForChecks(vault))
    meant = (catalog.full(each) for name in names for each in models_of(name))
    wanted = list(dict.fromkeys(meant)) or all_models(settings, catalog)
    return [check(name, settings, catalog, os.environ) for name in wanted]


def _asked(found: list[Checked], config_dir: str | None, *, shown: bool) -> list[Checked]:
    """Send a request to each model and print each result as soon as it is known."""
    progress = choose_display(sys.stderr, quiet=not redrawable(sys.stderr), verbose=False)
    unwritten: list[OSError] = []

    async def ask_all(me: Actor, root: RunRoot) -> list[Checked]:
        known: dict[str, Checked] = {}
        limiter = trio.CapacityLimiter(AT_ONCE)

        async def one(each: Checked) -> None:
            known[each.model] = await ask(me, each, root.gateway, root.knowledge, limiter)
            if shown and not unwritten:
                try:
                    with progress.aside():
                        sys.stdout.write(f"{as_check_text(known[each.model])}\n")
                        sys.stdout.flush()
                except OSError as error:
                    # Raised after the nursery: in it, a closed pipe would cancel requests that are paid for, and `act`
                    # would report a crash.
                    unwritten.append(error)

        async with trio.open_nursery() as nursery:
            for each in found:
                nursery.start_soon(one, each)
        return [known[each.model] for each in found]

    asked = act(ask_all, config_dir=config_dir, progress=progress)
    if unwritten:
        raise unwritten[0]
    return asked


def as_check_text(checked: Checked) -> str:
    """Return the result of a check in one or more lines."""
    if checked.failed is not None:
        return safe(f"FAILED {checked.model}\n       {checked.failed.message}")
    facts = [f"key: {checked.key}" if checked.key else "no key", _price_text(checked)]
    if checked.window is not None:
        facts.append(f"window {checked.window:,} ({checked.window_from})")
    elif checked.kind == "chat":
        facts.append("context window unknown (set `max_input_tokens`)")
    if checked.lacks:
        facts.append(f"without {', '.join(checked.lacks)}")
    lines = [f"ok     {checked.model}", f"       {'; '.join(facts)}"]
    if checked.answer is not None:
        lines.append(f"       {_answer_text(checked)}")
    return safe("\n".join(lines))


def _price_text(checked: Checked) -> str:
    if not checked.priced:
        return "unpriced"
    if not checked.input_price and not checked.output_price:
        return "free"
    out = "" if checked.output_price is None else f", {usd(checked.output_price)} out"
    return f"{usd(checked.input_price or 0.0)} in{out}"


def _answer_text(checked: Checked) -> str:
    answer = checked.answer
    assert answer is not None
    took = f"in {answer.seconds:.1f} s"
    if answer.first is not None:
        took += f" (the first of it after {answer.first:.1f} s)"
    if checked.kind != "chat":
        return f"answered {took}: {answer.text}"
    said = f"`{one_line(answer.text, _SAID)}`" if answer.text.strip() else "no text"
    cost = "" if answer.cost is None else f", {usd(answer.cost) if answer.cost >= 1e-6 else 'less than $0.000001'}"
    return f"answered {said} {took}; {answer.input_tokens} + {answer.output_tokens} tokens{cost}"
