"""Finds what a model of ours costs.

Who sells it is asked in this order: whose address its `api_base` is, whose protocol its client speaks (a gateway that
stands before OpenAI passes OpenAI's prices on), whose name its client has. A client of type `openai-compatible` speaks
no seller's own protocol, so it is found by its address or its name alone. What runs on this machine is free: local
weights, and models of an Ollama here, except for those it has run elsewhere (`…-cloud`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import msgspec

from .....protocol.settings import ClientSettings, ModelSettings
from ..vertex.makers import maker_of
from .kept import Kept
from .rates import FREE, Rates, Tariff
from .table import Entry, Provider, Table

SELLERS = {
    "openai": "openai",
    "claude": "anthropic",
    "anthropic": "anthropic",
    "gemini": "google",
    "vertexai": "google",
    "cohere": "cohere",
    "azure-openai": "azure",
    "bedrock": "aws",
}
"""Whose models clients of a type have, by the table's ids."""

_HERE = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})  # noqa: S104 - compared with, not bound to

_OF_INPUT = ("input", "cached", "cache_write", "cache_write_1h")
_OF_OUTPUT = ("output", "reasoning")

OWN = {
    "input": "input_price",
    "output": "output_price",
    "cached": "cached_input_price",
    "cache_write": "cache_write_price",
}
"""Rates, and the keys of a model in `config.yaml` that give them."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a model's prices.

    Attributes:
        tariff: None if it is unpriced.
        seller: in whose list it stands; "" if in none.
        entry: what stands there.
    """

    tariff: Tariff | None
    seller: str = ""
    entry: Entry | None = None


class Finder:
    """Finds the prices of models; reads the table for the first that wants it.

    Args:
        environ: the environment; it says where the data directory is.
        file: the settings, for the origins of prices.
    """

    def __init__(self, environ: Mapping[str, str], file: str = "config.yaml") -> None:
        self._environ = environ
        self._file = file
        self._kept: Kept | None = None

    @property
    def is_read(self) -> bool:
        """Whether the table was read already."""
        return self._kept is not None

    @property
    def kept(self) -> Kept:
        """The table, and where it is from."""
        if self._kept is None:
            self._kept = Kept(self._environ)
        return self._kept

    def find(self, client: ClientSettings, model: ModelSettings, api_base: str) -> Found:
        """What a model of a client costs.

        Args:
            api_base: where the client is reached.
        """
        if is_here(client, model, api_base):
            own = _own(model)
            return Found(tariff=self._tariff(model, own, None, "") if own else FREE)
        own = _own(model)
        if own.keys() >= OWN.keys():  # nothing is left for the table to say
            return Found(tariff=self._tariff(model, own, None, ""))
        table = self.kept.table
        provider = _seller(table, client, api_base)
        name = model.real_name or model.name
        if client.type == "vertexai" and (maker := maker_of(name))[0] in ("google", "anthropic"):
            name = maker[1]
        found = table.find(provider, name) if provider is not None else None
        seller, entry = found or ("", None)
        return Found(tariff=self._tariff(model, own, entry, seller), seller=seller, entry=entry)

    def known(self, client: ClientSettings, api_base: str) -> Iterator[str]:
        """The models of a client that the table has a price for which suits a chat, by the names of the table."""
        provider = _seller(self.kept.table, client, api_base)
        for entry in provider.models if provider is not None else ():
            if entry.rates[-1].output is not None:
                yield entry.id

    def _tariff(self, model: ModelSettings, own: dict[str, float], entry: Entry | None, seller: str) -> Tariff | None:
        """The rates of the table, and those of `config.yaml` in their place."""
        listed = entry.rates if entry is not None else (Rates(),)
        changes: dict[str, object] = {}
        if "input" in own:
            changes |= dict.fromkeys(_OF_INPUT)
        if "output" in own:
            changes |= dict.fromkeys(_OF_OUTPUT)
        if "cache_write" in own:
            changes["cache_write_1h"] = None
        rates = tuple(msgspec.structs.replace(each, **changes | own) for each in listed)
        wanted = ("input",) if model.type != "chat" else ("input", "output")
        if any(getattr(each, name) is None for each in rates for name in wanted):
            return None
        of_table = f"price table: {seller} {entry.id}" if entry is not None else ""
        origins = {name: f"`{OWN[name]}` in {self._file}" for name in own}
        for name in (*_OF_INPUT, *_OF_OUTPUT):
            if name not in own and getattr(rates[-1], name) is not None:
                origins[name] = of_table
        return Tariff(rates=rates, origins=origins)


def _own(model: ModelSettings) -> dict[str, float]:
    given = {
        "input": model.input_price,
        "output": model.output_price,
        "cached": model.cached_input_price,
        "cache_write": model.cache_write_price,
    }
    return {name: price for name, price in given.items() if price is not None}


def _seller(table: Table, client: ClientSettings, api_base: str) -> Provider | None:
    return (
        table.provider_at(api_base)
        or table.provider_called(SELLERS.get(client.type, ""))
        or table.provider_called(client.name.partition("@")[0])
    )


def is_here(client: ClientSettings, model: ModelSettings, api_base: str) -> bool:
    """Whether a model runs on this machine."""
    if client.type == "local":
        return True
    if client.type != "ollama" or (model.real_name or model.name).endswith(("-cloud", ":cloud")):
        return False
    return (urlsplit(api_base).hostname or "") in _HERE
