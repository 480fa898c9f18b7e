"""Maps errors to HTTP replies: a status, and `{"error": {"code", "message", "request_id"}}`."""

from __future__ import annotations

import math
import time

import msgspec
from starlette.responses import Response
from starlette.types import Message, Send

from ....protocol.errors import CallboardError, Unauthorized
from ...io.handed_out import hidden

STATUS = {
    "usage": 400,
    "invalid_file": 400,
    "unsupported": 400,
    "unpriced": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "request_timeout": 408,
    "conflict": 409,
    "knowledge_busy": 409,
    "knowledge_missing": 409,
    "cancelled": 499,
    "model": 502,
    "upstream": 502,
    "credentials": 502,
    "saturated": 503,
    "shutting_down": 503,
    "timeout": 504,
    "rate_limited": 429,
    "daily_budget": 429,
    "ledger": 503,
}
"""By the code of an error; what is not in here is 500."""

AGAIN = {"saturated": 1.0, "shutting_down": 5.0, "ledger": 5.0}
"""Seconds after which to try again, where the error itself does not know it."""

DAY = 86_400

CODES = {404: "not_found", 405: "method_not_allowed", 406: "not_acceptable", 413: "too_large", 415: "unsupported_media"}
"""Codes of what HTTP itself refuses."""


class BodyTooSlow(CallboardError):
    """The body did not come to its end."""

    code = "request_timeout"


class WrongMedia(CallboardError):
    """The body is of a kind that the route does not take."""

    code = "unsupported_media"


class ErrorShape(msgspec.Struct, frozen=True, kw_only=True):
    """`code` is stable, `message` is for people, `request_id` is in the server's logs too."""

    code: str
    message: str
    request_id: str


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every reply that is no success."""

    error: ErrorShape


class Watched:
    """`send`, and the status of the reply once it has begun."""

    def __init__(self, send: Send) -> None:
        self.status: int | None = None
        self._send = send

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


def refusal(error: CallboardError, request_id: str, *, close: bool = False) -> Response:
    """The reply for an error; with `close` the connection is closed after it."""
    headers = {"connection": "close"} if close or isinstance(error, BodyTooSlow) else {}
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = "Bearer"
    after = getattr(error, "retry_after", None)
    if after is None:
        after = DAY - time.time() % DAY if error.code == "daily_budget" else AGAIN.get(error.code)
    if after is not None:
        headers["retry-after"] = str(max(1, math.ceil(after)))
    status = 415 if isinstance(error, WrongMedia) else STATUS.get(error.code, 500)
    return told(status, error.code, str(error), request_id, headers)


def told(status: int, code: str, message: str, request_id: str, headers: dict[str, str] | None = None) -> Response:
    """A reply that says what went wrong, without what the vault has handed out."""
    body = ErrorBody(error=ErrorShape(code=code, message=hidden(message), request_id=request_id))
    return Response(msgspec.json.encode(body), status, headers, "application/json")
