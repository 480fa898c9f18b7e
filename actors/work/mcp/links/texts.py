"""Texts of errors: refused requests, lost connections, and HTTP statuses.

A JSON-RPC error may come under any status and is reported as such. Other refusals concern HTTP itself: missing
credentials, a wrong address, a session that the server no longer knows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .....protocol.errors import HttpRefused, McpError, McpLost, McpSignInNeeded, McpUnauthorized, McpUnsent
from .....protocol.jsonrpc import INVALID_REQUEST, METHOD_NOT_FOUND, ErrorData, ErrorResponse, decode
from .....protocol.mcp.config import Server
from ....io.http.headers import challenge_of, message_in
from ....io.secret_redaction import hidden_head, hidden_tail
from ..auth.access import remedy
from ..auth.metadata import words
from .link import OutgoingCall

if TYPE_CHECKING:
    import httpx

_SERVER_ERROR = -32000

WORDS = 500
"""Characters of a server's last stderr output that an error quotes."""

LINES = 5
RECENT = 40
"""Last lines that are searched for the cause; many programs print their stack below it."""

_SAYS_WHY = re.compile(r"\b(error|exception|fatal|panic|cannot|can't|failed|denied|no such)\b", re.IGNORECASE)

NAMED = 200
"""Characters of a name or a URI, which may be a model's invention."""


def described(outgoing: OutgoingCall) -> str:
    """Return the request with the name of its subject: `tools/call 'echo'`."""
    about = outgoing.params.get("name") or outgoing.params.get("uri")
    return f"{outgoing.method} {about[:NAMED]!r}" if isinstance(about, str) else outgoing.method


def refused(server: str, outgoing: OutgoingCall, error: ErrorData, hint: str = "") -> McpError:
    """Return the error for a server's own refusal of a request."""
    message = error.message.strip() or "no reason given"
    text = f"MCP server '{server}' refused {described(outgoing)}: {message[:2000]} (code {error.code})"
    return McpError(f"{text}{_behind(hint)}", rpc_code=error.code, data=error.data)


def lost(
    server: str,
    what: str,
    words: str = "",
    outgoing: OutgoingCall | None = None,
    *,
    since: float | None = None,
    others: int = 0,
    hint: str = "",
) -> McpLost:
    """Return the error for a lost connection.

    Args:
        what: the event, as in "ended with status 3".
        words: the server's last stderr output.
        since: seconds since `outgoing` was sent.
        others: number of other active calls of tools, any of which may be the cause.
        hint: note on the sandbox, "" for none.
    """
    during = f" during {described(outgoing)}" if outgoing is not None else ""
    sent = "" if since is None else f" (sent {since:.1f} s before{_other_count(others)})"
    return McpLost(f"MCP server '{server}' {what}{during}{sent}{_quoted(words)}{_behind(hint)}")


def unsent(server: str, what: str, words: str, outgoing: OutgoingCall, hint: str = "") -> McpUnsent:
    """Return the error for a request that the server had not read when the connection was lost."""
    text = f"MCP server '{server}' {what} before it had read {described(outgoing)}{_quoted(words)}"
    return McpUnsent(f"{text}{_behind(hint)}")


def _behind(hint: str) -> str:
    return f" {hint}" if hint else ""


def _other_count(others: int) -> str:
    if others < 1:
        return ""
    return f", while {others} other call{'' if others == 1 else 's'} of it were running"


def _quoted(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    last, before = lines[-LINES:], lines[-RECENT:-LINES]
    text = hidden_tail("\n".join(last), WORDS)
    if not any(map(_SAYS_WHY.search, last)) and (why := next(filter(_SAYS_WHY.search, reversed(before)), "")):
        text = f"{hidden_head(why, WORDS)}\n...\n{text}"
    return f"; it wrote to stderr: {text}" if text else ""


def unreadable(server: str, method: str, error: Exception) -> McpError:
    """Return the error for an answer that does not follow the protocol."""
    return McpError(f"MCP server '{server}' sent an invalid response to {method}: {error}")


def refusal(
    server: Server, what: str, response: httpx.Response, body: bytes, *, session: bool, why: str = ""
) -> McpError:
    """Return the error for an answer with an error status.

        McpSignInNeeded    401, or 403 for missing scopes, if a sign-in can help
        McpUnauthorized    other 401 and 403
        McpUnsent          the server no longer knows the session
        McpError           the body is a JSON-RPC error
        HttpRefused        every other status

    Args:
        what: description of the request.
        body: beginning of the answer's body.
        session: True if the request named a session.
        why: reason for the missing token, if it is known.
    """
    status = response.status_code
    failure = _failure(body)
    message = (failure.error.message if failure is not None else message_in(body)) or response.reason_phrase
    text = f"MCP server '{server.name}' answered {what} with HTTP {status}{f': {message}' if message else ''}"
    if status in (401, 403):
        return _unauthorized(server, text, response, why)
    code = None if failure is None else failure.error.code
    # Before the general case, since SDKs report an unknown session as a JSON-RPC error.
    if session and _forgotten(status, code, message):
        return McpUnsent(f"{text}; the session has expired, and the next call starts a new one")
    if failure is not None:
        text = f"MCP server '{server.name}' refused {what}: {hidden_head(message, 2000)} (code {code})"
        return McpError(text, rpc_code=code, data=failure.error.data)
    if 300 <= status < 400:
        where = _address_without_secrets(response.headers.get("location", "nowhere"))
        return HttpRefused(
            (
                f"{text}: it redirects to {where}. The redirect is not followed, because the headers of "
                f"'{server.name}' must not be sent to another origin; if the server has moved there, change "
                "`url` in mcp.json"
            ),
            status,
        )
    if status in (404, 405):
        return HttpRefused(
            f"{text}; check its `url` in mcp.json: {_address_without_secrets(server.url)} is not an MCP endpoint",
            status,
        )
    return HttpRefused(text, status)


def _forgotten(status: int, code: int | None, message: str) -> bool:
    """Return True if a server reports an unknown session: 404, or 400 as in the examples of the SDKs."""
    if status == 404:
        return code != METHOD_NOT_FOUND
    return status == 400 and code in (None, INVALID_REQUEST, _SERVER_ERROR) and "session" in message.lower()


def _failure(body: bytes) -> ErrorResponse | None:
    try:
        message = decode(body)
    except ValueError:
        return None
    return message if isinstance(message, ErrorResponse) else None


def lacking(response: httpx.Response) -> tuple[str, ...] | None:
    """Return the scopes that a refused request lacks, () if the server names none; None for another reason."""
    challenge = challenge_of(response.headers.get("www-authenticate", ""), "bearer")
    if challenge is None or challenge.parameters.get("error") != "insufficient_scope":
        return None
    return words(challenge.parameters.get("scope"))


def _unauthorized(server: Server, text: str, response: httpx.Response, why: str) -> McpUnauthorized:
    header = response.headers.get("www-authenticate", "")
    challenge = challenge_of(header, "bearer")
    # OAuth can't meet a challenge of another scheme, such as Basic.
    if server.sign_in is None or (header and challenge is None):
        return McpUnauthorized(f"{text}; {_credentials(server, response)}", response.status_code)
    scopes = lacking(response)
    if scopes is not None:
        named = f" ({' '.join(scopes)[:NAMED]})" if scopes else ""
        text = f"{text}; it requires a token with more scopes{named}; sign in again: {remedy(server.name)}"
        return McpSignInNeeded(text, response.status_code, scopes)
    # Signing in again would yield the same permissions.
    if response.status_code == 403:
        return McpUnauthorized(f"{text}; the signed-in account, or its token, lacks the permission", 403)
    known = challenge is not None and "resource_metadata" in challenge.parameters
    other = "" if known else f"; or {_credentials(server, response)}"
    return McpSignInNeeded(f"{text}; {why or f'sign in: {remedy(server.name)}'}{other}", response.status_code)


def _credentials(server: Server, response: httpx.Response) -> str:
    given = next((name for name in server.headers if name.lower() in ("authorization", "x-api-key", "api-key")), None)
    if given is not None:
        return f"check the header {given} of '{server.name}' in mcp.json"
    scheme = response.headers.get("www-authenticate", "").partition(" ")[0].lower() or "bearer"
    hint = {"basic": "Basic ${BASE64_USER_PASSWORD}"}.get(scheme, "Bearer ${TOKEN}")
    return f'add credentials in mcp.json: "{server.name}": {{"headers": {{"Authorization": "{hint}"}}}}'


def _address_without_secrets(url: str) -> str:
    """Return an address without its possibly secret parts."""
    import httpx

    try:
        return str(httpx.URL(url).copy_with(userinfo=b"", query=None, fragment=None))[:200]
    except httpx.InvalidURL:
        return repr(url[:200])
