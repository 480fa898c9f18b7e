"""Names of server tools.

    <server>__<tool>            a single tool; permissions use this name, whatever name the model sees
    mcp_search_<server>         and mcp_describe_*, mcp_invoke_*: find and call all tools of a server
    mcp__search_<server>        the same, in the spelling of some of Loki's documents

Providers accept letters, digits, `_` and `-`, at most 64 characters.
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
    """Return `<server>__<tool>` as a legal name."""
    return legal(f"{server}__{tool}")


def meta_name(verb: str, server: str) -> str:
    """Return `mcp_search_<server>` and similar names."""
    return legal(f"mcp_{verb}_{server}")


def other_name(verb: str, server: str) -> str:
    """Return the other spelling of a `mcp_search_<server>` name, with two underscores after `mcp`."""
    return legal(f"mcp__{verb}_{server}")


def owner_of(name: str, servers: Iterable[str]) -> str | None:
    """Return the server of a single tool in a node's `tools`; None if the name fits none of these servers.

    Of several servers it is the one with the longest name.
    """
    return max((server for server in servers if _is_of(name, server)), key=len, default=None)


def _is_of(name: str, server: str) -> bool:
    if name.startswith(legal(f"{server}__")):
        return True
    return any(name in (meta_name(verb, server), other_name(verb, server)) for verb in VERBS)


def remedy(name: str, config: McpConfig, aliases: Iterable[str]) -> str:
    """Return a suggestion for a server that is not configured."""
    return did_you_mean(name, [*config.servers, *aliases]) or f"add it to {config.file}."


def legal(name: str) -> str:
    """Return a name that every provider accepts; one that is too long is cut and ends in a digest."""
    plain = _ILLEGAL.sub("_", name)
    return plain if len(plain) <= LONGEST else marked(name)


def marked(name: str) -> str:
    """Return the legal name with a digest of `name` at its end, for names that would collide or be too long."""
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{_ILLEGAL.sub('_', name)[: LONGEST - 9]}_{digest}"
