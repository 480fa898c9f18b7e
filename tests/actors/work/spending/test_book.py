"""The book: every reply is in it once, whichever process it was for, and whatever the disk does."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from pathlib import Path

import pytest
import trio
from support.starter import forked_code

from callboard.actors.work.spending import book
from callboard.actors.work.spending.book import BookFile, SpendingBook, SpendingSums, read
from callboard.protocol.chat import TokenUsage
from callboard.supervisors import Root

DAY = 86_400.0
TOKENS = TokenUsage(input_tokens=100, output_tokens=10, cached_tokens=40)


async def test_replies_are_summed_by_day_key_agent_and_model(tmp_path: Path) -> None:
    path, days = tmp_path / "state" / "usage.db", iter([0.0, 0.0, 0.0, DAY])
    async with Root() as root:
        kept = SpendingBook(root, BookFile(path), now=lambda: next(days))
        for cost in (0.5, None):
            kept.add("local", "writer", "a:b", TOKENS, cost)
        kept.add("alice", "writer", "a:b", TOKENS, 0.25)
        kept.add("alice", "writer", "a:b", TOKENS, 0.25)
        await kept.aclose()
    assert read(path) == {
        ("1970-01-01", "alice", "writer", "a:b"): SpendingSums(1, 100, 40, 10, 0.25, 0),
        ("1970-01-01", "local", "writer", "a:b"): SpendingSums(2, 200, 80, 20, 0.5, 1),
        ("1970-01-02", "alice", "writer", "a:b"): SpendingSums(1, 100, 40, 10, 0.25, 0),
    }
    assert list(read(path, "1970-01-02")) == [("1970-01-02", "alice", "writer", "a:b")]
    assert path.stat().st_mode & 0o777 == 0o600


async def test_it_is_written_a_moment_later_and_not_at_the_end_alone(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    async with Root() as root:
        kept = SpendingBook(root, BookFile(path), now=lambda: 0.0)
        for requests in (1, 2):
            kept.add("local", "", "a:b", TOKENS, 0.5)
            with trio.fail_after(60):
                while sum(spent.requests for spent in read(path).values()) < requests:
                    await trio.sleep(0.01)


async def test_its_owner_reads_what_is_not_written_yet_and_what_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "usage.db"
    async with Root() as root:
        kept = SpendingBook(root, BookFile(path), now=lambda: 0.0)
        for requests in range(1, 30):
            kept.add("local", "", "a:b", TOKENS, 0.5)
            if requests % 3 == 0:  # the writer begins at any moment
                await trio.sleep(book.GATHER / 10)
            found = await kept.read(by=["model"])
            assert found == {
                ("a:b",): SpendingSums(requests, 100 * requests, 40 * requests, 10 * requests, requests / 2, 0)
            }


async def test_it_is_written_at_the_end_even_if_there_is_no_time_left(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    async with Root() as root:
        kept = SpendingBook(root, BookFile(path), now=lambda: 0.0)
        kept.add("local", "", "a:b", TOKENS, 0.5)
        with trio.move_on_after(0):
            await kept.aclose()
        assert [spent.cost for spent in read(path).values()] == [0.5]


async def test_it_is_written_at_the_end_though_the_stop_has_used_its_time(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    async with Root() as root:
        kept = SpendingBook(root, BookFile(path), now=lambda: 0.0)
        kept.add("local", "", "a:b", TOKENS, 0.5)
        root.deadline = trio.current_time() - 1
        assert not await kept._write_now()
        await kept.aclose()
        root.deadline = float("inf")
    assert [(spent.requests, spent.cost) for spent in read(path).values()] == [(1, 0.5)]


async def test_its_owner_reads_what_can_not_be_written(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    async with Root() as root:
        kept = SpendingBook(root, BookFile(path), now=lambda: 0.0)
        kept.add("local", "", "a:b", TOKENS, 0.5)
        await kept.aclose()
        with sqlite3.connect(path) as other:
            other.execute("CREATE TRIGGER full BEFORE UPDATE ON usage BEGIN SELECT RAISE(ABORT, 'disk full'); END")
        kept.add("local", "", "a:b", TOKENS, 0.5)
        kept.add("alice", "", "a:b", TOKENS, 0.5)
        assert {key: spent.cost for (key,), spent in (await kept.read(by=["key"])).items()} == {
            "alice": 0.5,
            "local": 1,
        }
        assert list(await kept.read(by=["key"], key="alice")) == [("alice",)]
        assert await kept.read("1970-01-02") == {}
    assert {entry[1]: spent.cost for entry, spent in read(path).items()} == {"local": 0.5}


async def test_sums_are_by_what_is_asked_for(tmp_path: Path) -> None:
    path, days = tmp_path / "usage.db", iter([0.0, 0.0, DAY])
    async with Root() as root:
        kept = SpendingBook(root, BookFile(path), now=lambda: next(days))
        for key, model in (("local", "a:b"), ("alice", "c:d"), ("alice", "a:b")):
            kept.add(key, "writer", model, TOKENS, 0.5)
        await kept.aclose()
    assert {names: spent.requests for names, spent in read(path, by=["model"]).items()} == {("a:b",): 2, ("c:d",): 1}
    of_days = read(path, by=["key", "day"], key="alice")
    assert list(of_days) == [("alice", "1970-01-01"), ("alice", "1970-01-02")]


def read_if_there(path: Path) -> list[SpendingSums]:
    return list(read(path).values())


async def test_what_can_not_be_written_is_kept_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book, "RETRY_EVERY", 0.01)
    (tmp_path / "state").write_text("a file where a directory should be")
    path = tmp_path / "state" / "usage.db"
    async with Root() as root:
        kept = SpendingBook(root, BookFile(path), now=lambda: 0.0)
        kept.add("local", "", "a:b", TOKENS, 0.5)
        with trio.fail_after(60):
            while "can't be written" not in caplog.text:
                await trio.sleep(0.01)
            kept.add("local", "", "a:b", TOKENS, 0.5)
            await kept.aclose()
            (tmp_path / "state").unlink()
            while sum(spent.cost for spent in read(path).values()) < 1.0:
                await trio.sleep(0.01)
    assert caplog.text.count("can't be written") == 1


def test_processes_at_once_add_to_the_same_sums(tmp_path: Path) -> None:
    program = f"""
import trio
from pathlib import Path
from callboard.actors.work.spending.book import BookFile, SpendingBook
from callboard.protocol.chat import TokenUsage
from callboard.supervisors import Root

async def main():
    async with Root() as root:
        book = SpendingBook(root, BookFile(Path({str(tmp_path / "usage.db")!r})), now=lambda: 0.0)
        for _ in range(20):
            book.add("local", "", "a:b", TokenUsage(input_tokens=1), 1.0)
            await book.aclose()

trio.run(main)
"""
    programs = [subprocess.Popen([*forked_code(program)]) for _ in range(4)]
    assert [each.wait(60) for each in programs] == [0, 0, 0, 0]
    [spent] = read(tmp_path / "usage.db").values()
    assert (spent.requests, spent.input_tokens, spent.cost) == (80, 80, 80.0)


def test_without_a_book_or_in_one_that_is_made_just_now_nothing_was_spent(tmp_path: Path) -> None:
    assert read(tmp_path / "usage.db") == {}
    (tmp_path / "usage.db").touch()
    assert read(tmp_path / "usage.db" / "usage.db") == {}
    with contextlib.closing(sqlite3.connect(tmp_path / "usage.db")) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("CREATE TABLE something_else (day TEXT)")
    assert read(tmp_path / "usage.db") == {}


async def test_it_is_read_while_and_after_somebody_has_it_in_wal_mode(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    async with Root() as root:
        kept = SpendingBook(root, BookFile(path), now=lambda: 0.0)
        kept.add("local", "", "a:b", TOKENS, 0.5)
        await kept.aclose()
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA journal_mode = WAL")
            kept.add("local", "", "a:b", TOKENS, 0.5)
            assert [spent.requests for spent in (await kept.read()).values()] == [2]
            assert [spent.requests for spent in read(path).values()] == [2]
    assert [spent.requests for spent in read(path).values()] == [2]
