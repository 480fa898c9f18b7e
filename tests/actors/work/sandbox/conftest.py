"""Here runs have the sandbox that users have."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _as_users_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CALLBOARD_SANDBOX")
