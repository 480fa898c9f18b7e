"""Which number an error has on the wire, and the other way round.

`data` of an error is `{"code": ...}`, the stable code of its class in `protocol.errors`; a client that wants more than
a text goes by that. Where it is known when to try again, `retry_after` says in how many seconds.
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

UNAUTHORIZED = -32001
FORBIDDEN = -32003
NOT_FOUND = -32004
CONFLICT = -32009
SATURATED = -32010
USAGE = -32011
CONFIG = -32012
RUN_FAILED = -32013
REQUEST_CANCELLED = -32800

_NUMBERS: tuple[tuple[type[CallboardError], int], ...] = (
    (Unauthorized, UNAUTHORIZED),
    (Denied, FORBIDDEN),
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
    """A request that the other side of a connection has refused, or that broke with it.

    Attributes:
        number: JSON-RPC's.
        data: what the other side says beside its text.
    """

    code = "refused"

    def __init__(self, message: str, *, number: int = INTERNAL_ERROR, data: Any = None) -> None:
        super().__init__(message)
        self.number = number
        self.data = data


def number_of(error: CallboardError) -> int:
    """JSON-RPC's number for an error; one that came from another process has the code of its kind alone."""
    if isinstance(error, Refused):
        return error.number
    found = (number for kind, number in _NUMBERS if isinstance(error, kind) or error.code == kind.code)
    return next(found, RUN_FAILED)


def told_to(caller: Caller, error: CallboardError) -> CallboardError:
    """The error as this caller may read it: an unknown name lists those there are only to who may list them."""
    if not isinstance(error, UsageError) or not error.needs or caller.has(error.needs):
        return error
    told = type(error)(error.plain)
    return told if error.node is None else told.at(error.node)


def error_data(error: CallboardError) -> ErrorData:
    """The error as a frame says it. Problems of a file come along, one text each."""
    data: dict[str, Any] = {"code": error.code}
    if isinstance(error, InvalidFile) and error.problems:
        data["problems"] = [str(problem) for problem in error.problems]
    if error.node is not None:
        data["node"] = error.node
    if isinstance(error, DayReached | RateLimited):
        data["retry_after"] = error.retry_after
    return ErrorData(number_of(error), str(error), data)


def error_of(error: ErrorData) -> CallboardError:
    """A server's refusal as the error that it was there: same text, same `code`, same exit code."""
    code = error.data.get("code") if isinstance(error.data, dict) else None
    told = CallboardError(error.message)
    told.code = str(code or "server")
    told.exit_code = exit_codes().get(told.code, 1)
    return told
