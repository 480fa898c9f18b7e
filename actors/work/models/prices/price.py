"""The price of one model, which is looked up when it is first asked for: most tables of prices are never read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from .....protocol.settings import ClientSettings, ModelSettings
    from .find import Finder
    from .rates import Tariff


class Price:
    """What a model costs."""

    def __init__(self, look_up: Callable[[], Tariff | None]) -> None:
        self._look_up = look_up

    @cached_property
    def tariff(self) -> Tariff | None:
        """None for a model that has no price."""
        return self._look_up()

    async def looked_up(self) -> None:
        """Look it up in a thread, if that was not done yet: the first time a table is read for it."""
        if "tariff" not in self.__dict__:
            await trio.to_thread.run_sync(lambda: self.tariff)


class Prices:
    """What models cost; see `Finder`, which is made when the first price is wanted."""

    def __init__(self, environ: Mapping[str, str], file: str) -> None:
        self._environ = environ
        self._file = file

    @property
    def is_read(self) -> bool:
        """Whether the table was read already, so that looking something up takes no time."""
        return "finder" in self.__dict__ and self.finder.is_read

    @cached_property
    def finder(self) -> Finder:
        """Finds prices."""
        from .find import Finder

        return Finder(self._environ, self._file)

    def of(self, client: ClientSettings, model: ModelSettings, api_base: str) -> Price:
        """The price of a client's model; nothing is read yet."""
        return Price(lambda: self.finder.find(client, model, api_base).tariff)
