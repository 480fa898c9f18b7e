"""Number of hypothesis examples: a third in `make test`, all of them in `make test-all` and `make soak`.

A test that sets `max_examples` overrides the profile, so its own settings are replaced after collection. Functions with
`@given` inside a test are not found and draw all their examples.
"""

from __future__ import annotations

from typing import Any

import pytest
from _pytest.mark.expression import Expression  # what `-m` itself uses; pytest has no public name for it
from hypothesis import settings

DEFAULT = 100
LEAST = 10
"""Examples below which a test is not cut: the first ones are the simplest."""


def leaves_out_full(markers: str) -> bool:
    """Return True if `-m` with this expression deselects tests that are marked `full`."""
    return bool(markers) and not Expression.compile(markers).evaluate(lambda name, **_: name == "full")


def fewer(examples: int) -> int:
    """Return a third of this number, but not less than `LEAST` of them."""
    return max(min(examples, LEAST), -(-examples // 3))


def draw_fewer(items: list[pytest.Item]) -> None:
    """Cut the examples of the tests that set their number themselves."""
    done: set[Any] = set()
    for item in items:
        function = getattr(item, "function", None)
        machine = getattr(getattr(item, "cls", None), "settings", None)  # a test case of a state machine
        if isinstance(machine, settings) and item.cls not in done:  # type: ignore[attr-defined] # it has one: see above
            item.cls.settings = _cut(machine)  # type: ignore[attr-defined]
            done.add(item.cls)  # type: ignore[attr-defined]
        own = getattr(function, "_hypothesis_internal_use_settings", None)
        if isinstance(own, settings) and function not in done:
            function._hypothesis_internal_use_settings = _cut(own)  # type: ignore[union-attr] # `settings(...)` may be
            done.add(function)  # applied once only


def _cut(own: settings) -> settings:
    return settings(own, max_examples=fewer(own.max_examples))
