"""The layer that lets callers in: host and origin, key, scopes, rate, a place; and CORS, for pages of other origins.

A caller is refused before a byte of the body is read.
"""

from __future__ import annotations

from typing import final

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .....protocol.control.caller import Caller
from .....protocol.errors import CallboardError, NotFound, Saturated, Unauthorized
from ....io.http.headers import joined
from ....io.server_log import about
from ...access.audit import Result
from ...access.gate import Gate
from ...access.scopes import Found, find_route, templates_at
from ..errors import status_of, told

METHODS = "GET, POST, DELETE, OPTIONS"
HEADERS = "authorization, content-type, last-event-id, x-request-id"
EXPOSED = b"x-request-id, retry-after"
PREFLIGHT_FOR = "600"
"""Seconds for which browsers remember what a preflight said."""


@final
class Door:
    """See the module."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = joined(scope["headers"])
        origin = headers.get("origin")
        if origin is not None and self._gate.origins.is_foreign_friend(origin):
            send = _shared(send, origin, credentials=self._gate.settings.cors.allow_credentials)
        peer = self._gate.peer_of(headers, scope["client"][0] if scope.get("client") else "")
        with about(peer=peer):
            try:
                await self._enter(scope, headers, peer, receive, send)
            except CallboardError as error:
                await _refusal(error, scope["state"]["request_id"])(scope, receive, send)

    async def _enter(self, scope: Scope, headers: dict[str, str], peer: str, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        found = find_route(method, path)
        if found is not None and path.startswith("/healthz/"):  # asked for by address, without a name of ours
            await self._app(scope, receive, send)
            return
        if method == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers:
            self._gate.check_place(headers, peer)
            allowed = {"access-control-allow-methods": METHODS, "access-control-allow-headers": HEADERS}
            allowed["access-control-max-age"] = PREFLIGHT_FOR
            await Response(status_code=204, headers=allowed)(scope, receive, send)
            return
        if found is not None and (found.rule.open or (path == "/metrics" and self._gate.settings.metrics_public)):
            self._gate.check_place(headers, peer)
            await self._app(scope, receive, send)
            return
        caller = await self._gate.admit(headers, peer)
        scope["state"]["caller"] = caller
        with about(subject=caller.subject):
            self._may(caller, found, path)
            async with self._gate.place(caller):
                await self._served(scope, caller, found, receive, send)

    def _may(self, caller: Caller, found: Found | None, path: str) -> None:
        if found is not None:
            self._gate.need(caller, found.rule)
        elif not caller.has("*") and next(templates_at(path), None) is None:
            raise NotFound(f"there is nothing at {path}")

    async def _served(self, scope: Scope, caller: Caller, found: Found | None, receive: Receive, send: Send) -> None:
        """Have it answered, unless the caller's key is taken away before that: then it ends where it is."""
        begun = False

        async def seen(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        with self._gate.request(caller) as stay:
            await self._audited(scope, caller, found, receive, seen)
        if stay.cancelled_caught and not begun:
            raise Unauthorized("this key counts no more")

    async def _audited(self, scope: Scope, caller: Caller, found: Found | None, receive: Receive, send: Send) -> None:
        audit = self._gate.audit
        if audit is None or found is None or found.rule.action is None:
            await self._app(scope, receive, send)
            return
        status = 500

        async def seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, seen)
        finally:
            audit.log(
                found.rule.action,
                _result(status),
                caller=caller,
                target=found.target,
                reason=None if status < 400 else f"status {status}",
                details={"method": scope["method"], "route": found.template},
            )


def _result(status: int) -> Result:
    if status < 400:
        return "success"
    return "denied" if status in (401, 403, 429) else "error"


def _refusal(error: CallboardError, id: str) -> Response:
    headers = {"connection": "close"}
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, Saturated):
        headers["retry-after"] = str(max(1, -int(-getattr(error, "retry_after", 1.0) // 1)))
    return told(status_of(error.code), error.code, str(error), id, headers)


def _shared(send: Send, origin: str, *, credentials: bool) -> Send:
    """`send` that tells browsers that pages of this origin may read the reply."""
    more = [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", EXPOSED),
        (b"vary", b"origin"),
    ]
    if credentials:
        more.append((b"access-control-allow-credentials", b"true"))

    async def shared(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return shared
