"""Refreshing credentials: role keys and tokens that expire.

The first request that finds the credential old refreshes it, while the others wait for the same answer. Refreshing
starts before the expiry. If it fails, the old credential is used until it expires, and no request tries again for
`PAUSE` seconds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import trio

from ....protocol.errors import CallboardError, ConfigError, CredentialsError, UpstreamError

PAUSE = 1.0
"""Seconds without another attempt after a failed refresh."""

T = TypeVar("T")


class RefreshingCredential(Generic[T]):
    """Credential that expires, shared by all tasks that use it.

    Args:
        ask: fetches a new credential, and returns it with its expiry on `clock`.
        early: seconds before the expiry at which it is refreshed; half of its lifetime if that is shorter.
        clock: returns seconds, from any origin.

    Attributes:
        current: the last credential; None before the first.
    """

    def __init__(
        self, ask: Callable[[], Awaitable[tuple[T, float]]], *, early: float, clock: Callable[[], float]
    ) -> None:
        self.current: T | None = None
        self._ask = ask
        self._early = early
        self._clock = clock
        self._asking = trio.Lock()
        self._ends = self._old = float("-inf")
        self._failed: CallboardError | None = None
        self._again = float("-inf")

    def refused(self, one: T) -> None:
        """Mark a refused credential as expired, unless it was replaced already."""
        if one is self.current:
            self._ends = self._old = float("-inf")

    async def renew(self) -> None:
        """Refresh the credential if it is old, and return when a valid one is available.

        Raises:
            ConfigError, CredentialsError: no credential can be obtained.
            UpstreamError: the service is unreachable or failed; another try may help.
        """
        if self._clock() < self._old:
            return
        async with self._asking:
            now = self._clock()
            if now < self._old:  # another task refreshed it while this one waited for the lock
                return
            if now >= self._again:
                try:
                    self.current, self._ends = await self._ask()
                except (ConfigError, CredentialsError, UpstreamError) as error:
                    self._failed, self._again = error, self._clock() + PAUSE
                else:
                    self._failed, lifetime = None, self._ends - self._clock()
                    self._old = self._ends - min(self._early, lifetime / 2)
                    return
            if self._failed is not None and now >= self._ends:
                raise type(self._failed)(str(self._failed))  # a copy: many tasks raise it, each with its own traceback
