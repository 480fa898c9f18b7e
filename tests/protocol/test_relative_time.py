"""How long ago a moment was, in few characters."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from callboard.protocol.relative_time import age, seconds_since


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, ""), (0, "0s"), (59.4, "59s"), (60, "1m"), (3599, "59m"), (3700, "1h01m"), (90_000, "1d01h")],
)
def test_an_age_has_one_or_two_units(seconds: float | None, shown: str) -> None:
    assert age(seconds) == shown


def test_a_clock_that_is_behind_gives_no_negative_time() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert seconds_since("2026-01-01T00:00:09Z", now) == 0
    assert seconds_since("2025-12-31T23:59:50Z", now) == 10
    assert seconds_since("2025-12-31T23:59:50", now) == 10
    assert seconds_since("", now) is None
