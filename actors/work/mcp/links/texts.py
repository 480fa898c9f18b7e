"""Texts of errors about requests, their refusals and the end of a connection; and what a server's HTTP status means.

An error of JSON-RPC may come under any status and stays what it is. Other refusals are about HTTP itself: missing
credentials, the wrong address, a session that the server no longer knows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .....protocol.errors import HttpRefused, McpError, McpLost, McpSignInNeeded, McpUnauthorized, McpUnsent
from .....protocol.jsonrpc import INVALID_REQUEST, METHOD_NOT_FOUND, ErrorData, Failure, decode
from .....protocol.mcp.config import Server
from ....io.http.challenges import challenge_of
from ....io.http.refusal import message_in
from ..auth.access import remedy
from ..auth.metadata import words
from .link import Outgoing

if TYPE_CHECKING:
    import httpx

_SERVER_ERROR = -32000

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


def refusal(
    server: Server, what: str, response: httpx.Response, body: bytes, *, session: bool, why: str = ""
) -> McpError:
    """The error for an answer whose status is no success.

    Args:
        what: the method that was asked for.
        body: how the answer's body begins.
        session: whether the request named a session.
        why: why there is no token for it, if that is known.
    """
    status = response.status_code
    failure = _failure(body)
    said = (failure.error.message if failure is not None else message_in(body)) or response.reason_phrase
    text = f"MCP server '{server.name}' answered {what} with HTTP {status}{f': {said}' if said else ''}"
    if status in (401, 403):
        return _unauthorized(server, text, response, why)
    code = None if failure is None else failure.error.code
    if session and _forgotten(status, code, said):
        return McpUnsent(f"{text}; it no longer knows our session, the next call begins a new one")
    if failure is not None:
        text = f"MCP server '{server.name}' refused {what}: {said[:2000]} (code {code})"
        return McpError(text, rpc_code=code, data=failure.error.data)
    if 300 <= status < 400:
        where = _shown(response.headers.get("location", "nowhere"))
        return HttpRefused(
            f"{text}: it leads to {where}, which is not followed, since the headers of '{server.name}' are not for"
            " another origin; if that is the server, write its address as `url` in mcp.json",
            status,
        )
    if status in (404, 405):
        return HttpRefused(f"{text}; check its `url` in mcp.json: {_shown(server.url)} is no MCP endpoint", status)
    return HttpRefused(text, status)


def _forgotten(status: int, code: int | None, said: str) -> bool:
    """Whether that is how a server speaks of a session it does not know: 404, or 400 as the examples of the SDKs do."""
    if status == 404:
        return code != METHOD_NOT_FOUND
    return status == 400 and code in (None, INVALID_REQUEST, _SERVER_ERROR) and "session" in said.lower()


def _failure(body: bytes) -> Failure | None:
    try:
        message = decode(body)
    except ValueError:
        return None
    return message if isinstance(message, Failure) else None


def lacking(response: httpx.Response) -> tuple[str, ...] | None:
    """The scopes for want of which a request was refused; None if it was not for that."""
    challenge = challenge_of(response.headers.get("www-authenticate", ""), "bearer")
    if challenge is None or challenge.parameters.get("error") != "insufficient_scope":
        return None
    return words(challenge.parameters.get("scope"))


def _unauthorized(server: Server, text: str, response: httpx.Response, why: str) -> McpUnauthorized:
    said = response.headers.get("www-authenticate", "")
    challenge = challenge_of(said, "bearer")
    if server.sign_in is None or (said and challenge is None):
        return McpUnauthorized(f"{text}; {_credentials(server, response)}", response.status_code)
    scopes = lacking(response)
    if scopes is not None:
        named = f" ({' '.join(scopes)[:NAMED]})" if scopes else ""
        text = f"{text}; it wants a token with more scopes{named}; sign in again: {remedy(server.name)}"
        return McpSignInNeeded(text, response.status_code, scopes)
    if response.status_code == 403:
        return McpUnauthorized(f"{text}; the account that is signed in, or its token, may not do that", 403)
    known = challenge is not None and "resource_metadata" in challenge.parameters
    other = "" if known else f"; or {_credentials(server, response)}"
    return McpSignInNeeded(f"{text}; {why or f'sign in: {remedy(server.name)}'}{other}", response.status_code)


def _credentials(server: Server, response: httpx.Response) -> str:
    given = next((name for name in server.headers if name.lower() in ("authorization", "x-api-key", "api-key")), None)
    if given is not None:
        return f"check the header {given} of '{server.name}' in mcp.json"
    scheme = response.headers.get("www-authenticate", "").partition(" ")[0].lower() or "bearer"
    hint = {"basic": "Basic ${BASE64_USER_PASSWORD}"}.get(scheme, "Bearer ${TOKEN}")
    return f'give it credentials in mcp.json: "{server.name}": {{"headers": {{"Authorization": "{hint}"}}}}'


def _shown(url: str) -> str:
    """An address without what may be secret in it."""
    import httpx

    try:
        return str(httpx.URL(url).copy_with(userinfo=b"", query=None, fragment=None))[:200]
    except httpx.InvalidURL:
        return repr(url[:200])
