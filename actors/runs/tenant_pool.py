"""Open tenants of a root: one for each `Config`, opened at first use, in the root's event loop.

An actor of the root's tree holds the tenant open, so it ends with the root. A count of its users (blocks of
`root.tenant`, and runs) decides when it may close. Opening a tenant takes milliseconds (clients, vault, tools).
Therefore an unused tenant stays open until `MOST` others have been used after it. That includes a tenant with a
temporary directory, because its sessions are in that directory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar, final

import trio

from ...protocol.errors import ShuttingDown
from ...supervisors import Actor
from .config import Config, key_of
from .root import Root

MOST = 128
"""Maximum of open tenants without users."""

STOP_MARGIN = 0.5
"""Seconds of the root's stop time that tenants leave for the rest of the shutdown."""

R = TypeVar("R", bound=Root)


class _Tenant(Generic[R]):
    """State of a tenant from its first request on."""

    def __init__(self) -> None:
        self.opened = trio.Event()
        self.left = trio.Event()
        self.users = 0
        self.root: R | None = None
        self.error: BaseException | None = None


@final
class TenantPool(Generic[R]):
    """Pool of open tenants. Call its methods in the root's event loop.

    Args:
        host: the root.
        make: creates the unopened root of a tenant.
    """

    def __init__(self, host: Root, make: Callable[[Config], R]) -> None:
        self._host = host
        self._make = make
        self._tenants: OrderedDict[bytes, _Tenant[R]] = OrderedDict()

    async def acquire(self, config: Config) -> R:
        """Return the open tenant of this configuration. Call `release` for each success.

        Raises:
            ConfigError, UsageError: it cannot be opened.
            ShuttingDown: the root is ending.
        """
        key = key_of(config)
        tenant = self._tenants.get(key)
        if tenant is None:
            within = self._host.kernel.stop_within
            self._host.kernel.spawn(self._hold, config, key, name="tenant", link=False, stop_within=within)
            tenant = self._tenants[key] = _Tenant()  # Safe after `spawn`: the actor runs after the next checkpoint.
        self._tenants.move_to_end(key)
        tenant.users += 1
        try:
            await tenant.opened.wait()
            if tenant.error is not None:
                raise tenant.error
            if tenant.root is None or tenant.left.is_set():
                raise ShuttingDown("this callboard.Root has ended, or ends now")
        except BaseException:  # The caller gets no tenant, so it will not release one.
            tenant.users -= 1
            raise
        return tenant.root

    def release(self, config: Config) -> None:
        """Decrement the count of users; close the least recently used tenants beyond `MOST`."""
        tenant = self._tenants.get(key_of(config))
        if tenant is not None:
            tenant.users -= 1
        idle = [each for each in self._tenants.values() if not each.users and each.root is not None]
        for each in idle[: max(0, len(idle) - MOST)]:
            each.left.set()

    async def _hold(self, _me: Actor, config: Config, key: bytes) -> None:
        tenant = self._tenants[key]
        try:
            async with self._make(config) as root:
                tenant.root = root
                tenant.opened.set()
                await tenant.left.wait()
                self._tenants.pop(key, None)  # A new tenant of this configuration may be opened while this one closes.
        except (Exception, trio.Cancelled) as error:
            if tenant.opened.is_set() or isinstance(error, trio.Cancelled):
                raise
            tenant.error = error
        finally:
            tenant.left.set()
            tenant.opened.set()
            if self._tenants.get(key) is tenant:
                del self._tenants[key]
