"""Errors in JSON-RPC responses: the number of each error class, and conversion in both directions.

`data` of an error is `{"code": ...}`, the stable code of its class in `protocol.errors`, for clients that need more
than a text. If the time of a useful retry is known, `retry_after` has it in seconds.
"""

from __future__ import annotations

from typing import Any

from ..errors import (
    CallboardError,
    ConfigError,
    Conflict,
    DayReached,
    Denied,
    InvalidFile,
    NotFound,
    RateLimited,
    Saturated,
    ShuttingDown,
    Unauthorized,
    Unsupported,
    UsageError,
    exit_codes,
)
from ..jsonrpc import INTERNAL_ERROR, ErrorData
from .caller import Caller

# JSON-RPC 2.0, section 5.1, leaves -32000 to -32099 to servers. The first four repeat the last digits of HTTP's 401,
# 403, 404 and 409.
UNAUTHORIZED = -32001
FORBIDDEN = -32003
NOT_FOUND = -32004
CONFLICT = -32009
SATURATED = -32010
USAGE = -32011
CONFIG = -32012
RUN_FAILED = -32013
# `RequestCancelled` of the Language Server Protocol; ACP has the same number for `$/cancel_request`.
REQUEST_CANCELLED = -32800

_NUMBERS: tuple[tuple[type[CallboardError], int], ...] = (
    (Unauthorized, UNAUTHORIZED),
    (Denied, FORBIDDEN),
    # Before `UsageError`, which is their base class: the first match decides.
    (NotFound, NOT_FOUND),
    (Conflict, CONFLICT),
    (Saturated, SATURATED),
    (ShuttingDown, SATURATED),
    (UsageError, USAGE),
    (InvalidFile, USAGE),
    (Unsupported, USAGE),
    (ConfigError, CONFIG),
)


class Refused(CallboardError):
    """A request that the other side of a connection refused, or that failed with the connection.

    Attributes:
        number: JSON-RPC error number.
        data: data of the other side in addition to its text.
    """

    code = "refused"

    def __init__(self, message: str, *, number: int = INTERNAL_ERROR, data: Any = None) -> None:
        super().__init__(message)
        self.number = number
        self.data = data


def number_of(error: CallboardError) -> int:
    """Return the JSON-RPC number of an error, by its class or by its code; `RUN_FAILED` for all others."""
    if isinstance(error, Refused):
        return error.number
    found = (number for kind, number in _NUMBERS if isinstance(error, kind) or error.code == kind.code)
    return next(found, RUN_FAILED)


def error_for_client(caller: Caller, error: CallboardError) -> CallboardError:
    """Return the error as this caller may read it.

    A text that lists names is replaced by the plain one if the caller lacks the scope for these names.
    """
    if not isinstance(error, UsageError) or not error.needs or caller.has(error.needs):
        return error
    told = type(error)(error.plain)
    return told if error.node is None else told.at(error.node)


def error_data(error: CallboardError) -> ErrorData:
    """Return the error in the form of a frame. Problems of a file are included as texts."""
    data: dict[str, Any] = {"code": error.code}
    if isinstance(error, Refused) and isinstance(error.data, dict) and isinstance(error.data.get("code"), str):
        data["code"] = error.data["code"]  # the code of the underlying error, such as that of a failed run
    if isinstance(error, InvalidFile) and error.problems:
        data["problems"] = [str(problem) for problem in error.problems]
    if error.node is not None:
        data["node"] = error.node
    if isinstance(error, DayReached | RateLimited):
        data["retry_after"] = error.retry_after
    return ErrorData(number_of(error), str(error), data)


def error_of(error: ErrorData) -> CallboardError:
    """Return a server's error response as an exception with the same text, `code` and exit code."""
    code = error.data.get("code") if isinstance(error.data, dict) else None
    told = CallboardError(error.message)
    told.code = str(code or "server")
    told.exit_code = exit_codes().get(told.code, 1)
    return told
