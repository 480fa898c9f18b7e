"""What one process keeps, and what it is told when it can't."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from support.journals import small_disk
from support.messages import says
from support.waiting import PATIENCE, until

from callboard.protocol.kernel.errors import (
    JournalBroken,
    JournalError,
    JournalPlace,
    RunClaimed,
    ShuttingDown,
    StillPlayed,
)
from callboard.supervisors.journal import journal as journals
from callboard.supervisors.journal.claiming import claim
from callboard.supervisors.journal.journal import Journal, RunJournal, open_journal
from callboard.supervisors.journal.reading import leave, read_run, stored_runs
from callboard.supervisors.journal.row import State
from callboard.supervisors.journal.store import LARGE, check_file_system, file_system_type, is_shared, path_of


async def closed(journal: Journal) -> bool:
    with trio.CancelScope(shield=True):
        return await journal.aclose()


@contextlib.asynccontextmanager
async def held_up(journal: Journal, run: RunJournal) -> AsyncIterator[None]:
    """A block in which the disk is full and a barrier waits, which returns after the block."""
    written = trio.Event()

    async def barrier() -> None:
        await run.barrier()
        written.set()

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(barrier)
            await until(lambda: journal.trouble)
            assert not written.is_set()
            yield


async def test_rows_come_back_as_they_were_written_in_their_order(tmp_path: Path) -> None:
    journal = await open_journal(tmp_path / "journal")
    run = journal.begin("run-1", b"about it")
    rows = [("lead", b"one"), ("", b""), ("lead/änd", bytes(LARGE + 1)), ("x", bytes(LARGE + 1)), ("x", b"\0" * LARGE)]
    numbers = [run.append(actor, data) for actor, data in rows]
    await run.barrier()
    past = read_run(tmp_path / "journal", "run-1")
    assert past is not None
    assert numbers == [row.seq for row in past.rows] == [1, 2, 3, 4, 5]
    assert [(row.actor, row.data) for row in past.rows] == rows
    assert (past.kept.about, past.kept.state, past.kept.rows) == (b"about it", State.PLAYED, 5)
    assert await closed(journal)
    (kept,) = stored_runs(tmp_path / "journal")
    assert kept.state is State.INTERRUPTED


async def test_a_run_that_is_over_stays_and_is_no_more_interrupted(tmp_path: Path) -> None:
    journal = await open_journal(tmp_path / "journal")
    run = journal.begin("run-1")
    run.append("a", b"1")
    run.set_summary(b"all is well", over=True)
    assert await closed(journal)
    (kept,) = stored_runs(tmp_path / "journal")
    assert (kept.state, kept.about, kept.rows) == (State.OVER, b"all is well", 1)
    assert kept.ended is not None


async def test_many_runs_that_begin_at_once_are_all_there_and_those_that_were_over_begin_anew(tmp_path: Path) -> None:
    journal = await open_journal(tmp_path / "journal")
    names = [f"run-{number}" for number in range(150)]
    for name in names[::7]:
        old = journal.begin(name, b"old")
        old.append("a", b"old")
        old.set_summary(b"old", over=True)
    await journal.barrier()
    runs = [journal.begin(name, name.encode()) for name in names]
    for number, run in enumerate(runs):
        for row in range(number % 3):
            run.append("a", b"%d" % row)
        run.set_summary(b"about " + run.run.encode())
    await journal.barrier()
    for number, run in enumerate(runs):
        past = read_run(tmp_path / "journal", run.run)
        assert past is not None
        assert [row.data for row in past.rows] == [b"%d" % row for row in range(number % 3)]
        assert past.kept.about == b"about " + run.run.encode()
    assert await closed(journal)
    assert len(stored_runs(tmp_path / "journal")) == len(names)


async def test_only_its_user_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        journal = await open_journal(tmp_path / "journal")
        run = journal.begin("run-1")
        run.append("a", b"1")
        await run.barrier()
    finally:
        os.umask(before)
    files = list((tmp_path / "journal").iterdir())
    assert len(files) >= 3
    assert {stat.S_IMODE(file.stat().st_mode) & 0o177 for file in files} == {0}
    assert stat.S_IMODE((tmp_path / "journal").stat().st_mode) == 0o700
    await closed(journal)


async def test_a_journal_without_rows_leaves_no_file(tmp_path: Path) -> None:
    journal = await open_journal(tmp_path / "journal")
    await journal.barrier()
    await closed(journal)
    assert list((tmp_path / "journal").iterdir()) == []


async def test_rows_that_nobody_waits_for_are_written_soon(tmp_path: Path) -> None:
    journal = await open_journal(tmp_path / "journal")
    run = journal.begin("run-1")
    run.append("a", b"1")
    await until(lambda: stored_runs(tmp_path / "journal") and stored_runs(tmp_path / "journal")[0].rows == 1)
    await closed(journal)


async def test_a_barrier_lets_go_when_all_rows_before_it_are_written(tmp_path: Path) -> None:
    journal = await open_journal(tmp_path / "journal")
    runs = [journal.begin(f"run-{number}") for number in range(20)]

    async def write(number: int) -> None:
        for row in range(1, 51):
            runs[number].append("a", b"%d" % row)
            if row % 10 == number % 10:
                await runs[number].barrier()
                past = await trio.to_thread.run_sync(read_run, tmp_path / "journal", f"run-{number}")
                assert past is not None
                assert len(past.rows) >= row

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(write, number)
    await closed(journal)


async def test_the_event_loop_never_waits_for_the_disk(tmp_path: Path) -> None:
    journal = await open_journal(tmp_path / "journal")
    run = journal.begin("run-1")
    holds, held = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        if not holds.wait(PATIENCE):
            held.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.do, hold)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(10_000):
            run.append("a", b"1")
        holds.set()
    assert not held.is_set(), "the rows waited for the thread that writes"
    await run.barrier()
    await closed(journal)


async def test_a_stopped_run_keeps_nothing_more_and_begins_nothing_more(tmp_path: Path) -> None:
    journal = await open_journal(tmp_path / "journal")
    run = journal.begin("run-1")
    run.append("a", b"1")
    run.stop()
    run.append("a", b"2")
    run.set_summary(b"", over=True)
    with pytest.raises(ShuttingDown):
        await run.barrier()
    await closed(journal)
    (kept,) = stored_runs(tmp_path / "journal")
    assert (kept.rows, kept.state) == (1, State.INTERRUPTED)


async def test_a_run_begun_anew_under_its_id_replaces_the_one_that_is_over(tmp_path: Path) -> None:
    journal = await open_journal(tmp_path / "journal")
    for text in (b"first", b"second"):
        run = journal.begin("run-1")
        run.append("a", text)
        run.set_summary(text, over=True)
        await run.barrier()
    past = read_run(tmp_path / "journal", "run-1")
    assert past is not None
    assert [row.data for row in past.rows] == [b"second"]
    await closed(journal)


async def test_a_run_with_the_id_of_one_under_way_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    journal = await open_journal(tmp_path / "journal")
    first, second, other = journal.begin("run-1"), journal.begin("run-1"), journal.begin("run-2")
    for run in (first, second, other):
        run.append("a", b"1")
    await first.barrier()
    with pytest.raises(JournalError, match="is under way; choose another id"):
        await second.barrier()
    for run in (first, other):
        run.append("a", b"2")
        await run.barrier()
        past = read_run(tmp_path / "journal", run.run)
        assert past is not None
        assert [row.data for row in past.rows] == [b"1", b"2"]
    assert await closed(journal)


async def test_a_run_may_have_the_id_of_one_that_ends_in_the_same_group(tmp_path: Path) -> None:
    journal = await open_journal(tmp_path / "journal")
    first = journal.begin("run-1")
    first.append("a", b"old")
    await first.barrier()
    first.append("a", b"older")
    first.set_summary(b"", over=True)
    second = journal.begin("run-1")
    second.append("a", b"new")
    await second.barrier()
    past = read_run(tmp_path / "journal", "run-1")
    assert past is not None
    assert [row.data for row in past.rows] == [b"new"]
    assert await closed(journal)


@pytest.mark.parametrize("row", [("\ud800", b"1"), ("a", bytes(2_000_000))], ids=["text", "size"])
async def test_a_row_that_cant_be_stored_refuses_its_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: tuple[str, bytes]
) -> None:
    monkeypatch.setattr(journals, "MOST_BEHIND", 1_000_000)
    journal = await open_journal(tmp_path / "journal")
    runs = [journal.begin(f"run-{number}") for number in range(3)]
    for run in runs:
        run.append("a", b"0")
    await runs[0].barrier()
    runs[1].append(*row)
    for run in (runs[0], runs[2]):
        run.append("a", b"1")
    for run in (runs[0], runs[2]):
        await run.barrier()
        run.append("a", b"2")
        await run.barrier()
        past = read_run(tmp_path / "journal", run.run)
        assert past is not None
        assert [row.data for row in past.rows] == [b"0", b"1", b"2"]
    with pytest.raises(JournalError, match="run-1 can't be journaled"):
        await runs[1].barrier()
    assert await closed(journal)


async def test_no_journal_is_kept_where_other_machines_write() -> None:
    mounts = (
        "22 1 8:1 / / rw - ext4 /dev/vda rw\n"
        "30 22 0:40 / /home rw - nfs4 server:/home rw\n"
        "31 30 0:41 / /home/me/local\\040disk rw shared:1 - xfs /dev/vdb rw\n"
        "32 22 0:42 / /mnt rw - fuse.sshfs host: rw\n"
        "33 22 0:43 / /safe rw - fuse.gocryptfs x rw\n"
    )
    places = {
        "/home/me": "nfs4",
        "/home/me/local disk/x": "xfs",
        "/homely": "ext4",
        "/mnt/x": "fuse.sshfs",
        "/": "ext4",
    }
    assert {place: file_system_type(place, mounts) for place in places} == places
    assert {place for place in places if is_shared(file_system_type(place, mounts))} == {"/home/me", "/mnt/x"}
    assert not is_shared(file_system_type("/safe/x", mounts))


def test_a_place_on_such_a_file_system_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_file_system(tmp_path / "journal")
    monkeypatch.setattr(Path, "read_text", lambda _: "22 1 8:1 / / rw - nfs4 server:/ rw\n")
    with pytest.raises(JournalPlace, match="nfs4"):
        check_file_system(tmp_path / "journal")


async def test_a_full_disk_is_waited_for_and_told_and_nothing_is_lost(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        told: list[str] = []
        journal = await open_journal(disk.path / "journal", told.append)
        run = journal.begin("run-1")
        run.append("a", b"before")
        await run.barrier()
        for _ in range(3):
            disk.fill()
            for _ in range(50):
                run.append("a", os.urandom(1000))
            async with held_up(journal, run):
                assert "full" in journal.trouble or "I/O" in journal.trouble
                past = read_run(disk.path / "journal", "run-1")
                assert past is not None
                disk.clear()
            assert journal.trouble == ""
        past = read_run(disk.path / "journal", "run-1")
        assert past is not None
        assert len(past.rows) == 151
        assert told[-1] == ""
        assert await closed(journal)


async def test_a_disk_that_is_full_from_the_first_row_is_waited_for(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        journal = await open_journal(disk.path / "journal")
        disk.fill()
        run = journal.begin("run-1")
        run.append("a", b"1")
        async with held_up(journal, run):
            disk.clear()
        assert await closed(journal)
        past = read_run(disk.path / "journal", "run-1")
        assert past is not None
        assert len(past.rows) == 1


async def test_a_disk_may_be_full_at_any_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "RETRY_EVERY", 0.005)
    with small_disk(tmp_path / "disk", "2m") as disk:
        journal = await open_journal(disk.path / "journal")
        run = journal.begin("run-1")
        for row in range(1, 60):
            disk.fill()
            run.append("a", b"%d" % row * 100)
            with trio.move_on_after(0.03):
                await run.barrier()
            disk.clear()
            with trio.fail_after(PATIENCE):
                await run.barrier()
            if row % 20 == 0:
                run.append("a", bytes([row]) * 30_000)
        past = read_run(disk.path / "journal", "run-1")
        assert past is not None
        small = [row.data for row in past.rows if len(row.data) < 1000]
        assert small == [b"%d" % row * 100 for row in range(1, 60)]
        await closed(journal)


async def test_rows_beyond_what_may_wait_for_the_disk_break_the_journal_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "MOST_BEHIND", 100_000)
    with small_disk(tmp_path / "disk") as disk:
        journal = await open_journal(disk.path / "journal")
        run = journal.begin("run-1")
        run.append("a", b"1")
        await run.barrier()
        disk.fill()
        for _ in range(200):
            run.append("a", bytes(1000))
            await trio.lowlevel.checkpoint()
        with (
            trio.fail_after(PATIENCE),
            pytest.raises(JournalBroken, match=says("supervisors.journal.journal.Journal.put.2")),
        ):
            await run.barrier()
        assert run.refused is not None
        await closed(journal)


async def test_a_journal_that_is_removed_refuses_by_name(tmp_path: Path) -> None:
    journal = await open_journal(tmp_path / "journal")
    run = journal.begin("run-1")
    run.append("a", b"1")
    await run.barrier()
    path_of(journal.directory, journal.sign).unlink()
    run.append("a", b"2")
    with pytest.raises(JournalBroken, match="removed"):
        await run.barrier()
    with pytest.raises(JournalBroken, match="removed"):
        await run.barrier()
    assert not await closed(journal)


async def test_a_journal_whose_file_becomes_something_else_refuses_by_name(tmp_path: Path) -> None:
    journal = await open_journal(tmp_path / "journal")
    run = journal.begin("run-1")
    run.append("a", b"1")
    await run.barrier()
    await journal.do(lambda store: store._disconnect())
    path_of(journal.directory, journal.sign).write_bytes(b"no database" * 1000)
    run.append("a", b"2")
    with pytest.raises(JournalBroken):
        await run.barrier()
    assert not await closed(journal)


async def test_what_is_left_for_a_run_that_nobody_plays_is_found_by_who_goes_on(tmp_path: Path) -> None:
    first = await open_journal(tmp_path / "journal")
    run = first.begin("run-1")
    run.append("a", b"1")
    await run.barrier()
    assert not leave(tmp_path / "journal", "run-1", b"too early")
    await closed(first)
    assert leave(tmp_path / "journal", "run-1", b"an answer")
    assert not leave(tmp_path / "journal", "run-2", b"for nobody")
    second = await open_journal(tmp_path / "journal")
    ((taken, past),) = await claim(second, first.sign)
    assert [letter.data for letter in past.letters] == [b"an answer"]
    assert (taken.run, taken.rows, past.kept.life) == ("run-1", 1, 1)
    taken.append("a", b"2")
    await taken.barrier()
    (kept,) = stored_runs(tmp_path / "journal")
    assert (kept.sign, kept.life, kept.rows, kept.state) == (second.sign, 2, 2, State.PLAYED)
    assert not path_of(tmp_path / "journal", first.sign).exists()
    await closed(second)


async def test_a_run_that_was_stopped_goes_on_where_its_rows_end_and_may_be_left_something(tmp_path: Path) -> None:
    journal = await open_journal(tmp_path / "journal")
    run = journal.begin("run-1", b"about it")
    run.append("a", b"1")
    run.set_summary(b"it waits")
    run.stop()
    run.append("a", b"never kept")
    await journal.add_to_inbox("run-1", b"an answer")
    again = await journal.reopen("run-1")
    assert again.append("a", b"2") == 2
    await again.barrier()
    past = read_run(tmp_path / "journal", "run-1")
    assert past is not None
    assert [row.data for row in past.rows] == [b"1", b"2"]
    assert (past.kept.about, [letter.data for letter in past.letters]) == (b"it waits", [b"an answer"])
    await closed(journal)


@pytest.mark.parametrize("change", ["owner='other'", "run='run-2'"])
async def test_a_run_that_was_stopped_and_is_another_s_by_now_gets_nothing_and_does_not_go_on(
    tmp_path: Path, change: str
) -> None:
    journal = await open_journal(tmp_path / "journal")
    run = journal.begin("run-1")
    run.append("a", b"1")
    await run.barrier()
    run.stop()
    with contextlib.closing(sqlite3.connect(path_of(journal.directory, journal.sign))) as db, db:
        db.execute(f"update runs set {change}")
    with pytest.raises(RunClaimed):
        await journal.add_to_inbox("run-1", b"an answer")
    with pytest.raises(RunClaimed):
        await journal.reopen("run-1")
    await closed(journal)


async def test_a_run_that_was_stopped_and_is_not_as_it_was_written_does_not_go_on(tmp_path: Path) -> None:
    journal = await open_journal(tmp_path / "journal")
    run = journal.begin("run-1", b"about it")
    run.append("a", b"1")
    await run.barrier()
    with contextlib.closing(sqlite3.connect(path_of(journal.directory, journal.sign))) as db, db:
        db.execute("update runs set rows=7")
    with pytest.raises(JournalBroken):
        await journal.reopen("run-1")
    await closed(journal)


async def test_a_run_that_is_played_is_not_claimed(tmp_path: Path) -> None:
    first, second = await open_journal(tmp_path / "journal"), await open_journal(tmp_path / "journal")
    first.begin("run-1").append("a", b"1")
    await first.barrier()
    with pytest.raises(StillPlayed):
        await claim(second, first.sign)
    await closed(first)
    await closed(second)
