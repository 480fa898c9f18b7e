"""The way out that processes have whose network is a list of hosts: a namespace of their own, and the proxy there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, final

from ....supervisors.escalation import listens
from ..call_clock import current as call_clock
from .namespace import Namespace, make_namespace
from .proxy import Client, Proxy

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ..call_clock import Clock
    from .grants import Who

_PROXY = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "no_proxy")


@final
class Door:
    """See the module.

    Attributes:
        namespace: where processes are started that have no other way out.
    """

    def __init__(self, namespace: Namespace, proxy: Proxy) -> None:
        self.namespace = namespace
        self._proxy = proxy

    def client(self, who: Who, clock: Clock | None) -> Client:
        """A process of this tool or server is to be started, for a call with this clock."""
        return self._proxy.client(who, clock)

    def forget(self, client: Client) -> None:
        """Its process is over. Any thread may say so."""
        self._proxy.forget(client)


Asks: TypeAlias = Callable[["Actor", Client, str, int], Awaitable[bool]]
"""As `Admits`, told on whose behalf a person may be asked."""


async def open_door(me: Actor, asks: Asks, environ: Mapping[str, str], *, as_root: bool) -> Door:
    """Open one, for as long as `me` lives.

    Args:
        asks: says who may go where; asked by the door's own actor.
        environ: for a proxy that the user has.

    Raises:
        ProcessError: it can't be opened.
    """
    namespace = await make_namespace(me, as_root=as_root)
    proxies: list[Proxy] = []

    async def live(own: Actor) -> None:
        listens.set(None)  # what it is asked is no answer that a run has got
        call_clock.set(None)  # it works for all calls
        proxies.append(Proxy(namespace, partial(asks, own), environ))
        own.started()
        try:
            await proxies[0].serve()
        finally:
            namespace.close()

    try:
        await me.start(live, name="network", link=False)
    except BaseException:
        namespace.close()
        raise
    return Door(namespace, proxies[0])


def environment(client: Client, env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that goes out here, as curl, Python, Node, git, pip and npm read it."""
    kept = {name: value for name, value in env.items() if name.lower() not in _PROXY}
    url = client.url
    return {
        **kept,
        **dict.fromkeys(("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"), url),
        "NODE_USE_ENV_PROXY": "1",
    }
