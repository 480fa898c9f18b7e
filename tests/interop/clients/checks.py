"""Named checks of a client program: each runs by itself, and the outcomes are one JSON object."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Check = Callable[[], Any]

found: dict[str, Check] = {}


def check(function: Check) -> Check:
    """Register a check under its name. It fails by raising."""
    found[function.__name__] = function
    return function


def print_outcomes() -> None:
    """Run every check; print "ok" or the error of each, by name."""
    outcomes = {}
    for name, function in found.items():
        try:
            function()
            outcomes[name] = "ok"
        except BaseException as error:  # noqa: BLE001 - pytest.fail and SystemExit of a library count as well
            outcomes[name] = f"{type(error).__name__}: {error}"[:500]
    print(json.dumps(outcomes))
