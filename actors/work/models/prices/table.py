"""Price table: providers, and the models of each with their rates.

Names are matched by genai-prices' rules: in lower case, and the first matching model counts. A provider that sells
models of others falls back to their lists.
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
            raise ValueError(f"a match has one of {', '.join(self.__struct_encode_fields__)}, not {len(given)} of them")
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
    """Price table. `source` is the origin of its prices, `made` their date."""

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
