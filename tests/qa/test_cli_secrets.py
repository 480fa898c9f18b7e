"""Loki's command line: secrets (section 8 of the plan)."""

from __future__ import annotations

import pytest
from qa.home import QaHome
from qa.terminal import ENTER


@pytest.fixture(autouse=True)
def _vault() -> None:
    pytest.importorskip("pyrage", reason="the extra `vault` is not installed")


def test_p8_1_p8_2_p8_3_p8_4_a_secret_is_kept_told_listed_and_deleted(qa_home: QaHome) -> None:
    with qa_home.terminal("loki", "--add-secret", "test-secret") as terminal:
        terminal.shows("test-secret")
        terminal.press("open-and-shut" + ENTER)
        assert terminal.ended() == 0
        terminal.shows_not("open-and-shut")
    assert qa_home.loki("--get-secret", "test-secret").shown.strip().endswith("open-and-shut")
    assert qa_home.loki("--list-secrets").shown.split() == ["test-secret"]
    with qa_home.terminal("loki", "--delete-secret", "test-secret") as terminal:
        terminal.shows("(?i)delete|remove")
        terminal.press("y" + ENTER)
        assert terminal.ended() == 0
        terminal.shows("test-secret")
    assert "test-secret" not in qa_home.loki("--list-secrets").shown
