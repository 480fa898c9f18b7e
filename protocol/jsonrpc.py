"""JSON-RPC 2.0: one line, one HTTP body or one websocket frame is one message.

    encode_request(7, "tools/call", {...})    b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{...}}'
    decode(line)                              Request, Notification, Result or ErrorResponse

Results stay undecoded bytes (`msgspec.Raw`) until code that knows their type decodes them. A batch (an array, which
the revision of 2025-03-26 allowed) is decoded by `decode_all`.

MCP, ACP and the control channel use it. Source: https://www.jsonrpc.org/specification.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from .decoding import json_decoder
from .json_values import decode_mended

UNREADABLE = (ValueError, RecursionError)
"""Exceptions of decoding untrusted JSON. In a `Raw`, not even the UTF-8 has been checked."""

Json: TypeAlias = Any
Id: TypeAlias = int | str

# JSON-RPC 2.0, section 5.1.
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603


class ErrorData(msgspec.Struct, frozen=True):
    """Error object of a response."""

    code: int
    message: str = ""
    data: Json = None


class Request(msgspec.Struct, frozen=True):
    """Request that expects a response with the same `id`; `params` is the JSON text of an object, or empty."""

    id: Id
    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")


class Notification(msgspec.Struct, frozen=True):
    """Message without a response."""

    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")


class Result(msgspec.Struct, frozen=True):
    """Successful response to the request `id`."""

    id: Id
    result: msgspec.Raw


class ErrorResponse(msgspec.Struct, frozen=True):
    """Error response to the request `id`; None if the receiver could not read the id."""

    id: Id | None
    error: ErrorData


Message: TypeAlias = Request | Notification | Result | ErrorResponse


_ABSENT = msgspec.Raw(b"")  # not None: `Raw | None` accepts only null


# `jsonrpc` has no field, because it is not checked (docs/control.md); msgspec skips keys without a field.
class _Any(msgspec.Struct, frozen=True):
    method: str | None = None
    id: Id | None = None
    params: msgspec.Raw = _ABSENT
    result: msgspec.Raw = _ABSENT
    error: ErrorData | None = None


_ONE = json_decoder(_Any)
_MANY = json_decoder(list[_Any])
_ENCODER = msgspec.json.Encoder()


def decode(data: bytes | bytearray | memoryview | msgspec.Raw) -> Message:
    """Return one message.

    Raises:
        ValueError: the data are not a message; the text has the reason (`msgspec.MsgspecError` included).
    """
    try:
        return _distinguished(decode_mended(_ONE.decode, data))
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def decode_all(data: bytes | bytearray | memoryview | msgspec.Raw) -> list[Message]:
    """Return one message, or the messages of a batch.

    Raises:
        ValueError: a part is not a message.
    """
    if bytes(data[:64]).lstrip()[:1] != b"[":
        return [decode(data)]
    try:
        return [_distinguished(each) for each in decode_mended(_MANY.decode, data)]
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def _distinguished(any: _Any) -> Message:
    if any.method is not None:
        params = msgspec.Raw(b"{}") if any.params is _ABSENT or bytes(any.params) == b"null" else any.params
        return Notification(any.method, params) if any.id is None else Request(any.id, any.method, params)
    # Before `result`: responses in the form of JSON-RPC 1.0 have both keys, with null for the one that does not apply.
    if any.error is not None:
        return ErrorResponse(any.id, any.error)
    if any.result is not _ABSENT and any.id is not None:
        return Result(any.id, any.result)
    raise ValueError("a message has a method, or an id with a result or an error")


def number(id: Id | None) -> int | None:
    """Return the id in a response as a number, also if the server wrote the number as a text; None for other ids."""
    # Callboard's own ids have fewer digits. `int` takes quadratic time for long texts, and raises above 4,300 digits.
    if isinstance(id, str) and len(id) < 20 and id.isascii() and id.isdigit():
        return int(id)
    return id if isinstance(id, int) else None


def encode_request(id: Id, method: str, params: Json) -> bytes:
    """Return a request without a newline."""
    return _encoded({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def encode_notification(method: str, params: Json) -> bytes:
    """Return a notification without a newline."""
    return _encoded({"jsonrpc": "2.0", "method": method, "params": params})


def encode_result(id: Id, result: Json) -> bytes:
    """Return a successful response without a newline."""
    return _encoded({"jsonrpc": "2.0", "id": id, "result": result})


def encode_failure(id: Id | None, code: int, message: str, data: Json = None) -> bytes:
    """Return an error response without a newline."""
    error: dict[str, Json] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return _encoded({"jsonrpc": "2.0", "id": id, "error": error})


def _encoded(message: dict[str, Json]) -> bytes:
    try:
        return _ENCODER.encode(message)
    except UnicodeEncodeError:  # Half of a surrogate pair, from a program's output or a file name.
        return _ENCODER.encode(_readable(msgspec.to_builtins(message, builtin_types=(msgspec.Raw,))))


def _readable(value: Json) -> Json:
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, dict):
        return {_readable(key): _readable(each) for key, each in value.items()}
    return [_readable(each) for each in value] if isinstance(value, list) else value


def readable(text: str) -> str:
    """Return the text with a question mark for each character that UTF-8 cannot encode."""
    return text if text.isascii() else text.encode(errors="replace").decode()
