"""Maps errors to HTTP replies: a status, and `{"error": {"code", "message", "request_id"}}`."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from ....protocol.errors import CallboardError
from .shapes.error import ErrorBody, ErrorShape

STATUS = {
    "usage": 400,
    "invalid_file": 400,
    "unsupported": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "request_timeout": 408,
    "conflict": 409,
    "knowledge_busy": 409,
    "knowledge_missing": 409,
    "cancelled": 499,
    "not_implemented": 501,
    "model": 502,
    "upstream": 502,
    "credentials": 502,
    "saturated": 503,
    "shutting_down": 503,
    "timeout": 504,
    "rate_limited": 429,
}
"""By the code of an error; what is not in here is 500."""

AGAIN = {"saturated": 1.0, "shutting_down": 5.0}
"""Seconds after which to try again, where the error itself does not know it."""

CODES = {404: "not_found", 405: "method_not_allowed", 406: "not_acceptable", 413: "too_large", 415: "unsupported_media"}
"""Codes of what HTTP itself refuses."""


class NotImplementedYet(CallboardError):
    """The route is part of the API, and what it is about is not there yet."""

    code = "not_implemented"


class BodyTooSlow(CallboardError):
    """The body did not come to its end."""

    code = "request_timeout"


class WrongMedia(CallboardError):
    """The body is of a kind that the route does not take."""

    code = "unsupported_media"


def status_of(code: str) -> int:
    """The status of an error with this code."""
    return 415 if code == WrongMedia.code else STATUS.get(code, 500)


def refusal(error: CallboardError, request_id: str) -> Response:
    """The reply for an error."""
    headers = {"connection": "close"} if isinstance(error, BodyTooSlow) else {}
    after = getattr(error, "retry_after", None)
    if after is None and error.code in AGAIN:
        after = AGAIN[error.code]
    if after is not None:
        headers["retry-after"] = str(max(1, round(after)))
    return told(status_of(error.code), error.code, str(error), request_id, headers)


def told(status: int, code: str, message: str, request_id: str, headers: dict[str, str] | None = None) -> Response:
    """A reply that says what went wrong."""
    body = ErrorBody(error=ErrorShape(code=code, message=message, request_id=request_id))
    return Response(msgspec.json.encode(body), status, headers, "application/json")
