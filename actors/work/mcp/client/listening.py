"""Notifications of changes: of the lists of tools, resources and prompts, and of single resources.

In the old era a server sends them unasked. In the modern era the client opens a subscription, a request that stays
open. The client opens it again when the server ends it, and when there is more to subscribe to. Notifications are not
repeated. So everything subscribed before counts as changed when the server acknowledges a new subscription. A list that
is read before the first acknowledgement may become outdated without notice, so the client waits for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Never, final

import trio

from .....protocol.errors import HttpRefused, McpError, McpLost
from .....supervisors import Actor, Backoff, Ref
from ..links.link import Json

if TYPE_CHECKING:
    from .client import McpClient

_UPDATED = "notifications/resources/updated"
CHANGES = {f"notifications/{kind}/list_changed": kind for kind in ("tools", "resources", "prompts")} | {_UPDATED: ""}
"""Notifications, with the argument of `on_change`."""

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

HEARD_WITHIN = 2.0
"""Seconds for a server to acknowledge; a silent server is assumed to send notifications."""

AT_MOST = 60.0
BACKOFF = Backoff(first=1.0, most=AT_MOST, jitter=0.0)
"""Pause before a subscription that the server ended is opened again; resets after one that lasted."""


@final
class Listening:
    """Subscriptions of one connection. `on_change` gets `tools`, `resources`, `prompts`, or the URI of a resource."""

    def __init__(self, client: McpClient, me: Actor, on_change: Callable[[str], None] | None) -> None:
        self._client = client
        self._me = me
        self._on_change = on_change
        self._uris: set[str] = set()
        self._ref: Ref[Never, None] | None = None
        self._asked: dict[str, Json] = {}
        self._heard: dict[str, Json] = {}  # covered by the last acknowledged subscription
        self._settled = trio.Event()

    def changed(self, method: str, params: Mapping[str, Json]) -> None:
        """Pass a change notification of the server on."""
        what = CHANGES[method] or params.get("uri")
        if self._on_change is not None and isinstance(what, str):
            self._on_change(what)

    def acknowledged(self) -> None:
        """Handle the server's acknowledgement of a subscription."""
        self._settled.set()
        heard, self._heard = self._heard, self._asked
        if self._on_change is not None:
            for notification, kind in CHANGES.items():
                if kind and f"{kind}ListChanged" in heard:
                    self.changed(notification, {})
            for uri in heard.get("resourceSubscriptions", ()):
                self._on_change(uri)

    async def settled(self) -> None:
        """Wait until the server has acknowledged or refused the subscription, at most `HEARD_WITHIN` seconds."""
        if self._ref is not None:
            with trio.move_on_after(HEARD_WITHIN):
                await self._settled.wait()

    def add(self, uri: str) -> None:
        """Subscribe to another resource."""
        self._uris.add(uri)
        self.begin()

    def begin(self) -> None:
        """Open a subscription of the modern era to everything available, replacing the current one."""
        wanted = self._wanted()
        if self._on_change is None or not wanted:
            return
        if self._ref is not None:
            self._ref.cancel()
        self._ref = self._me.spawn(self._listen, wanted, name="listen", link=False)

    def _wanted(self) -> dict[str, Json]:
        wanted: dict[str, Json] = {}
        for kind in ("tools", "resources", "prompts"):
            able = self._client.capabilities.get(kind)
            if isinstance(able, dict) and able.get("listChanged"):
                wanted[f"{kind}ListChanged"] = True
        if self._uris:
            wanted["resourceSubscriptions"] = sorted(self._uris)
        return wanted

    async def _listen(self, _: Actor, wanted: Mapping[str, Json]) -> None:
        await trio.lowlevel.checkpoint()  # a subscription that is replaced at once sends nothing
        in_vain = 0
        while self._client.link.lost is None:
            self._asked = dict(wanted)
            begun = trio.current_time()
            try:
                await self._client.listen(wanted)
            except McpLost:
                pass  # a broken stream is not the end of the connection
            except McpError as error:
                self._settled.set()
                if not isinstance(error, HttpRefused) or error.status < 500:
                    return  # the server refuses subscriptions
            in_vain = 1 if trio.current_time() - begun > AT_MOST else in_vain + 1
            await trio.sleep(BACKOFF.seconds(in_vain))
