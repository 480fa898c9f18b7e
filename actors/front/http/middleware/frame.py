"""The outermost layer: ids, headers, numbers, and one line in the log per request."""

from __future__ import annotations

import logging
import re
import uuid
from typing import TYPE_CHECKING, final

import trio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ....io.server_log import about
from ...access.scopes import find_route

if TYPE_CHECKING:
    from ...metrics import Metrics

log = logging.getLogger("callboard.server.requests")

SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"strict-origin-when-cross-origin"),
    (b"cache-control", b"no-store"),
)
"""Headers that every reply has, unless it says something else itself."""

HSTS = (b"strict-transport-security", b"max-age=31536000; includeSubDomains")
QUIET = ("/healthz/live", "/healthz/ready", "/metrics")
"""Routes that are asked for all the time, and not worth a line."""

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
GONE = 499
"""Nginx's status for a client that left before it had a reply."""


@final
class Frame:
    """See the module.

    Args:
        force_https: tell browsers to use https only.
    """

    def __init__(self, app: ASGIApp, *, force_https: bool = False, metrics: Metrics | None = None) -> None:
        self._app = app
        self._metrics = metrics
        self._headers = (*SECURITY, HSTS) if force_https else SECURITY

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As an ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id = _request_id(scope)
        scope = {**scope, "state": {**scope.get("state", {}), "request_id": id}}
        status = GONE
        headers = self._headers

        async def framed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": _completed(message.get("headers", ()), id, headers)}
            await send(message)

        began = trio.current_time()
        if self._metrics is not None:
            self._metrics.request_began()
        try:
            with about(request_id=id):
                try:
                    await self._app(scope, receive, framed)
                finally:
                    self._tell(scope, status, trio.current_time() - began)
        finally:
            if self._metrics is not None:
                method = scope["method"] if scope["method"] in _METHODS else "other"
                self._metrics.request_ended(method, _template(scope), status, trio.current_time() - began)

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        if log.isEnabledFor(logging.INFO) and scope["path"] not in QUIET:
            caller = scope["state"].get("caller")
            fields = {"status": status, "seconds": round(seconds, 4), "method": scope["method"]}
            if caller is not None:
                fields["subject"] = caller.subject
            log.info("%s %s", scope["method"], scope["path"][:300], extra=fields)


def _request_id(scope: Scope) -> str:
    """The client's own id, if it is a sane one, else a new one."""
    for name, value in scope["headers"]:
        if name.lower() == b"x-request-id" and _ID.fullmatch(given := value.decode("latin-1")):
            return str(given)
    return str(uuid.uuid4())


def _template(scope: Scope) -> str:
    found = find_route(scope["method"], scope["path"])
    return "other" if found is None else found.template


def _completed(given: object, id: str, headers: tuple[tuple[bytes, bytes], ...]) -> list[tuple[bytes, bytes]]:
    """A reply's headers with those that each has, and without what tells of our insides."""
    assert isinstance(given, list | tuple)
    kept = [(bytes(name).lower(), bytes(value)) for name, value in given]
    kept = [(name, value) for name, value in kept if name not in (b"server", b"x-request-id")]
    names = {name for name, _ in kept}
    return [*kept, (b"x-request-id", id.encode()), *(header for header in headers if header[0] not in names)]
