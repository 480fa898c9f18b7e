"""Loki's `models.yaml`, and aichat's: its models and prices, laid over the table that comes with Callboard.

    - provider: openai                 # `platform` in older files
      models:
        - name: gpt-4o
          max_input_tokens: 128000
          input_price: 2.5             # USD per million tokens
          output_price: 10

Such a file knows neither cached tokens nor tiers. Where the table has the same prices for a model it keeps what else it
knows; where they differ, or where it has no such model, the file holds. Left out are models without a price, and those
that are another one with a patch (`real_name`): by its name in the file no provider knows it.
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
from .find import SELLERS
from .rates import USD, Rate, Rates, Tiered
from .table import Entry, Match, Provider, Table

LARGEST = 2 * 1024 * 1024
"""Bytes of such a file; Loki's has 60 KB."""

EXPECTED = "expected is a list of `provider:` with `models:`, each with a `name`"

_NOWHERE = "(?!)"
"""Fits no address: a provider that is found by its name alone."""


class _Model(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    real_name: str = ""
    max_input_tokens: int | None = None
    input_price: USD | None = None
    output_price: USD | None = None


class _Provider(msgspec.Struct, frozen=True, kw_only=True):
    provider: str = ""
    platform: str = ""


def is_meant(data: bytes) -> bool:
    """Whether a file is no JSON."""
    return data.lstrip()[:1] not in (b"{", b"[")


def laid_over(table: Table, data: bytes, *, where: str, today: date) -> Table:
    """The table with what such a file says.

    Args:
        where: the file's path or URL.
        today: when it was fetched.

    Raises:
        ConfigError: it is no such file; the text says where it is wrong.
    """
    listed: dict[str, dict[str, _Model]] = {}
    for name, model in _models(data, where):
        if model.input_price is not None and model.real_name in ("", model.name):
            listed.setdefault(_seller(table, name), {}).setdefault(model.name, model)
    if not listed:
        raise ConfigError(f"{where} has no prices; {EXPECTED}")
    known = [_with(provider, listed.pop(provider.id, {})) for provider in table.providers]
    new = [_with(_unknown(id), models) for id, models in listed.items()]
    return Table(source=where, made=today, providers=(*known, *new))


def _models(data: bytes, where: str) -> Iterator[tuple[str, _Model]]:
    """The models of the file, each with the name of its provider."""
    if len(data) > LARGEST:
        raise ConfigError(f"{where} is no file of models: it has more than {LARGEST >> 20} MB")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{where} is no file of models: {error}") from None
    root, problems = parse(text, where)
    _check([problem for problem in problems if problem.code != "empty_file"], where)
    if not isinstance(root, Sequence):
        raise ConfigError(f"{where} is no file of models: it holds {describe(root) if root else 'nothing'}; {EXPECTED}")
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
        raise ConfigError(f"{where} is no file of models: line {error.line}: {error.message}; {EXPECTED}")


def _wrong(where: str, node: Node, what: str) -> ConfigError:
    return ConfigError(f"{where} is no file of models: line {node.line}: {what}; {EXPECTED}")


def _seller(table: Table, name: str) -> str:
    """The id of a provider in the table, by what the file calls it."""
    wanted = SELLERS.get(name.strip().lower(), name)
    provider = table.provider_called(wanted)
    return wanted.strip().lower() if provider is None else provider.id


def _unknown(id: str) -> Provider:
    return Provider(id=id, api=_NOWHERE, raw=msgspec.Raw(b"[]"))


def _with(provider: Provider, models: dict[str, _Model]) -> Provider:
    """The provider with these models before its own, as far as they say something new."""
    new = [entry for model in models.values() if (entry := _entry(provider, model)) is not None]
    if not new:
        return provider
    raw = msgspec.Raw(msgspec.json.encode([*new, *provider.models]))
    return Provider(id=provider.id, api=provider.api, names=provider.names, falls_back=provider.falls_back, raw=raw)


def _entry(provider: Provider, model: _Model) -> Entry | None:
    name = model.name.strip()
    known = provider.named(name.lower())
    if known is not None and _same(known.rates[-1], model):
        return None
    window = model.max_input_tokens if (model.max_input_tokens or 0) > 0 else None
    rates = Rates(input=model.input_price, output=model.output_price)
    return Entry(id=name, match=Match(equals=name.lower()), window=window, rates=(rates,))


def _same(rates: Rates, model: _Model) -> bool:
    """Whether the table has these prices already."""
    output = model.output_price is None or _base(rates.output) == model.output_price
    return output and _base(rates.input) == model.input_price


def _base(rate: Rate | None) -> float | None:
    return rate.base if isinstance(rate, Tiered) else rate
