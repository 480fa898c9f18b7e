"""Deprecated names of the Python API, which still work and warn.

A name is deprecated in one minor version and removed in a later one, not before the next minor version
(docs/python-api.md). The warning contains the new name and the caller's line.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import Any

from .errors import UsageError

_PACKAGE = __name__.partition(".")[0]


def warn_of(old: str, new: str) -> None:
    """Emit a deprecation warning at the nearest stack frame outside of Callboard."""
    level, frame = 2, sys._getframe(1)  # noqa: SLF001 - as the standard library's `skip_file_prefixes` (Python 3.12) does it
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    warnings.warn(f"callboard: `{old}` is the old name of `{new}`", DeprecationWarning, stacklevel=level)


def renamed(given: dict[str, Any], names: Mapping[str, str], what: str) -> None:
    """Replace new names of options by the internal ones; warn about each old name.

    Args:
        given: the options, changed in place.
        names: old names by new ones.

    Raises:
        UsageError: an option was passed under both names.
    """
    for new, old in names.items():
        if old in given:
            if new in given:
                raise UsageError(f"{what} has both `{new}` and `{old}`, its old name: remove `{old}`")
            warn_of(f"{what}({old}=...)", f"{new}=")
        elif new in given:
            given[old] = given.pop(new)
