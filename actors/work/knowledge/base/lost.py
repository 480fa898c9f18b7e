"""What the last build, finished or not, could not read.

It stands beside the generations, in `unreadable.json`: a build that finds nothing else makes none. A source of which
nothing can be read is remembered as it was, so that runs don't report it as new each time. Builds try it again all
the same, for what was missing may have been a permission, or a library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import msgspec

from .....protocol.knowledge import Unreadable
from .catalogue import Known


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """The file.

    Attributes:
        told: what was reported.
        sources: those of which nothing could be read, as they were; without a digest where their bytes were not to be
            had.
    """

    told: tuple[Unreadable, ...] = ()
    sources: tuple[Known, ...] = ()


@final
class Kept:
    """What could not be read, with all below it: none of it counts as removed."""

    def __init__(self, unreadable: Sequence[Unreadable]) -> None:
        self._names = frozenset(each.source.rstrip("*").rstrip("/") for each in unreadable)

    def has(self, name: str) -> bool:
        """Whether that source is among it."""
        return name in self._names or any(above in self._names for above in _above(name))


def by_name(sources: Sequence[Known]) -> Mapping[str, Known]:
    """The sources by their names."""
    return {each.source: each for each in sources}


def _above(name: str) -> list[str]:
    """`a/b/c` is below `a/b` and `a`."""
    return [name[:at] for at, letter in enumerate(name) if letter == "/"]
