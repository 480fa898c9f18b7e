"""What a server's HTTP status means, as an error that says what to do about it.

An error of JSON-RPC may come under any status and stays what it is. The others are about HTTP itself: missing
credentials, the wrong address, a session that the server no longer knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....protocol.errors import HttpRefused, McpError, McpUnauthorized, McpUnsent
from .....protocol.jsonrpc import INVALID_REQUEST, METHOD_NOT_FOUND, Failure, decode
from .....protocol.mcp.config import Server
from ....io.http.refusal import message_in

if TYPE_CHECKING:
    import httpx

_SERVER_ERROR = -32000


def refusal(server: Server, what: str, response: httpx.Response, body: bytes, *, session: bool) -> McpError:
    """The error for an answer whose status is no success.

    Args:
        what: the method that was asked for.
        body: how the answer's body begins.
        session: whether the request named a session.
    """
    status = response.status_code
    failure = _failure(body)
    said = (failure.error.message if failure is not None else message_in(body)) or response.reason_phrase
    text = f"MCP server '{server.name}' answered {what} with HTTP {status}{f': {said}' if said else ''}"
    if status in (401, 403):
        return McpUnauthorized(f"{text}; {_credentials(server, response)}", status)
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
