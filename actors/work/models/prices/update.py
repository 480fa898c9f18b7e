"""Download and installation of a newer price table: genai-prices' file, or a `models.yaml` merged into the table.

`models.yaml` is a file of Loki and aichat:

    - provider: openai                 # `platform` in older files
      models:
        - name: gpt-4o
          max_input_tokens: 128000
          input_price: 2.5             # USD per million tokens
          output_price: 10

The file has neither rates for cached tokens nor tiers. If the table has the same prices for a model, its entry is
retained with these rates. If the prices differ, or the model is not in the table, the file takes precedence. Models
without a price are skipped, and so are patched variants of another model (`real_name`): no provider knows their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path

import httpx
import msgspec
import trio

from .....protocol import tree
from .....protocol.errors import ConfigError, UpstreamError
from .....protocol.problems import Problem
from .....protocol.reading import Reading
from .....protocol.yaml_tree import parse
from ....io.http.transport import TrioTransport
from .genai_prices import LARGEST, URL, read
from .price_lookup import SELLERS, keep, vendored
from .table import USD, Match, PriceEntry, PriceTable, Provider, Rate, Rates, Tiered

TIMEOUT = 60.0
"""Time limit of a download in seconds."""


class PriceUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an update: the table, and the file that contains it."""

    table: PriceTable
    file: Path


async def update(source: str, environ: Mapping[str, str], *, today: date) -> PriceUpdate:
    """Read a price file, validate it, and install it as the updated table. Files are read and written in a thread.

    Args:
        source: path or http(s) URL of genai-prices' file or Loki's `models.yaml`; "" for genai-prices' own URL.
        today: day of the update.

    Raises:
        ConfigError: the file is unreadable or not a price file; the old table is unchanged.
        UpstreamError: the download failed.
    """
    source = source or URL
    if source.startswith(("http://", "https://")):
        data = await _fetched(source, environ)
    else:
        data = await trio.to_thread.run_sync(_contents, source)
    table = await trio.to_thread.run_sync(_read, data, source, today)
    return PriceUpdate(table=table, file=await trio.to_thread.run_sync(keep, table, environ))


def _read(data: bytes, source: str, today: date) -> PriceTable:
    if not is_yaml(data):
        return msgspec.structs.replace(read(data, where=source, today=today), source=source, made=today)
    return laid_over(vendored(), data, where=source, today=today)


def _contents(source: str) -> bytes:
    file = Path(source).expanduser()
    try:
        with file.open("rb") as stream:
            return stream.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"{file} can't be read: {error.strerror}") from error


async def _fetched(url: str, environ: Mapping[str, str]) -> bytes:
    try:
        with trio.fail_after(TIMEOUT):
            return await _body(url, environ)
    except trio.TooSlowError:
        raise UpstreamError(f"{url} was not fetched within {TIMEOUT:g} s") from None
    except httpx.HTTPError as error:
        raise UpstreamError(f"{url} can't be fetched: {str(error) or type(error).__name__}") from error
    except httpx.InvalidURL as error:
        raise ConfigError(f"{url} is no URL: {error}") from error


async def _body(url: str, environ: Mapping[str, str]) -> bytes:
    transport = TrioTransport(environ=environ)
    async with (
        httpx.AsyncClient(transport=transport, timeout=TIMEOUT, follow_redirects=True, trust_env=False) as client,
        client.stream("GET", url, headers={"accept-encoding": "identity"}) as response,
    ):
        if response.status_code != 200:
            raise UpstreamError(f"{url} can't be fetched: HTTP {response.status_code}", status=response.status_code)
        body = bytearray()
        async for piece in response.aiter_raw():  # raw: a small compressed answer must not decompress to a huge one
            body += piece
            if len(body) > LARGEST:
                break  # `read` raises the error
        return bytes(body)


# --- `models.yaml` of Loki and aichat


LARGEST_YAML = 2 * 1024 * 1024
"""Maximum size of the file in bytes; Loki's has 60 KB."""

EXPECTED_YAML = "expected a list of entries with `provider:` and `models:`, each model with a `name`"

_NOWHERE = "(?!)"
"""Pattern that matches no address, for a provider that is found only by its name."""


class _Model(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    real_name: str = ""
    max_input_tokens: int | None = None
    input_price: USD | None = None
    output_price: USD | None = None


class _Provider(msgspec.Struct, frozen=True, kw_only=True):
    provider: str = ""
    platform: str = ""


def is_yaml(data: bytes) -> bool:
    """Return True if the contents of a file are not JSON."""
    return data.lstrip()[:1] not in (b"{", b"[")


def laid_over(table: PriceTable, data: bytes, *, where: str, today: date) -> PriceTable:
    """Return the table with the models of a file merged in.

    Args:
        where: path or URL of the file.
        today: day of the download.

    Raises:
        ConfigError: the file is invalid or has no prices; the text names the line.
    """
    listed: dict[str, dict[str, _Model]] = {}
    for name, model in _models(data, where):
        if model.input_price is not None and model.real_name in ("", model.name):
            # The first entry of a name counts if the file lists it twice.
            listed.setdefault(_seller(table, name), {}).setdefault(model.name, model)
    if not listed:
        raise ConfigError(f"{where} has no prices; {EXPECTED_YAML}")
    known = [_with(provider, listed.pop(provider.id, {})) for provider in table.providers]
    new = [_with(_unknown(id), models) for id, models in listed.items()]
    return PriceTable(source=where, made=today, providers=(*known, *new))


def _models(data: bytes, where: str) -> Iterator[tuple[str, _Model]]:
    """Yield the models of the file, each with the name of its provider."""
    if len(data) > LARGEST_YAML:
        raise ConfigError(f"{where} is not a models file: it is larger than {LARGEST_YAML >> 20} MB")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where} is not a models file: {error}") from None
    root, problems = parse(text, where)
    _check([problem for problem in problems if problem.code != "empty_file"], where)
    if not isinstance(root, tree.Sequence):
        raise ConfigError(
            f"{where} is not a models file: it contains {tree.describe(root) if root else 'nothing'}; {EXPECTED_YAML}"
        )
    reading = Reading(where, prefix="")
    for number, item in enumerate(root.items):
        if not isinstance(item, tree.Mapping):
            raise _wrong(where, item, f"[{number}] is {tree.describe(item)}, not a provider")
        provider = reading.fill(_Provider, item, (number,))
        entry = item.entries.get("models")
        if not (provider.provider or provider.platform) or entry is None or not isinstance(entry.value, tree.Sequence):
            raise _wrong(where, item, f"[{number}] has no `provider`, or no list of `models`")
        for place, each in enumerate(entry.value.items):
            if not isinstance(each, tree.Mapping):
                raise _wrong(where, each, f"[{number}].models[{place}] is {tree.describe(each)}, not a model")
            model = reading.fill(_Model, each, (number, "models", place), what="a model")
            _check(reading.problems, where)
            yield provider.provider or provider.platform, model


def _check(problems: list[Problem], where: str) -> None:
    error = next((problem for problem in problems if problem.severity == "error"), None)
    if error is not None:
        raise ConfigError(f"{where} is not a models file: line {error.line}: {error.message}; {EXPECTED_YAML}")


def _wrong(where: str, node: tree.Node, what: str) -> ConfigError:
    return ConfigError(f"{where} is not a models file: line {node.line}: {what}; {EXPECTED_YAML}")


def _seller(table: PriceTable, name: str) -> str:
    """Return the table's id of a provider in the file."""
    wanted = SELLERS.get(name.strip().lower(), name)
    provider = table.provider_called(wanted)
    return wanted.strip().lower() if provider is None else provider.id


def _unknown(id: str) -> Provider:
    return Provider(id=id, api=_NOWHERE, raw=msgspec.Raw(b"[]"))


def _with(provider: Provider, models: dict[str, _Model]) -> Provider:
    """Return the provider with new or changed models before its own: the first match of a name counts."""
    new = [entry for model in models.values() if (entry := _entry(provider, model)) is not None]
    if not new:
        return provider
    # New entries come first, since the first match of a name counts.
    raw = msgspec.Raw(msgspec.json.encode([*new, *provider.models]))
    return Provider(id=provider.id, api=provider.api, names=provider.names, falls_back=provider.falls_back, raw=raw)


def _entry(provider: Provider, model: _Model) -> PriceEntry | None:
    name = model.name.strip()
    known = provider.named(name.lower())
    if known is not None and _same(known.rates[-1], model):
        return None
    # 0 or less means that the window is unknown.
    window = model.max_input_tokens if (model.max_input_tokens or 0) > 0 else None
    rates = Rates(input=model.input_price, output=model.output_price)
    return PriceEntry(id=name, match=Match(equals=name.lower()), window=window, rates=(rates,))


def _same(rates: Rates, model: _Model) -> bool:
    """Return True if the table has the same prices."""
    output = model.output_price is None or _base(rates.output) == model.output_price
    return output and _base(rates.input) == model.input_price


def _base(rate: Rate | None) -> float | None:
    return rate.base if isinstance(rate, Tiered) else rate
