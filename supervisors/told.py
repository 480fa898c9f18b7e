"""What an actor may be told: frozen msgspec structs, and of which classes, as far as type checkers know.

`Actor[M]` is an actor that may be told messages of the class (or union) `M`, and `Ref[M, T]` a reference to it, where
`T` is what its body returns. Both may be left out and mean `Any` then, so `Actor` and `Ref[Ping]` are whole types.

At run time a message only has to be a frozen struct: sender and receiver hold the same object, and the kernel never
copies it. The check costs a set look-up for a message whose class differs from that of the last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    M = TypeVar("M", bound=msgspec.Struct, default=Any)
    N = TypeVar("N", bound=msgspec.Struct, default=Any)
    M_contra = TypeVar("M_contra", bound=msgspec.Struct, default=Any, contravariant=True)
    T_co = TypeVar("T_co", default=Any, covariant=True)
else:  # type variables have defaults since Python 3.13, and only type checkers need them
    from typing import TypeVar

    M, N = TypeVar("M"), TypeVar("N")
    M_contra, T_co = TypeVar("M_contra", contravariant=True), TypeVar("T_co", covariant=True)

MOST = 4096
"""Classes that are remembered at most: a program may make classes without end."""

accepted: set[type] = set()
"""Classes that passed the check before: frozen structs."""


def check(message: object, to: str) -> None:
    """Refuse a message that is no frozen struct.

    Args:
        to: path of the actor that is to be told, for the error.

    Raises:
        TypeError: says what is wrong with the message and how to declare a good one.
    """
    kind = type(message)
    if isinstance(message, msgspec.Struct) and message.__struct_config__.frozen:
        if len(accepted) >= MOST:
            accepted.clear()
        accepted.add(kind)
        return
    if isinstance(message, type):
        raise TypeError(f"{to} was told the class {message.__name__} itself: tell an instance of it")
    if isinstance(message, msgspec.Struct):
        raise TypeError(
            f"{to} was told a {kind.__name__}, which is not frozen. Sender and receiver hold the same object, so"
            f" neither may change it: declare `class {kind.__name__}(Message, frozen=True)`"
        )
    raise TypeError(
        f"{to} was told {kind.__name__} {message!r:.80}, but a message is a frozen struct. Declare one with what is to"
        " be said, `class Note(Message, frozen=True): text: str`, and tell an instance of it"
    )
