"""Hundreds of attempts to get out of the sandbox, under each backend.

An ordinary user makes the same attempts in test_ordinary_user.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from support.sandbox_battery import battery
from support.sandbox_surroundings import BACKENDS, need


def check(found: dict[str, Any], tried: int) -> None:
    assert (found["tried"], found["through"], found["changed"]) == (tried, [], [])
    assert found["controls"] == [], "an attempt is refused in the workspace, too, so it shows nothing"


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_attempt_of_a_sample_gets_out(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    need(backend, monkeypatch)
    check(battery(backend, 1, 100), 100)


@pytest.mark.full
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_attempt_gets_out(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    need(backend, monkeypatch)
    check(battery(backend, 2, 600), 600)
