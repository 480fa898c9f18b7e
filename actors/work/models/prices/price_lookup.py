"""Price lookup of configured models.

The seller of a model is found in this order: by the address of its client (`api_base`), by the client's type, by the
client's name. The type decides for a gateway in front of OpenAI, which charges OpenAI's prices. The type
`openai-compatible` belongs to no seller, so only address or name decide. Models on this machine are free: local
weights, and models of a local Ollama except for cloud models (`…-cloud`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from .....protocol.decoding import decode_json
from .....protocol.errors import ConfigError
from .....protocol.settings import ClientSettings, ModelSettings
from ....io.atomic_write import write_whole
from ....io.directories import data_dir, private_directory
from .table import FREE, PriceEntry, PriceTable, Provider, Rates, Tariff

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
"""Seller ids of the table by client type."""

_HERE = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})  # noqa: S104 - compared with, not bound to

_OF_INPUT = ("input", "cached", "cache_write", "cache_write_1h")
_OF_OUTPUT = ("output", "reasoning")

OWN = {
    "input": "input_price",
    "output": "output_price",
    "cached": "cached_input_price",
    "cache_write": "cache_write_price",
}
"""Keys of a model in `config.yaml` by the rate that they set."""


class FoundPrice(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a price lookup.

    Attributes:
        tariff: prices of the model; None if it is unpriced.
        seller: id of the seller whose list contains the model; "" if there is none.
        entry: entry of the model in that list.
    """

    tariff: Tariff | None
    seller: str = ""
    entry: PriceEntry | None = None


class Finder:
    """Price lookup in the table, which is loaded on first use.

    Args:
        environ: environment with the data directory.
        file: path of the settings, for the origins of prices.
    """

    def __init__(self, environ: Mapping[str, str], file: str = "config.yaml") -> None:
        self._environ = environ
        self._file = file
        self._kept: PriceTables | None = None

    @property
    def is_read(self) -> bool:
        """True if the table is loaded."""
        return self._kept is not None

    @property
    def tables(self) -> PriceTables:
        """Price table with its origin. The first access blocks."""
        if self._kept is None:
            self._kept = PriceTables(self._environ)
        return self._kept

    def read(self) -> None:
        """Load the table unless it is loaded. This blocks."""
        _ = self.tables

    def needs_table(self, client: ClientSettings, model: ModelSettings, api_base: str) -> bool:
        """Return True unless the model runs on this machine or the settings give all of its prices."""
        return not is_local(client, model, api_base) and not _own(model).keys() >= OWN.keys()

    def find(self, client: ClientSettings, model: ModelSettings, api_base: str) -> FoundPrice:
        """Return the prices of a client's model. This blocks if the table has to be loaded.

        Args:
            api_base: base URL of the client.
        """
        own = _own(model)
        if not self.needs_table(client, model, api_base):
            return FoundPrice(tariff=self._tariff(model, own, None, "") if own else FREE)
        table = self.tables.table
        provider = _seller(table, client, api_base)
        name = model.real_name or model.name
        if client.type == "vertexai":
            from ..vertex.location import maker_of

            maker, own_name = maker_of(name)
            name = own_name if maker in ("google", "anthropic") else name
        found = table.find(provider, name) if provider is not None else None
        seller, entry = found or ("", None)
        return FoundPrice(tariff=self._tariff(model, own, entry, seller), seller=seller, entry=entry)

    def known(self, client: ClientSettings, api_base: str) -> Iterator[str]:
        """Yield the models in the price list of a client's seller that have a price for output. Blocks like `find`."""
        provider = _seller(self.tables.table, client, api_base)
        for entry in provider.models if provider is not None else ():
            if entry.rates[-1].output is not None:
                yield entry.id

    def _tariff(
        self, model: ModelSettings, own: dict[str, float], entry: PriceEntry | None, seller: str
    ) -> Tariff | None:
        """Merge the rates of `config.yaml` into the table's; return None if a needed rate is missing."""
        listed = entry.rates if entry is not None else (Rates(),)
        changes: dict[str, object] = {}
        if "input" in own:
            changes |= dict.fromkeys(_OF_INPUT)
        if "output" in own:
            changes |= dict.fromkeys(_OF_OUTPUT)
        if "cache_write" in own:
            changes["cache_write_1h"] = None  # falls back to `cache_write`, see `Rates.parts`
        rates = tuple(msgspec.structs.replace(each, **changes | own) for each in listed)
        # Embedding models and rerankers have no output tokens.
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


def _seller(table: PriceTable, client: ClientSettings, api_base: str) -> Provider | None:
    return (
        table.provider_at(api_base)
        or table.provider_called(SELLERS.get(client.type, ""))
        # Clients of definition files are named `name@host`, see `ModelCatalog.adopt`.
        or table.provider_called(client.name.partition("@")[0])
    )


def is_local(client: ClientSettings, model: ModelSettings, api_base: str) -> bool:
    """Return True if the model runs on this machine, where calls cost nothing.

    That is a client of type `local`, or of type `ollama` with a local `api_base`, unless the model is a cloud model.
    """
    if client.type == "local":
        return True
    if client.type != "ollama" or (model.real_name or model.name).endswith(("-cloud", ":cloud")):
        return False
    return (urlsplit(api_base).hostname or "") in _HERE


class PriceTables:
    """Loaded price table. The constructor reads the files and blocks.

    Attributes:
        table: the newer of the two tables.
        problem: error of an unusable updated table; "" if it is usable or does not exist.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.problem = ""
        self.table = vendored()
        file = updated_file(environ)
        try:
            with file.open("rb") as stream:
                from .genai_prices import LARGEST, read  # imported late: most installations have no updated table

                data = stream.read(LARGEST + 1)
            table = read(data, where=str(file), today=self.table.made)
        except FileNotFoundError:
            return
        except (OSError, ConfigError) as error:
            reason = f"{file} can't be read: {error.strerror}" if isinstance(error, OSError) else str(error)
            self.problem = f"{reason}; run `callboard models update`, or delete the file"
            return
        # A newer Callboard may contain a newer table than the last update.
        if table.made >= self.table.made:
            self.table = table


@cache
def vendored() -> PriceTable:
    """Return the table in the package."""
    return _decoded(Path(__file__).with_name("table.json").read_bytes())


def _decoded(data: bytes) -> PriceTable:
    return decode_json(data, PriceTable)


def updated_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the updated table."""
    return data_dir(environ) / "prices.json"


def keep(table: PriceTable, environ: Mapping[str, str]) -> Path:
    """Write a table as the updated table, and return the path of the file. This blocks.

    Raises:
        ConfigError: the file cannot be written; the old one is unchanged.
    """
    from .genai_prices import encoded

    file = updated_file(environ)
    try:
        private_directory(file.parent)
        write_whole(file, encoded(table), durable=True)
    except OSError as error:
        raise ConfigError(f"{file} can't be written: {error.strerror}") from error
    return file
