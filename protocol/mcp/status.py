"""Status of an MCP server, as shown by `callboard mcp status`, the control channel and the HTTP API."""

from __future__ import annotations

import msgspec


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of a server of `mcp.json`; a server with several processes has a line for each.

    Attributes:
        name, type, share: as in its entry.
        state: `cold` (not started), `starting`, `leased`, `idle`, or `down` (it failed; it can be tried again in
            `retry_seconds`).
        key: the first 12 digits of what it is shared by; "" as long as it was not needed.
        by: who shares it, if not all.
        breaker: `closed`, `open` or `half-open`, see `supervisors/policy`.
        server, version, protocol: as it told us: who it is, and the revision it speaks.
        tools: how many it has; None if it never ran.
        pid, rss: its process and the bytes of memory it and those below it have, which are looked up for those who ask.
        uptime: seconds since its start.
        leases: who keeps or uses it; `pending` requests are under way.
        calls, errors, restarts: of all its processes so far.
        last_error: the last that went wrong.
    """

    name: str
    type: str
    share: str
    state: str
    key: str = ""
    by: str = ""
    breaker: str = "closed"
    retry_seconds: float = 0.0
    server: str = ""
    version: str = ""
    protocol: str = ""
    tools: int | None = None
    pid: int | None = None
    rss: int | None = None
    uptime: float = 0.0
    leases: int = 0
    pending: int = 0
    calls: int = 0
    errors: int = 0
    restarts: int = 0
    last_error: str = ""
