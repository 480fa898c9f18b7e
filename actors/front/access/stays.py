"""Closes connections whose key was revoked or has expired.

A websocket may be open for days. Its key may be taken out of the configuration meanwhile, or a signed token may expire;
then the server closes it. The runs that it has started go on, and stay its subject's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import final

import trio

from ....protocol.control.caller import Caller


@final
class Stays:
    """Who is there at the moment, and by which key."""

    def __init__(self) -> None:
        self._open: dict[trio.CancelScope, Caller] = {}
        self._connections: Counter[str] = Counter()

    def connections_of(self, subject: str) -> int:
        """How many websockets the subject has open, or is about to."""
        return self._connections[subject]

    @contextmanager
    def connection(self, subject: str) -> Iterator[None]:
        """A block for a websocket of the subject's, which counts from its handshake on."""
        self._connections[subject] += 1
        try:
            yield
        finally:
            self._connections[subject] -= 1
            if not self._connections[subject]:
                del self._connections[subject]

    @contextmanager
    def stay(self, caller: Caller, *, seconds: float) -> Iterator[trio.CancelScope]:
        """A block that is cancelled when the caller's key does not count any more, and after so many seconds."""
        with trio.CancelScope(deadline=trio.current_time() + seconds) as scope:
            self._open[scope] = caller
            try:
                yield scope
            finally:
                del self._open[scope]

    def end(self, counts: Callable[[Caller], bool]) -> None:
        """Cancel the blocks of callers whose key does not count any more."""
        for scope, caller in self._open.items():
            if not counts(caller):
                scope.cancel()
