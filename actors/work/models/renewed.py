"""What expires and is asked for anew: keys of roles, tokens.

The first request that finds it old asks, while others wait for the same answer. It is renewed early; where that
fails, the old one is used as long as it is good, and for `PAUSE` seconds after a failure nothing asks again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import trio

from ....protocol.errors import CallboardError, ConfigError, CredentialsError, UpstreamError

PAUSE = 1.0
"""Seconds after a renewal that failed in which nothing asks again."""

T = TypeVar("T")


class Renewed(Generic[T]):
    """One such thing.

    Args:
        ask: gets a new one, and when it ends, on `clock`.
        early: seconds before its end after which it is renewed; half its life, if that is shorter.
        clock: any seconds.

    Attributes:
        current: the last one; None before the first.
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
        """It was refused where it was shown: if it is still the current one, the next request asks for another."""
        if one is self.current:
            self._ends = self._old = float("-inf")

    async def renew(self) -> None:
        """Return when there is one that is good for a while.

        Raises:
            ConfigError, CredentialsError: there is none to be had.
            UpstreamError: the service did not answer as it should, which may pass.
        """
        if self._clock() < self._old:
            return
        async with self._asking:
            now = self._clock()
            if now < self._old:
                return
            if now >= self._again:
                try:
                    self.current, self._ends = await self._ask()
                except (ConfigError, CredentialsError, UpstreamError) as error:
                    self._failed, self._again = error, self._clock() + PAUSE
                else:
                    self._failed, left = None, self._ends - self._clock()
                    self._old = self._ends - min(self._early, left / 2)
                    return
            if self._failed is not None and now >= self._ends:
                raise type(self._failed)(str(self._failed))
