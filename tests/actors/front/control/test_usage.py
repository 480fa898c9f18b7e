"""What models have cost, as callers are told: their own, or all of it, and at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.messages import says

import callboard
from callboard.actors.front.control import usage
from callboard.actors.front.control.usage import usage_of
from callboard.actors.work.spending.book import SpendingBook
from callboard.protocol.chat import TokenUsage
from callboard.protocol.control.caller import LOCAL, Caller
from callboard.protocol.errors import Denied, NotKept, UsageError

ALICE = Caller("alice", frozenset({"read:runs"}))
CLAIRE = Caller("claire", frozenset({"read:runs", "admin:runs"}))
TOKENS = TokenUsage(input_tokens=100, output_tokens=10, cached_tokens=40)


@pytest.fixture
async def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[callboard.Root]:
    """A root that keeps a book in a state directory of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with callboard.Root(config_dir=tmp_path, keeps_usage=True) as root:
        yield root


def book_of(root: callboard.Root) -> SpendingBook:
    assert root.book is not None
    return root.book


async def test_a_caller_sees_its_own_and_an_administrator_all_and_both_at_once(root: callboard.Root) -> None:
    for key, cost in (("alice", 0.5), ("bob", 0.25), ("alice", None)):
        book_of(root).add(key, "writer", "a:b", TOKENS, cost)
    mine = await usage_of(root, ALICE, ["key"], 1)
    (row,) = mine.usage
    assert (row.key, row.requests, row.cost, row.unpriced, row.priced) == ("alice", 2, 0.5, 1, False)
    assert (mine.total.requests, mine.total.cached_tokens, mine.total.priced) == (2, 80, False)
    book_of(root).add("bob", "writer", "a:b", TOKENS, 0.25)
    for caller in (CLAIRE, LOCAL):
        found = await usage_of(root, caller, ["key"], 1)
        assert [(row.key, row.requests, row.priced) for row in found.usage] == [("alice", 2, False), ("bob", 2, True)]
        assert (found.total.requests, found.total.cost) == (4, 1.0)
    nothing = await usage_of(root, Caller("dave", frozenset({"read:runs"})), ["day"], 1)
    assert (nothing.usage, nothing.total.requests, nothing.total.priced) == ([], 0, True)
    with pytest.raises(Denied):
        await usage_of(root, Caller("alice", frozenset({"run:agents"})), ["day"], 1)


async def test_rows_have_what_they_are_grouped_by_and_days_end_today(root: callboard.Root) -> None:
    book_of(root).add("alice", "writer", "a:b", TOKENS, 0.5)
    found = await usage_of(root, LOCAL, ["model", "day", "model"], 7)
    today = datetime.now(UTC).date()
    assert (found.since, found.until) == ((today - timedelta(days=6)).isoformat(), today.isoformat())
    assert found.by == ["model", "day"]
    assert [(row.model, row.day) for row in found.usage] == [("a:b", found.until)]


async def test_too_many_rows_are_refused_with_what_to_do(root: callboard.Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST_ROWS", 1)
    for model in ("a:b", "c:d"):
        book_of(root).add("alice", "writer", model, TOKENS, 0.5)
    with pytest.raises(
        UsageError, match=says("front.control.usage.usage_of.3", by="model and day", found=2, days=7, MOST_ROWS=1)
    ):
        await usage_of(root, LOCAL, ["model", "day"], 7)
    assert (await usage_of(root, LOCAL, ["day"], 7)).total.requests == 2


async def test_a_book_that_can_not_be_read_is_an_error_that_names_no_path(root: callboard.Root, tmp_path: Path) -> None:
    file = tmp_path / "state" / "callboard" / "usage.db"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("this is no database, and long enough to be seen as none" * 100)
    with pytest.raises(NotKept, match=says("front.control.usage.usage_of.2")) as caught:
        await usage_of(root, LOCAL, ["day"], 7)
    assert str(tmp_path) not in str(caught.value)
    file.unlink()


async def test_a_root_that_keeps_no_book_tells_what_others_of_its_user_have_written(root: callboard.Root) -> None:
    book_of(root).add("local", "writer", "a:b", TOKENS, 0.5)
    await book_of(root).aclose()
    root.book = None
    assert (await usage_of(root, LOCAL, ["day"], 7)).total.cost == 0.5
