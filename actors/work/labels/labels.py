"""The two labels, each with the ways by which it came."""

from __future__ import annotations

import msgspec

MOST_WAYS = 5
"""Ways of one label that are remembered, and told."""


class Labels(msgspec.Struct, frozen=True, kw_only=True):
    """What something carries.

    Attributes:
        untrusted: the ways by which something came in from outside, in words; empty for nothing of the kind.
        private: the same for what is the user's own business.
    """

    untrusted: tuple[str, ...] = ()
    private: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.untrusted or self.private)

    @property
    def meet(self) -> bool:
        """Whether both are there."""
        return bool(self.untrusted and self.private)

    def plus(self, other: Labels) -> Labels:
        """What is made of both."""
        if not other:
            return self
        return Labels(
            untrusted=_together(self.untrusted, other.untrusted), private=_together(self.private, other.private)
        )


NOTHING = Labels()


def _together(ways: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*ways, *more)))[:MOST_WAYS]
