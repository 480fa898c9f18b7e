"""OAuth token and its lifetime.

The server gives the lifetime of a token (`expires_in`) relative to its answer. So its clock does not matter: the
lifetime is counted from the request, by local clocks. In a process that is the monotonic clock (`TokenLease`), on disk
the calendar's. Suspension may stop the first, and a user may set the second. The clock that ends the token sooner
counts, and a calendar that was set back never extends the whole lifetime. A 401 reveals an end that neither clock
shows.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import msgspec
import trio

EARLY = 60.0
"""Seconds before its end at which a token is refreshed, at most a tenth of its lifetime: for the way to the server, and
for clocks of slightly different speed.
"""

LONGEST = 10 * 365 * 86400.0
"""Maximum lifetime in seconds; longer or invalid ones are cut to ten years."""


class OAuthToken(msgspec.Struct, frozen=True, kw_only=True):
    """Token response of a server.

    Attributes:
        access_token: credential of requests.
        refresh_token: credential for the next token; empty if there is none.
        scopes: granted scopes if the server named them; otherwise the requested ones.
        lifetime: seconds; None if the server gave none.
        received: time of the request, in seconds since 1970.
    """

    access_token: str
    refresh_token: str = ""
    scopes: tuple[str, ...] = ()
    lifetime: float | None = None
    received: float = 0.0

    def __repr__(self) -> str:
        """Return a representation without the token."""
        return f"OAuthToken({self.mark}, lifetime={self.lifetime})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Omit the token from rich tracebacks."""
        return [("mark", self.mark), ("lifetime", self.lifetime)]

    @property
    def mark(self) -> str:
        """Fingerprint of the token for messages and comparisons."""
        return hashlib.sha256(self.access_token.encode()).hexdigest()[:16]

    @property
    def expires(self) -> float | None:
        """End in seconds since 1970; None if unknown."""
        return None if self.lifetime is None else self.received + self.lifetime

    def left(self, now: float) -> float:
        """Return the remaining seconds at the calendar time `now`; never more than the whole lifetime."""
        if self.lifetime is None:
            return math.inf
        return min(self.lifetime, self.received + self.lifetime - now)

    @property
    def early(self) -> float:
        """Seconds before its end at which it is refreshed."""
        return 0.0 if self.lifetime is None else min(EARLY, self.lifetime / 10)


class TokenLease:
    """Token in a process, with its end by both clocks.

    Args:
        clock: calendar time in seconds since 1970.
    """

    def __init__(self, token: OAuthToken, clock: Callable[[], float]) -> None:
        self.token = token
        self._clock = clock
        self._end = trio.current_time() + token.left(clock())

    @property
    def left(self) -> float:
        """Remaining seconds."""
        return min(self._end - trio.current_time(), self.token.left(self._clock()))

    @property
    def fresh(self) -> bool:
        """True if it need not be refreshed yet."""
        return self.left > self.token.early
