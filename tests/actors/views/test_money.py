"""What something has cost, as people read it."""

from __future__ import annotations

import pytest

from callboard.actors.views.money import usd


@pytest.mark.parametrize(
    ("cost", "priced", "shown"),
    [
        (0.0, True, "$0"),
        (0.0, False, "unpriced"),
        (0.00003, True, "<$0.0001"),
        (0.00003, False, "$0.0001+"),
        (0.0123, True, "$0.0123"),
        (0.0123, False, "$0.0123+"),
        (1234.5, True, "$1,234.50"),
    ],
)
def test_what_was_charged_never_reads_as_nothing(cost: float, priced: bool, shown: str) -> None:
    assert usd(cost, priced) == shown
