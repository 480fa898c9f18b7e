"""JSON that a script or a model wrote, before it becomes state.

State is walked by recursive code (compared, rendered, encoded), here and in the programs that read it. So what is
nested deeper than any sensible document is refused where it comes in, and whatever is state can be worked on.
"""

from __future__ import annotations

from typing import Any

import msgspec

DEEPEST = 200
"""Levels of lists and objects in one value."""


class NotJson(ValueError):
    """The text is no JSON, or none that can become state; says why."""


def decode(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        NotJson: see there.
    """
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise NotJson(str(error)) from error
    except RecursionError:
        raise NotJson(_TOO_DEEP) from None
    if is_too_deep(value):
        raise NotJson(_TOO_DEEP)
    return value


def is_too_deep(value: Any) -> bool:
    """Whether lists and objects are nested in it more than `DEEPEST` levels. Does not recurse itself."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEEPEST):
        if not level:
            return False
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list)
        ]
    return bool(level)


_TOO_DEEP = f"lists and objects are nested more than {DEEPEST} deep"
