"""The description of one method of the control channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class Method(msgspec.Struct, frozen=True):
    """A method.

    Attributes:
        params: struct of its parameters.
        result: struct of its result.
        call: called with the connection (`peer.Peer`) and the parameters; returns the result, something to await for
            it, or `Follow`.
        long: the result may be long: it is made when there is room for it, and of those that are awaited only a few are
            made for one key at a time.
    """

    params: Any
    result: Any
    call: Callable[[Any, Any], Any]
    long: bool = False
