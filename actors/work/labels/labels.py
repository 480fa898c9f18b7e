"""The two labels, each with descriptions of the ways by which such text entered the run."""

from __future__ import annotations

import msgspec

MOST_WAYS = 5
"""Ways of one label that are stored, and shown to the user."""


class Labels(msgspec.Struct, frozen=True, kw_only=True):
    """Labels of a text, a call, or a run.

    Attributes:
        untrusted: the ways by which text entered from outside, in words; empty if there are none.
        private: the ways by which private text of the user entered; empty if there are none.
    """

    untrusted: tuple[str, ...] = ()
    private: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.untrusted or self.private)

    @property
    def meet(self) -> bool:
        """True if both labels are present."""
        return bool(self.untrusted and self.private)

    def plus(self, other: Labels) -> Labels:
        """Return the union of both; each label stores its first `MOST_WAYS` ways."""
        if not other:
            return self
        return Labels(
            untrusted=_together(self.untrusted, other.untrusted), private=_together(self.private, other.private)
        )


NOTHING = Labels()


def _together(ways: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*ways, *more)))[:MOST_WAYS]
