"""Egress for processes whose network is a list of hosts: a private network namespace with the proxy in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, final

from ....protocol.kernel.questions import NETWORK_ACTOR
from ....supervisors.escalation import listens
from ..call_clock import current as call_clock
from .namespace import Namespace, make_namespace
from .proxy import Proxy, ProxyClient

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ..call_clock import Clock
    from .grants import Who

_PROXY = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "no_proxy")


@final
class Egress:
    """Network namespace and the proxy that is the only way out of it.

    Attributes:
        namespace: network namespace in which such processes are started.
    """

    def __init__(self, namespace: Namespace, proxy: Proxy) -> None:
        self.namespace = namespace
        self._proxy = proxy

    def client(self, who: Who, clock: Clock | None) -> ProxyClient:
        """Register a process of this tool or server that is about to start, for a call with this clock."""
        return self._proxy.client(who, clock)

    def forget(self, client: ProxyClient) -> None:
        """Unregister a process that has ended. Any thread may call this."""
        self._proxy.forget(client)


Asks: TypeAlias = Callable[["Actor", ProxyClient, str, int], Awaitable[bool]]
"""An `Admits` callback that also receives the actor on whose behalf it asks the user."""


async def open_egress(me: Actor, asks: Asks, environ: Mapping[str, str], *, as_root: bool) -> Egress:
    """Open an egress that lives as long as `me`.

    Args:
        asks: decides which hosts a process may reach; runs in the egress's own actor.
        environ: variables that may name an upstream proxy of the user.

    Raises:
        ProcessError: the namespace can't be created.
    """
    namespace = await make_namespace(me, as_root=as_root)
    proxies: list[Proxy] = []

    async def live(own: Actor) -> None:
        listens.set(None)  # the answers here are not part of the run's own recorded answers
        call_clock.set(None)  # the proxy serves all calls, so no single call's clock applies
        proxies.append(Proxy(namespace, partial(asks, own), environ))
        own.started()
        try:
            await proxies[0].serve()
        finally:
            namespace.close()

    try:
        await me.start(live, name=NETWORK_ACTOR, link=False)
    except BaseException:
        namespace.close()
        raise
    return Egress(namespace, proxies[0])


def environment(client: ProxyClient, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the proxy variables of curl, Python, Node, git, pip and npm set."""
    kept = {name: value for name, value in env.items() if name.lower() not in _PROXY}
    url = client.url
    return {
        **kept,
        **dict.fromkeys(("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"), url),
        "NODE_USE_ENV_PROXY": "1",
    }
