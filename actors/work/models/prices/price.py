"""Lazy price lookup: the price of a model is looked up with its first request, so most processes load no table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from .....protocol.settings import ClientSettings, ModelSettings
    from .price_lookup import Finder
    from .table import Tariff


class Price:
    """Price of a model.

    Args:
        look_up: returns the tariff; it may block while the table is loaded.
        read: loads the table without blocking the event loop, if the price needs it.
    """

    def __init__(self, look_up: Callable[[], Tariff | None], read: Callable[[], Awaitable[None]] | None = None) -> None:
        self._look_up = look_up
        self._read = read

    @cached_property
    def tariff(self) -> Tariff | None:
        """Tariff, or None for a model without a known price. Await `load` first: the table is read in a thread."""
        return self._look_up()

    async def load(self) -> None:
        """Look up the tariff unless that is done; load the table in a thread."""
        if "tariff" in self.__dict__:
            return
        if self._read is not None:
            await self._read()
        _ = self.tariff


class Prices:
    """Prices of all models of a catalog. Its `Finder` is imported and created with the first price."""

    def __init__(self, environ: Mapping[str, str], file: str) -> None:
        self._environ = environ
        self._file = file
        self._reading = trio.Lock()

    @property
    def is_read(self) -> bool:
        """True if the table is loaded, so that a lookup does not block."""
        return "finder" in self.__dict__ and self.finder.is_read

    @cached_property
    def finder(self) -> Finder:
        """Finder of prices."""
        from .price_lookup import Finder

        return Finder(self._environ, self._file)

    def of(self, client: ClientSettings, model: ModelSettings, api_base: str) -> Price:
        """Return the lazy price of a client's model. This reads no file."""

        async def read() -> None:
            # Reading the table takes tens of milliseconds, so a thread does it, once: a lookup in a thread for each
            # of a thousand agents took 45 calls more than the lookup itself.
            if self._is_ready(client, model, api_base):
                return
            async with self._reading:
                if not self._is_ready(client, model, api_base):
                    await trio.to_thread.run_sync(self._read, client, model, api_base)

        return Price(lambda: self.finder.find(client, model, api_base).tariff, read)

    def _is_ready(self, client: ClientSettings, model: ModelSettings, api_base: str) -> bool:
        """Return True if a lookup does not block: neither a module nor the table has to be loaded for it."""
        if "finder" not in self.__dict__:
            return False
        return self.finder.is_read or not self.finder.needs_table(client, model, api_base)

    def _read(self, client: ClientSettings, model: ModelSettings, api_base: str) -> None:
        if self.finder.needs_table(client, model, api_base):
            self.finder.read()
