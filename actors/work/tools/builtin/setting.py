"""The settings that all built-in tools of a table share."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ..path_rules import Sight
from .places import Places

__all__ = ["Setting"]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """See the module.

    Attributes:
        environ: for commands, for proxies, and for the addresses of the services.
        places: what `fs_*` may touch.
        timeout: seconds of one call.
    """

    environ: Mapping[str, str]
    places: Places
    timeout: float

    def within(self, sight: Sight) -> Setting:
        """The same for one call, which may see no more than that."""
        return msgspec.structs.replace(self, places=self.places.within(sight))
