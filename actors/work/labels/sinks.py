"""Sinks: calls that send data away, to a network, to other people, or to systems of others.

    files, family   never: their output stays in the run
    web             the URL, or the query, goes to a host that the model has chosen
    process         if it can reach a host that the user has not named; a network behind the proxy asks by itself
    MCP server      unless the user's `mcp.json` labels it `inside`, or its process has no network
    function        if its author says so (`effect` of the tool)

Approved are the URLs that the user has typed, and the hosts that the user has named (`network` of the sandbox, rules
for `host:`).
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from ..sandbox.current import current
from ..tools.tool import Arguments, Tool
from .path_labels import PathLabels
from .sources import exposure_of

_BETWEEN = re.compile(r"[\s<>\"'`()\[\]{}|]+")
_END = ".,;:!?"


async def sends(tool: Tool, arguments: Arguments, paths: PathLabels, typed: str) -> bool:
    """Return whether a call sends away arguments that the model has written.

    Args:
        typed: the words of the user.
    """
    if tool.effect == "send" or "sends" in tool.labels:
        return True
    if tool.origin == "mcp":
        return "inside" not in tool.labels and (await exposure_of(tool, paths)).reaches == "anything"
    if tool.origin in ("family", "function"):
        return False
    if tool.access == "web":
        return not _is_approved(str(arguments.get("url", "")), typed)
    return tool.access == "process" and (await exposure_of(tool, paths)).reaches == "anything"


def _is_approved(url: str, typed: str) -> bool:
    """True if the user has typed this whole URL, or named its host."""
    if not url:
        return False
    # In prose, a full stop or a comma may follow the URL.
    if any(url in (word, word.rstrip(_END)) for word in _BETWEEN.split(typed)):
        return True
    sandbox = current.get()
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return False
    # `@`: in `https://approved.example@other.example/` the approved host is only a user name.
    if sandbox is None or parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        return False
    return sandbox.approves(parts.hostname, port)
