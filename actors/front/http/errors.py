"""Mapping of errors to HTTP replies: a status, and `{"error": {"code", "message", "type", "param", "request_id"}}`.

`type` and `param` are OpenAI's, for clients that were written for it: `type` depends on the status, `param` is the
invalid field of the body.
"""

from __future__ import annotations

import math
import re
import time

import msgspec
from starlette.responses import Response
from starlette.types import Message, Send

from ....protocol.errors import CallboardError, Unauthorized
from ...io.secret_redaction import hidden

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
"""Status by error code; 500 for others."""

AGAIN = {"saturated": 1.0, "shutting_down": 5.0, "ledger": 5.0}
"""Retry time in seconds for errors without their own."""

DAY = 86_400

CODES = {404: "not_found", 405: "method_not_allowed", 406: "not_acceptable", 413: "too_large", 415: "unsupported_media"}
"""Codes of refusals by HTTP itself."""


class BodyTooSlow(CallboardError):
    """The body was not received in time."""

    code = "request_timeout"


class WrongMedia(CallboardError):
    """The route does not accept this type of body."""

    code = "unsupported_media"


class ErrorShape(msgspec.Struct, frozen=True, kw_only=True):
    """`code` is stable, `message` is for people, `request_id` is in the server's logs too.

    Attributes:
        type: as OpenAI names the class of an error.
        param: the field of the body that is wrong, where that is known.
    """

    code: str
    message: str
    request_id: str
    type: str = "server_error"
    param: str | None = None


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every reply that is no success."""

    error: ErrorShape


class Watched:
    """Wrapper of `send` that records the status of the reply."""

    def __init__(self, send: Send) -> None:
        self.status: int | None = None
        self._send = send

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


def refusal(error: CallboardError, request_id: str, *, close: bool = False) -> Response:
    """Return the reply for an error; `close` closes the connection afterwards."""
    # A body that was not read to its end: the connection can serve no further request.
    headers = {"connection": "close"} if close or isinstance(error, BodyTooSlow) else {}
    if isinstance(error, Unauthorized):
        headers["www-authenticate"] = "Bearer"
    after = getattr(error, "retry_after", None)
    if after is None:
        # Until 00:00 UTC, when the next day of the spending limits begins.
        after = DAY - time.time() % DAY if error.code == "daily_budget" else AGAIN.get(error.code)
    if after is not None:
        headers["retry-after"] = str(max(1, math.ceil(after)))
    status = 415 if isinstance(error, WrongMedia) else STATUS.get(error.code, 500)
    return error_reply(status, error.code, str(error), request_id, headers)


def error_reply(
    status: int, code: str, message: str, request_id: str, headers: dict[str, str] | None = None
) -> Response:
    """Return an error reply, with secrets redacted."""
    text = hidden(message)
    shape = ErrorShape(code=code, message=text, request_id=request_id, type=type_of(status), param=_param(status, text))
    body = ErrorBody(error=shape)
    return Response(msgspec.json.encode(body), status, headers, "application/json")


TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
"""OpenAI's `type` by status; other refusals are `invalid_request_error`, failures `server_error`."""

_PLACE = re.compile(r"at `\$\.?([^`]{1,200})`$|^([a-z_]{1,40}(?:\[\d+\])?(?:\.[a-z_]{1,40})*): ")
"""Matches the field of the body in a message: at the end as a path, or before a colon."""


def type_of(status: int) -> str:
    """Return OpenAI's error type for a status."""
    return TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")


def _param(status: int, message: str) -> str | None:
    found = _PLACE.search(message) if status == 400 else None
    return None if found is None else found[1] or found[2]
