"""Failure: an error as data, for messages within a process and after it.

An exception cannot be a message: it has stack frames, and no other process could read it. A `Failure` has the parts
that decisions and users need: the names of its class and base classes, its text, and its attributes. `restore` makes
an error of the nearest class that this process knows, so `except UpstreamError` works the same before and after.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .errors import CallboardError, kinds

LONGEST_CAUSE = 500
"""Maximum of characters of a cause's text."""


class Failure(msgspec.Struct, frozen=True):
    """Recorded error.

    Attributes:
        kinds: names of its class and base classes up to `CallboardError`, the most derived first.
        text: `str` of the error.
        attributes: its instance attributes (`code`, `exit_code`, `node`, ...), including notes with its cause.
    """

    kinds: tuple[str, ...]
    text: str
    attributes: dict[str, Any] = {}

    @classmethod
    def of(cls, error: CallboardError) -> Failure:
        """Return an error as data."""
        kinds = tuple(kind.__name__ for kind in type(error).__mro__ if issubclass(kind, CallboardError))
        attributes = dict(error.__dict__)
        if (cause := error.__cause__) is not None:
            told = f"caused by {type(cause).__name__}: {cause}"[:LONGEST_CAUSE]
            attributes["__notes__"] = [*attributes.get("__notes__", ()), told, *getattr(cause, "__notes__", ())]
        return cls(kinds, str(error), attributes)

    def restore(self) -> CallboardError:
        """Return an error of the nearest known class, with the same text and attributes."""
        known = {kind.__name__: kind for kind in reversed(list(kinds()))}
        kind = next((known[name] for name in self.kinds if name in known), CallboardError)
        # `__init__` is not called: its further arguments are among the attributes.
        error = kind.__new__(kind, self.text)
        error.__dict__.update(self.attributes)
        return error
