"""A token, and for how long it is good.

The server says how long a token lives (`expires_in`), counted from its answer. So its clock does not matter: life is
counted from the moment we asked, by our own clocks. In a process that is the one that is never set (`Lease`), on disk
the calendar's. A machine that sleeps may stop the first, and a person may set the second; the one that ends a token's
life sooner counts, and a calendar that was set back never gives it more than its whole life. An end that neither shows
is seen from the 401.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import msgspec
import trio

EARLY = 60.0
"""Seconds before its end in which a token is refreshed, at most a tenth of its life: for the way to the server, and for
clocks that are not quite of one speed."""

LONGEST = 10 * 365 * 86400.0
"""Seconds; what lives longer than ten years, or has a number that is none, may as well."""


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """What a server gave us.

    Attributes:
        access_token: shows who we are.
        refresh_token: gets another one; empty if there is none.
        scopes: what was granted, as far as the server said it; else what was asked for.
        lifetime: seconds; None if the server did not say.
        received: when we asked for it, in seconds since 1970.
    """

    access_token: str
    refresh_token: str = ""
    scopes: tuple[str, ...] = ()
    lifetime: float | None = None
    received: float = 0.0

    def __repr__(self) -> str:
        """Without the token."""
        return f"Token({self.mark}, lifetime={self.lifetime})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """As `__repr__`, for tracebacks."""
        return [("mark", self.mark), ("lifetime", self.lifetime)]

    @property
    def mark(self) -> str:
        """Stands for it in messages and comparisons."""
        return hashlib.sha256(self.access_token.encode()).hexdigest()[:16]

    @property
    def expires(self) -> float | None:
        """Its end in seconds since 1970; None if that is not known."""
        return None if self.lifetime is None else self.received + self.lifetime

    def left(self, now: float) -> float:
        """Seconds of life by the calendar's clock, which says `now`; never more than it had."""
        if self.lifetime is None:
            return math.inf
        return min(self.lifetime, self.received + self.lifetime - now)

    @property
    def early(self) -> float:
        """Seconds before its end in which it is refreshed."""
        return 0.0 if self.lifetime is None else min(EARLY, self.lifetime / 10)


class Lease:
    """A token in a process, and its end by both clocks.

    Args:
        clock: the calendar's, in seconds since 1970.
    """

    def __init__(self, token: Token, clock: Callable[[], float]) -> None:
        self.token = token
        self._clock = clock
        self._end = trio.current_time() + token.left(clock())

    @property
    def left(self) -> float:
        """Seconds of life."""
        return min(self._end - trio.current_time(), self.token.left(self._clock()))

    @property
    def fresh(self) -> bool:
        """Whether it need not be refreshed yet."""
        return self.left > self.token.early
