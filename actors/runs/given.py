"""What the caller gives a run, made fit for scripts and models before the run starts, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ...protocol.errors import UsageError
from ..engine.graph.json_values import DEEPEST, is_too_deep
from ..engine.graph.templates import render


def plain_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """State as scripts and templates will see it: tuples are lists, structs are objects, dates are text.

    Raises:
        UsageError: it holds what JSON does not.
    """
    try:
        plain = msgspec.to_builtins(dict(state), str_keys=True)
    except (TypeError, ValueError) as error:
        raise UsageError(f"`state` must hold JSON values only: {error}") from error
    except RecursionError:
        raise UsageError("`state` is nested too deep, or holds itself") from None
    assert isinstance(plain, dict)
    if is_too_deep(plain):
        raise UsageError(f"`state` is nested too deep: lists and objects may nest {DEEPEST} levels")
    try:
        render(plain)
    except UnicodeEncodeError as error:
        raise UsageError(f"`state` holds a text that is not Unicode: {error.reason}") from None
    return plain


def check_unicode(what: str, text: str) -> None:
    """Raise `UsageError` for what no script and no model can be told: bytes of a command line that were not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        where = f"its character {error.start + 1} is a byte that is not UTF-8, or half of a surrogate pair"
        raise UsageError(f"{what} is not Unicode text: {where}") from None
