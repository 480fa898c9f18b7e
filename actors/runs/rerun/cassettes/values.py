"""JSON form of effects' values: results of tools, and of processes."""

from __future__ import annotations

import base64
from typing import Any, TypeVar, cast

import msgspec

from .....protocol.chat import Part
from .....protocol.decoding import convert
from .....supervisors.process import Completed
from ....work.tools.tool import VisibleResult, text_of

T = TypeVar("T")


def as_json(value: Any) -> Any:
    """Return an effect's value as JSON values."""
    if isinstance(value, VisibleResult):
        return {"shown": msgspec.to_builtins(value.parts)}
    if isinstance(value, Completed):
        return {
            "status": value.status,
            "signal": value.signal,
            "stderr": value.stderr_tail,
            "truncated": value.truncated,
            **_bytes(value.stdout),
        }
    try:
        return msgspec.to_builtins(value, str_keys=True)
    # A program's function may return any object; the recorded text is the one that the model read.
    except (TypeError, ValueError, RecursionError):
        return text_of(value)


def as_value(value: Any, kind: type[T]) -> T:
    """Return the value of this type.

    Raises:
        msgspec.ValidationError: the JSON does not fit the type.
    """
    if kind is object:
        if isinstance(value, dict) and value.keys() == {"shown"}:
            return cast("T", VisibleResult(convert(value["shown"], tuple[Part, ...])))
        return cast("T", value)
    if kind is Completed:
        done = Completed(
            status=value["status"],
            signal=value["signal"],
            stderr_tail=value["stderr"],
            truncated=value["truncated"],
            stdout=base64.b64decode(value["base64"]) if "base64" in value else value["stdout"].encode(),
        )
        return cast("T", done)
    return convert(value, kind)


def _bytes(data: bytes) -> dict[str, str]:
    try:
        return {"stdout": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
