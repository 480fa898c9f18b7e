"""What the tools of servers are called.

    <server>__<tool>            a tool by itself; what permissions speak of, however it is called
    mcp_search_<server>         and mcp_describe_*, mcp_invoke_*: the three by which all others can be found and called
    mcp__search_<server>        the same as some of Loki's documents have it

Providers take letters, digits, `_` and `-`, and 64 of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from .....protocol.mcp.config import McpConfig
from .....protocol.problems import did_you_mean

VERBS = ("search", "describe", "invoke")

LONGEST = 64

_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")


def offered_name(server: str, tool: str) -> str:
    """`<server>__<tool>`, made of what providers take."""
    return legal(f"{server}__{tool}")


def meta_name(verb: str, server: str) -> str:
    """`mcp_search_<server>` and its like."""
    return legal(f"mcp_{verb}_{server}")


def other_name(verb: str, server: str) -> str:
    """The other spelling of `meta_name`."""
    return legal(f"mcp__{verb}_{server}")


def owner_of(name: str, servers: Iterable[str]) -> str | None:
    """The server of which a name in a node's `tools` means a single tool; of several the one with the longest name."""
    return max((server for server in servers if _is_of(name, server)), key=len, default=None)


def _is_of(name: str, server: str) -> bool:
    if name.startswith(legal(f"{server}__")):
        return True
    return any(name in (meta_name(verb, server), other_name(verb, server)) for verb in VERBS)


def remedy(name: str, config: McpConfig, aliases: Iterable[str]) -> str:
    """What to do about a server that is not configured."""
    return did_you_mean(name, [*config.servers, *aliases]) or f"add it to {config.file}."


def legal(name: str) -> str:
    """A name that every provider takes; one that is too long ends in a digest."""
    plain = _ILLEGAL.sub("_", name)
    return plain if len(plain) <= LONGEST else marked(name)


def marked(name: str) -> str:
    """The legal name with a digest of `name` at its end, for where the plain one won't do."""
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{_ILLEGAL.sub('_', name)[: LONGEST - 9]}_{digest}"
