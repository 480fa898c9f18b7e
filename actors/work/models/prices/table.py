"""The table of prices as it is kept: providers, and of each the models with their rates.

Names are matched as genai-prices has it: in lower case, the first model that fits; a provider that sells models of
others falls back on theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from functools import cached_property

import msgspec

from .....protocol.decoding import json_decoder
from .rates import Rates


class Match(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which names are meant: exactly one of the fields is given."""

    equals: str | None = None
    starts_with: str | None = None
    ends_with: str | None = None
    contains: str | None = None
    regex: str | None = None
    any: tuple[Match, ...] = msgspec.field(name="or", default=())
    all: tuple[Match, ...] = msgspec.field(name="and", default=())

    def __post_init__(self) -> None:
        """Raise ValueError for what could not be matched with."""
        given = [name for name in self.__struct_fields__ if getattr(self, name) not in (None, ())]
        if len(given) != 1:
            raise ValueError(f"a match has one of {', '.join(self.__struct_encode_fields__)}, not {len(given)} of them")
        if self.regex is not None:
            compiled(self.regex)

    def fits(self, name: str) -> bool:
        """Whether a name, in lower case, is meant."""
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
    """The pattern; ValueError if it is none."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"'{pattern}' is no regular expression: {error}") from None


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One model.

    Attributes:
        window: tokens that it takes in, if that is known.
        rates: see `Tariff`.
    """

    id: str
    match: Match
    window: int | None = None
    rates: tuple[Rates, ...]


class Provider(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, dict=True):
    """Who sells models.

    Attributes:
        api: regular expression that their base URLs begin with.
        names: what they are called elsewhere.
        falls_back: whose models they sell as well, by id.
        raw: the models; read when one of them is asked for.
    """

    id: str
    api: str
    names: Match | None = None
    falls_back: tuple[str, ...] = ()
    raw: msgspec.Raw = msgspec.field(name="models")

    @cached_property
    def models(self) -> tuple[Entry, ...]:
        """All of their models. Raises msgspec.ValidationError."""
        return _decode_entries(self.raw)

    def named(self, name: str) -> Entry | None:
        """The model of that name, in lower case."""
        return next((entry for entry in self.models if entry.match.fits(name)), None)


_decode_entries = json_decoder(tuple[Entry, ...]).decode


class Table(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """All prices that are known; `source` says whose they are, `made` of which day."""

    source: str
    made: date
    providers: tuple[Provider, ...]

    def provider_at(self, url: str) -> Provider | None:
        """Who is reached there."""
        return next((each for each in self.providers if re.match(each.api, url)), None)

    def provider_called(self, name: str) -> Provider | None:
        """Who has that name."""
        name = name.strip().lower()
        for each in self.providers:
            if each.id == name:
                return each
        return next((each for each in self.providers if each.names is not None and each.names.fits(name)), None)

    def find(self, provider: Provider, model: str) -> tuple[str, Entry] | None:
        """The model that a provider calls so, and the id of the one in whose list it stands."""
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
