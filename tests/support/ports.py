"""Reservation of a TCP port for a program that is told its port in advance.

    with reserved_port() as port:
        start(["serve", "--port", str(port)])

A port that is looked up with `bind(0)` and closed again can be handed to any other process before the program under
test listens on it. Here the looked-up socket stays bound, with SO_REUSEADDR and without listening. Linux then refuses
the port to every `bind(0)` and every outgoing connection, and lets a program that sets SO_REUSEADDR (as all servers do)
bind and listen. While no program listens, connections to the port are refused.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

LOOPBACK = "127.0.0.1"
TRIES = 100
"""Attempts to find a port that is free on all addresses."""


@contextmanager
def reserved_port(*addresses: str) -> Iterator[int]:
    """Reserve a port of these addresses (127.0.0.1 if none is named) while the block lasts.

    Addresses that the machine does not have are left out.

    Raises:
        OSError: no port is free on all of them.
    """
    for attempt in range(TRIES):
        with ExitStack() as stack:
            port = 0
            try:
                for address in addresses or (LOOPBACK,):
                    try:
                        port = _bound(address, port, stack)
                    except OSError as error:
                        if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                            raise
            except OSError as error:
                if error.errno != errno.EADDRINUSE or attempt == TRIES - 1:
                    raise
                continue
            yield port
            return


def _bound(address: str, port: int, stack: ExitStack) -> int:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    bound = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
    if family == socket.AF_INET6:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((address, port))
    return int(bound.getsockname()[1])
