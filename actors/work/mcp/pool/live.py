"""One server that is open, or on its way there; and the record that outlives it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, final

import trio

from .....protocol.mcp.config import PoolSettings
from .....supervisors import Breaker
from ..throttle import Throttle
from .catalog import Catalog

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ..client.client import McpClient
    from .keys import Key


@final
class Record:
    """What is known of a server by its digest, however often it was started.

    Attributes:
        breaker: when it may be started.
        calls, errors: how many, of those.
        last_error: of a call, a start or an end.
    """

    def __init__(self, settings: PoolSettings, rand: random.Random) -> None:
        self.breaker = Breaker(most=settings.max_restarts, period=settings.restart_window_seconds, rand=rand.random)
        self.calls = 0
        self.errors = 0
        self.last_error = ""


@final
class Live:
    """What the pool leases.

    Attributes:
        me: the actor that owns it.
        client, catalog: set when it is open.
        since: when its start began.
        busy: uses under way; `used` is when the last one was over.
        may_warn: whether one more of its log messages may become a warning.
        changed, learning: whether its tools are other ones by now, and whether a task fetches them.
        learned: set while the catalogue is what the server has, as far as it says.
    """

    client: McpClient
    catalog: Catalog

    def __init__(self, me: Actor, key: Key, record: Record) -> None:
        self.me = me
        self.key = key
        self.record = record
        self.since = self.used = trio.current_time()
        self.busy = 0
        self.open = self.changed = self.learning = False
        self.learned = trio.Event()
        self.may_warn = Throttle()

    def begin(self) -> None:
        """Count one more use."""
        self.busy += 1

    def end(self) -> None:
        """That use is over."""
        self.busy -= 1
        self.used = trio.current_time()

    def answered(self) -> None:
        """A call has its result."""
        self.record.calls += 1
        self.record.breaker.worked()

    def failed(self, why: str) -> None:
        """A call came to nothing."""
        self.record.calls += 1
        self.record.errors += 1
        self.record.last_error = why
