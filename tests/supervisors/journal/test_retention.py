"""Runs that are over go, by number and by days; those that are not stay."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from callboard.supervisors.journal import reading, retention
from callboard.supervisors.journal.journal import open_journal
from callboard.supervisors.journal.reading import read_run, stored_runs
from callboard.supervisors.journal.retention import prune, remove_run
from callboard.supervisors.journal.row import State, StoredRunRecord
from callboard.supervisors.journal.store import path_of


async def write(place: Path, runs: list[str], *, over: bool, size: int = 100) -> str:
    journal = await open_journal(place)
    for number, name in enumerate(runs):
        run = journal.begin(name)
        for row in range(5):
            run.append("a", bytes([number, row]) * size)
        if over:
            run.set_summary(b"", over=True)
        await run.barrier()
    await journal.aclose()
    return journal.sign


async def test_the_newest_stay_and_those_that_are_not_over(tmp_path: Path) -> None:
    place = tmp_path / "journal"
    first = await write(place, ["run-1", "run-2"], over=True)
    open_ = await write(place, ["run-3"], over=False)
    await write(place, ["run-4", "run-5"], over=True)
    assert prune(place, "", keep=2, days=0) == 2
    assert [kept.run for kept in stored_runs(place)] == ["run-3", "run-4", "run-5"]
    assert not path_of(place, first).exists()
    assert path_of(place, open_).exists()


async def test_those_go_that_are_older_than_so_many_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "journal"
    await write(place, ["run-1"], over=True)
    await write(place, ["run-2"], over=False)
    assert prune(place, "", keep=0, days=30) == 0
    now = retention.time.time()
    monkeypatch.setattr(retention.time, "time", lambda: now + 31 * 86_400)
    assert prune(place, "", keep=0, days=30) == 1
    assert [kept.run for kept in stored_runs(place)] == ["run-2"]


async def test_the_room_that_is_free_is_given_back_and_shared_blobs_stay(tmp_path: Path) -> None:
    place = tmp_path / "journal"
    journal = await open_journal(place)
    runs = [journal.begin(f"run-{number}") for number in range(20)]
    for number, run in enumerate(runs):
        run.append("shared", bytes(100_000))
        for row in range(200):
            run.append("own", bytes([number, row % 256]) * 2_000)
        run.set_summary(b"", over=True)
    await journal.barrier()
    last = journal.begin("run-last")
    last.append("shared", bytes(100_000))
    await last.barrier()
    assert prune(place, journal.sign, keep=1, days=0) == 19
    await journal.aclose()
    size = path_of(place, journal.sign).stat().st_size
    assert size < 1_500_000  # of 16 MB
    past = read_run(place, "run-last")
    assert past is not None
    assert past.rows[0].data == bytes(100_000)


async def test_what_a_process_that_lives_keeps_is_its_own_business(tmp_path: Path) -> None:
    place = tmp_path / "journal"
    journal = await open_journal(place)
    run = journal.begin("run-1")
    run.append("a", b"1")
    run.set_summary(b"", over=True)
    await run.barrier()
    (place / "9-gone.alive").touch()
    (place / "9-gone.db-wal").touch()
    prune(place, "", keep=0, days=0.000001)
    assert [kept.run for kept in stored_runs(place)] == ["run-1"]
    assert not list(place.glob("9-gone*"))
    await journal.aclose()


async def test_the_oldest_go_where_journals_take_too_much_room(tmp_path: Path) -> None:
    place = tmp_path / "journal"
    for number in range(6):
        await write(place, [f"run-{number}"], over=True, size=20_000)
    await write(place, ["run-open"], over=False, size=20_000)
    whole = sum(file.stat().st_size for file in place.iterdir())
    assert prune(place, "", keep=0, days=0, most=whole) == 0
    assert prune(place, "", keep=0, days=0, most=whole // 2) >= 3
    left = [kept.run for kept in stored_runs(place)]
    assert left[-1] == "run-open"
    assert left[:-1] == [f"run-{number}" for number in range(6 - len(left) + 1, 6)]
    prune(place, "", keep=0, days=0, most=1)
    assert [kept.run for kept in stored_runs(place)] == ["run-open"]


async def test_who_prunes_may_know_that_nobody_goes_on_with_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "journal"
    await write(place, ["run-1", "run-2"], over=False)

    def forsaken(kept: StoredRunRecord) -> bool:
        return kept.run == "run-1"

    assert prune(place, "", keep=0, days=30, forsaken=forsaken) == 0
    now = retention.time.time()
    monkeypatch.setattr(retention.time, "time", lambda: now + 31 * 86_400)
    assert prune(place, "", keep=0, days=30, forsaken=forsaken) == 1
    assert [kept.run for kept in stored_runs(place)] == ["run-2"]


async def test_one_run_is_removed_unless_its_process_plays_it(tmp_path: Path) -> None:
    place = tmp_path / "journal"
    await write(place, ["run-1", "run-2"], over=False)
    journal = await open_journal(place)
    playing, done = journal.begin("run-3"), journal.begin("run-4")
    playing.append("", b"1")
    done.append("", b"1")
    done.set_summary(b"", over=True)
    await journal.barrier()
    removed = [run for run in ("run-1", "run-3", "run-4", "run-5") if remove_run(place, run)]
    assert removed == ["run-1", "run-4"]
    playing.append("", b"2")
    await playing.barrier()
    assert [(kept.run, kept.rows) for kept in stored_runs(place)] == [("run-2", 5), ("run-3", 2)]
    await journal.aclose()


async def test_journals_with_nothing_to_go_on_with_are_not_opened_to_look_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "journal"
    over = await write(place, ["run-1"], over=True)
    await write(place, ["run-2"], over=False)
    opened: list[str] = []
    real = reading.opened

    def counting(path: Path) -> sqlite3.Connection:
        opened.append(path.name)
        return real(path)

    monkeypatch.setattr(reading, "opened", counting)
    assert [kept.run for kept in stored_runs(place, State.INTERRUPTED)] == ["run-2"]
    assert path_of(place, over).name not in opened
    assert [kept.run for kept in stored_runs(place)] == ["run-1", "run-2"]
    prune(place, "", keep=0, days=0)
    remove_run(place, "run-1")
    remove_run(place, "run-2")
    prune(place, "", keep=0, days=0)
    assert list(place.iterdir()) == []
