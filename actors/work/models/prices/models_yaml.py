"""Import of Loki's and aichat's `models.yaml`: its models and prices, merged into Callboard's own table.

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

from collections.abc import Iterator
from datetime import date

import msgspec

from .....protocol.errors import ConfigError
from .....protocol.problems import Problem
from .....protocol.reading import Reading
from .....protocol.tree import Mapping, Node, Sequence, describe
from .....protocol.yaml_tree import parse
from .price_lookup import SELLERS
from .rates import USD, Rate, Rates, Tiered
from .table import Match, PriceEntry, PriceTable, Provider

LARGEST = 2 * 1024 * 1024
"""Maximum size of the file in bytes; Loki's has 60 KB."""

EXPECTED = "expected is a list of `provider:` with `models:`, each with a `name`"

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
        raise ConfigError(f"{where} has no prices; {EXPECTED}")
    known = [_with(provider, listed.pop(provider.id, {})) for provider in table.providers]
    new = [_with(_unknown(id), models) for id, models in listed.items()]
    return PriceTable(source=where, made=today, providers=(*known, *new))


def _models(data: bytes, where: str) -> Iterator[tuple[str, _Model]]:
    """Yield the models of the file, each with the name of its provider."""
    if len(data) > LARGEST:
        raise ConfigError(f"{where} is not a models file: it is larger than {LARGEST >> 20} MB")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where} is not a models file: {error}") from None
    root, problems = parse(text, where)
    _check([problem for problem in problems if problem.code != "empty_file"], where)
    if not isinstance(root, Sequence):
        raise ConfigError(f"{where} is not a models file: it holds {describe(root) if root else 'nothing'}; {EXPECTED}")
    reading = Reading(where, prefix="")
    for number, item in enumerate(root.items):
        if not isinstance(item, Mapping):
            raise _wrong(where, item, f"[{number}] is {describe(item)}, not a provider")
        provider = reading.fill(_Provider, item, (number,))
        entry = item.entries.get("models")
        if not (provider.provider or provider.platform) or entry is None or not isinstance(entry.value, Sequence):
            raise _wrong(where, item, f"[{number}] has no `provider`, or no list of `models`")
        for place, each in enumerate(entry.value.items):
            if not isinstance(each, Mapping):
                raise _wrong(where, each, f"[{number}].models[{place}] is {describe(each)}, not a model")
            model = reading.fill(_Model, each, (number, "models", place), what="a model")
            _check(reading.problems, where)
            yield provider.provider or provider.platform, model


def _check(problems: list[Problem], where: str) -> None:
    error = next((problem for problem in problems if problem.severity == "error"), None)
    if error is not None:
        raise ConfigError(f"{where} is not a models file: line {error.line}: {error.message}; {EXPECTED}")


def _wrong(where: str, node: Node, what: str) -> ConfigError:
    return ConfigError(f"{where} is not a models file: line {node.line}: {what}; {EXPECTED}")


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
