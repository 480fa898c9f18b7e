"""An error as data: what a message says of something that failed, in a process or after it.

An exception can't be a message: it holds frames, and no other process could read it. A `Failure` holds what decisions
and users need of one: its class and those above it by name, its text, its attributes. `restore` makes an error of the
nearest class that this process knows, so `except UpstreamError` means the same before and after.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .errors import CallboardError, kinds

LONGEST_CAUSE = 500
"""Most characters of a cause's text."""


class Failure(msgspec.Struct, frozen=True):
    """An error that was.

    Attributes:
        kinds: names of its class and of those above it, up to `CallboardError`, the nearest first.
        text: what `str` of it is.
        attributes: what it carries beside its text (`code`, `exit_code`, `node`, ...), where that is not its class's;
            among them its notes, which tell its cause.
    """

    kinds: tuple[str, ...]
    text: str
    attributes: dict[str, Any] = {}

    @classmethod
    def of(cls, error: CallboardError) -> Failure:
        """What is to be said of an error."""
        kinds = tuple(kind.__name__ for kind in type(error).__mro__ if issubclass(kind, CallboardError))
        attributes = dict(error.__dict__)
        if (cause := error.__cause__) is not None:
            told = f"caused by {type(cause).__name__}: {cause}"[:LONGEST_CAUSE]
            attributes["__notes__"] = [*attributes.get("__notes__", ()), told, *getattr(cause, "__notes__", ())]
        return cls(kinds, str(error), attributes)

    def restore(self) -> CallboardError:
        """An error of the nearest class that is known, with the same text and attributes."""
        known = {kind.__name__: kind for kind in reversed(list(kinds()))}
        kind = next((known[name] for name in self.kinds if name in known), CallboardError)
        error = kind.__new__(kind, self.text)  # what its `__init__` wants beside the text is among the attributes
        error.__dict__.update(self.attributes)
        return error
