"""Sends our state to systemd: `READY=1`, `RELOADING=1`, `STOPPING=1` (a unit of `Type=notify`).

Without systemd nothing happens.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


def notify(state: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send a state; whether systemd took it. Never waits."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as link:
            link.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
    except OSError:
        return False
    return True
