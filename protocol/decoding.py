"""Decodes to types, from any thread: the package's only way to msgspec's typed decoders and to `msgspec.convert`.

    _decode = json_decoder(Answer).decode                 # once, when the module is imported
    answer = decode_json(body, Answer)
    wanted = convert(told, RunRequest, from_attributes=True)

msgspec (0.18 to 0.22 at least) learns the fields of a Struct at its first use, and shares what it learns with all
threads before it is whole: a type that names itself has to find something there. Python code runs in between (it
evaluates annotations), so another thread may get its turn, find fields that have no type yet, and end the process with
a segmentation fault. A server that starts two runs at once did. So types are learned here under one lock, and only
types that are known as a whole are decoded to.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

_LEARNING = threading.RLock()
"""Re-entrant: a finalizer may run, and decode, while a type is learned."""

_KNOWN: weakref.WeakSet[type] = weakref.WeakSet()


@overload
def json_decoder(type: type[T], *, strict: bool = True) -> msgspec.json.Decoder[T]: ...
@overload
def json_decoder(type: Any, *, strict: bool = True) -> msgspec.json.Decoder[Any]: ...
def json_decoder(type: Any, *, strict: bool = True) -> msgspec.json.Decoder[Any]:
    """As `msgspec.json.Decoder`."""
    with _LEARNING:
        return msgspec.json.Decoder(type, strict=strict)


@overload
def msgpack_decoder(
    type: type[T], *, ext_hook: Callable[[int, memoryview], Any] | None = None
) -> msgspec.msgpack.Decoder[T]: ...
@overload
def msgpack_decoder(
    type: Any, *, ext_hook: Callable[[int, memoryview], Any] | None = None
) -> msgspec.msgpack.Decoder[Any]: ...
def msgpack_decoder(
    type: Any, *, ext_hook: Callable[[int, memoryview], Any] | None = None
) -> msgspec.msgpack.Decoder[Any]:
    """As `msgspec.msgpack.Decoder`."""
    with _LEARNING:
        return msgspec.msgpack.Decoder(type, ext_hook=ext_hook)


@overload
def decode_json(data: bytes | bytearray | memoryview | str, type: type[T]) -> T: ...
@overload
def decode_json(data: bytes | bytearray | memoryview | str, type: Any) -> Any: ...
def decode_json(data: bytes | bytearray | memoryview | str, type: Any) -> Any:
    """As `msgspec.json.decode(data, type=type)`.

    Raises:
        msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError: see there.
    """
    _learn(type)
    return msgspec.json.decode(data, type=type)


@overload
def convert(value: Any, type: type[T], *, strict: bool = True, from_attributes: bool = False) -> T: ...
@overload
def convert(value: Any, type: Any, *, strict: bool = True, from_attributes: bool = False) -> Any: ...
def convert(value: Any, type: Any, *, strict: bool = True, from_attributes: bool = False) -> Any:
    """As `msgspec.convert`.

    Raises:
        msgspec.ValidationError: see there.
    """
    _learn(type)
    return msgspec.convert(value, type, strict=strict, from_attributes=from_attributes)


def _learn(kind: Any) -> None:
    """Have msgspec know all of this type. Classes are remembered; a union of them is cheap to look through again."""
    if isinstance(kind, type):
        if kind in _KNOWN:
            return
        with _LEARNING:
            msgspec.json.Decoder(kind)
            _KNOWN.add(kind)
        return
    with _LEARNING:
        msgspec.json.Decoder(kind)
