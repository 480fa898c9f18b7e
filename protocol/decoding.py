"""Thread-safe typed decoding: the package's only access to msgspec's typed decoders and to `msgspec.convert`.

    _decode = json_decoder(Answer).decode                 # once, when the module is imported
    answer = decode_json(body, Answer)
    wanted = convert(told, RunRequest, from_attributes=True)

Problem: msgspec (0.18 to 0.22 at least) collects the fields of a Struct at its first use. It publishes this
information to all threads before it is complete, because a type that refers to itself must find an entry. Python code
runs in between (annotations are evaluated), so another thread may run, find fields without types, and crash the
process with a segmentation fault. That happened in a server that started two runs at once.

Solution: types are prepared here under one lock, and only completely prepared types are used for decoding.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

_LEARNING = threading.RLock()
"""Re-entrant, because a finalizer may run and decode while a type is prepared."""

# Weak references, because programs create types at run time, and this cache must not keep them alive.
_KNOWN: weakref.WeakSet[type] = weakref.WeakSet()


@overload
def json_decoder(type: type[T], *, strict: bool = True) -> msgspec.json.Decoder[T]: ...
@overload
def json_decoder(type: Any, *, strict: bool = True) -> msgspec.json.Decoder[Any]: ...
def json_decoder(type: Any, *, strict: bool = True) -> msgspec.json.Decoder[Any]:
    """Return a `msgspec.json.Decoder`, with its type prepared."""
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
    """Return a `msgspec.msgpack.Decoder`, with its type prepared."""
    with _LEARNING:
        return msgspec.msgpack.Decoder(type, ext_hook=ext_hook)


@overload
def decode_json(data: bytes | bytearray | memoryview | str, type: type[T]) -> T: ...
@overload
def decode_json(data: bytes | bytearray | memoryview | str, type: Any) -> Any: ...
def decode_json(data: bytes | bytearray | memoryview | str, type: Any) -> Any:
    """Call `msgspec.json.decode(data, type=type)`, with the type prepared.

    Raises:
        msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError: as `msgspec.json.decode`.
    """
    _learn(type)
    return msgspec.json.decode(data, type=type)


DecHook = Callable[[type, Any], Any]


@overload
def convert(
    value: Any, type: type[T], *, strict: bool = True, from_attributes: bool = False, dec_hook: DecHook | None = None
) -> T: ...
@overload
def convert(
    value: Any, type: Any, *, strict: bool = True, from_attributes: bool = False, dec_hook: DecHook | None = None
) -> Any: ...
def convert(
    value: Any, type: Any, *, strict: bool = True, from_attributes: bool = False, dec_hook: DecHook | None = None
) -> Any:
    """Call `msgspec.convert` safely from several threads: the type's fields are collected under a lock before.

    Raises:
        msgspec.ValidationError: as `msgspec.convert`.
    """
    _learn(type)
    return msgspec.convert(value, type, strict=strict, from_attributes=from_attributes, dec_hook=dec_hook)


def _learn(kind: Any) -> None:
    """Make msgspec collect all fields of a type.

    Classes are cached; scanning a union of known classes again is cheap.
    """
    if isinstance(kind, type):
        # Without the lock: a type is added only after msgspec has collected all of its fields.
        if kind in _KNOWN:
            return
        with _LEARNING:
            msgspec.json.Decoder(kind)
            _KNOWN.add(kind)
        return
    with _LEARNING:
        msgspec.json.Decoder(kind)
