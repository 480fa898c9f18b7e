"""Server selection: `--url`, or the newest live server of this user, and its token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from ...protocol.errors import NoServer, UsageError

TOKEN = "CALLBOARD_TOKEN"  # noqa: S105 - the name of a variable
_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}


@dataclass(frozen=True, kw_only=True)
class Where:
    """Server flags of a command line."""

    url: str | None = None
    token: str | None = None


@dataclass(frozen=True, kw_only=True)
class ControlServer:
    """Server address and token.

    Attributes:
        url: display URL.
        host, port, path: address of its websocket.
        tls: True for TLS.
        token: "" for none.
        pid: process of a local server.
        others: number of further candidates.
    """

    url: str
    host: str
    port: int
    path: str
    tls: bool = False
    token: str = ""
    pid: int | None = None
    others: int = 0

    @property
    def has_ended(self) -> bool:
        """True if its process is known to have ended."""
        from ...actors.front.server.token_file import is_alive

        return self.pid is not None and not is_alive(self.pid)


def find_server(where: Where, environ: Mapping[str, str]) -> ControlServer:
    """Return the requested server.

    Raises:
        UsageError: the URL is invalid.
        NoServer: no URL was given, and this user has no live server.
    """
    from ...actors.front.server.token_file import read_servers

    token = where.token or environ.get(TOKEN) or ""
    local = read_servers(environ)
    if where.url is None:
        if not local:
            raise NoServer(
                "no server is running on this machine: start one with `callboard serve`, or name one with --url"
            )
        newest = local[0]
        return _at(newest.url, token or newest.token, pid=newest.pid, others=sum(not each.worker for each in local[1:]))
    wanted = _at(where.url, token)
    for known in local:
        if (found := _at(known.url, known.token, pid=known.pid)).url == wanted.url:
            return found if not token else _at(known.url, token, pid=known.pid)
    return wanted


def _at(url: str, token: str, *, pid: int | None = None, others: int = 0) -> ControlServer:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    if parts.scheme not in _PORTS or not host:
        raise UsageError(f"--url {url}: not the address of a server; expected something like http://127.0.0.1:8807")
    tls = parts.scheme in ("https", "wss")
    path = parts.path.rstrip("/")
    if port is None:
        port = _PORTS[parts.scheme]
    shown = f"[{host}]" if ":" in host else host
    return ControlServer(
        url=f"{'https' if tls else 'http'}://{shown}:{port}{path.removesuffix('/ws')}",
        host=host,
        port=port,
        path=path if path.endswith("/ws") else f"{path}/ws",
        tls=tls,
        token=token,
        pid=pid,
        others=others,
    )
