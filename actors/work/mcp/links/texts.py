"""Texts of errors about requests, their refusals and the end of a connection: the same for every transport."""

from __future__ import annotations

import re

from .....protocol.errors import McpError, McpLost, McpUnsent
from .....protocol.jsonrpc import ErrorData
from .link import Outgoing

WORDS = 500
"""Characters of a server's last lines that an error quotes."""

LINES = 5
RECENT = 40
"""Lines among which the one is looked for that says what went wrong; many programs write where it did below that."""

_SAYS_WHY = re.compile(r"\b(error|exception|fatal|panic|cannot|can't|failed|denied|no such)\b", re.IGNORECASE)

NAMED = 200
"""Characters of a name or a URI, which a model may have made up."""


def described(outgoing: Outgoing) -> str:
    """`tools/call 'echo'`: the request, with the name of what it is about."""
    about = outgoing.params.get("name") or outgoing.params.get("uri")
    return f"{outgoing.method} {about[:NAMED]!r}" if isinstance(about, str) else outgoing.method


def refused(server: str, outgoing: Outgoing, error: ErrorData) -> McpError:
    """The server's own refusal of a request."""
    message = error.message.strip() or "no reason given"
    text = f"MCP server '{server}' refused {described(outgoing)}: {message[:2000]} (code {error.code})"
    return McpError(text, rpc_code=error.code, data=error.data)


def lost(
    server: str,
    what: str,
    words: str = "",
    outgoing: Outgoing | None = None,
    *,
    since: float | None = None,
    others: int = 0,
) -> McpLost:
    """The connection's end; `what` as in "ended with status 3", `words` what the server wrote to stderr at last.

    Args:
        since: seconds since `outgoing` was sent.
        others: calls of tools that were under way beside it, any of which may be to blame.
    """
    during = f" during {described(outgoing)}" if outgoing is not None else ""
    sent = "" if since is None else f" (sent {since:.1f} s before{_beside(others)})"
    return McpLost(f"MCP server '{server}' {what}{during}{sent}{_quoted(words)}")


def unsent(server: str, what: str, words: str, outgoing: Outgoing) -> McpUnsent:
    """The connection's end for a request that the server had not read by then."""
    return McpUnsent(f"MCP server '{server}' {what} before it had read {described(outgoing)}{_quoted(words)}")


def _beside(others: int) -> str:
    if others < 1:
        return ""
    return f", with {others} other call{'' if others == 1 else 's'} under way"


def _quoted(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    last, before = lines[-LINES:], lines[-RECENT:-LINES]
    text = "\n".join(last)[-WORDS:]
    if not any(map(_SAYS_WHY.search, last)) and (why := next(filter(_SAYS_WHY.search, reversed(before)), "")):
        text = f"{why[:WORDS]}\n...\n{text}"
    return f"; it wrote to stderr: {text}" if text else ""


def unreadable(server: str, method: str, error: Exception) -> McpError:
    """The server's answer is not what the protocol says it should be."""
    return McpError(f"MCP server '{server}' answered {method} with something that is no answer to it: {error}")
