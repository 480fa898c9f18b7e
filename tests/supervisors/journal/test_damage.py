"""Journals that are not as they were written: a whole prefix is read, or they are refused by name, never wrong data."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from support.messages import says

from callboard.protocol.kernel.errors import Damaged, JournalUnread
from callboard.supervisors.journal.claiming import take
from callboard.supervisors.journal.journal import open_journal
from callboard.supervisors.journal.reading import read_rows, read_run, stored_runs
from callboard.supervisors.journal.retention import prune
from callboard.supervisors.journal.row import StoredRow, Unwritten
from callboard.supervisors.journal.store import SqliteStore, path_of

RUNS, ROWS, PLACES = 5, 120, 1_000


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two journals of the same rows: one whose rows are in the log still, one where all are in the main file."""
    found = {}
    for kind in ("log", "main"):
        place = tmp_path_factory.mktemp(kind) / "journal"
        trio.run(_write, place, kind)
        found[kind] = place
    return found


async def _write(place: Path, kind: str) -> None:
    journal = await open_journal(place)
    runs = [journal.begin(f"run-{number}", b"about %d" % number) for number in range(RUNS)]
    for row in range(1, ROWS + 1):
        for number, run in enumerate(runs):
            run.append(f"actor-{number}", data_of(number, row))
        if row % 10 == 0:
            await journal.barrier()
    if kind == "log":  # as a kill leaves it
        copy = place.with_name("copy")
        shutil.copytree(place, copy)
    await journal.aclose()
    if kind == "log":
        shutil.rmtree(place)
        copy.rename(place)
        for sign in place.glob("*.alive"):
            sign.unlink()


def data_of(run: int, row: int) -> bytes:
    chance = random.Random(run * 1000 + row)
    return chance.randbytes(chance.choice([5, 50, 500, 20_000] if row % 20 == 0 else [5, 50, 500]))


def check(place: Path) -> int:
    """Read all; how many rows came back."""
    total = 0
    for kept in stored_runs(place):
        assert kept.damage != "" or kept.run in {f"run-{number}" for number in range(RUNS)}
    for number in range(RUNS):
        rows: tuple[StoredRow, ...] = ()
        try:
            past = read_run(place, f"run-{number}")
            if past is not None:
                assert past.kept.about == b"about %d" % number
                rows = tuple(past.rows)
        except Damaged as error:
            rows = error.rows
        wanted = [(row, f"actor-{number}", data_of(number, row)) for row in range(1, len(rows) + 1)]
        assert [(row.seq, row.actor, row.data) for row in rows] == wanted
        total += len(rows)
    return total


def damaged(kind: str, seed: int, written: dict[str, Path], place: Path) -> Path:
    """A copy of one of them, with one place of it spoilt."""
    source = written[kind]
    shutil.copytree(source, place)
    chance = random.Random(f"{kind} {seed}")
    (main,) = place.glob("*.db")
    file = main.with_name(main.name + "-wal") if kind == "log" and seed % 4 else main
    size = file.stat().st_size
    at = chance.randrange(size)
    with file.open("r+b") as stream:
        match seed % 3:
            case 0:
                stream.truncate(at)
            case 1:
                stream.seek(at)
                (byte,) = stream.read(1)
                stream.seek(at)
                stream.write(bytes([byte ^ 1 << chance.randrange(8)]))
            case 2:
                stream.seek(at - at % 4096)
                stream.write(bytes(4096))
    return place


@pytest.mark.parametrize("kind", ["log", "main"])
def test_what_was_not_damaged_comes_back_whole(written: dict[str, Path], kind: str, tmp_path: Path) -> None:
    shutil.copytree(written[kind], tmp_path / "journal")
    assert check(tmp_path / "journal") == RUNS * ROWS


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.soak) for part in range(1, 10))])
@pytest.mark.parametrize("kind", ["log", "main"])
def test_damage_at_a_thousand_places_never_gives_wrong_rows(
    written: dict[str, Path], kind: str, part: int, tmp_path: Path
) -> None:
    whole = refused = 0
    for seed in range(part * PLACES // 20, (part + 1) * PLACES // 20):
        place = damaged(kind, seed, written, tmp_path / str(seed))
        rows = check(place)
        whole += rows == RUNS * ROWS
        refused += rows < RUNS * ROWS
        shutil.rmtree(place)
    assert whole + refused == PLACES // 20
    assert refused > 0


def test_rows_that_vanished_from_the_end_are_missed(written: dict[str, Path], tmp_path: Path) -> None:
    import sqlite3

    place = tmp_path / "journal"
    shutil.copytree(written["main"], place)
    (main,) = place.glob("*.db")
    with sqlite3.connect(main) as db:
        db.execute("delete from rows where run=2 and seq>100")  # the blocks are of ten rows
    db.close()
    with pytest.raises(Damaged, match=says("supervisors.journal.row.checked.5", seq=100, rows=120)) as caught:
        read_run(place, "run-1")
    assert len(caught.value.rows) == 100
    assert read_run(place, "run-2") is not None


def test_a_file_that_is_no_database_is_told_and_the_others_are_read(written: dict[str, Path], tmp_path: Path) -> None:
    place = tmp_path / "journal"
    shutil.copytree(written["main"], place)
    path_of(place, "1-broken").write_bytes(os.urandom(10_000))
    kept = stored_runs(place)
    assert [each.sign for each in kept if each.damage] == ["1-broken"]
    assert sorted(each.run for each in kept if not each.damage) == [f"run-{number}" for number in range(RUNS)]
    assert read_run(place, "run-3") is not None
    with pytest.raises(Damaged):
        read_run(place, "run-9")


def spoilt(data: bytes, way: str, chance: random.Random) -> bytes:
    """Damage of the kinds that disks, copies, and people cause."""
    match way:
        case "empty":
            return b""
        case "cut":
            return data[: chance.randrange(1, len(data))]
        case "zeroed":
            return bytes(len(data))
        case "garbage":
            return chance.randbytes(len(data))
        case "header":
            at = chance.randrange(100)
            return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        case _:
            at = chance.randrange(len(data) // 4096) * 4096
            return data[:at] + bytes(4096) + data[at + 4096 :]


@pytest.mark.parametrize("way", ["empty", "cut", "zeroed", "garbage", "header", "page"])
def test_a_run_of_a_damaged_file_is_whole_or_an_error_names_the_file(
    written: dict[str, Path], way: str, tmp_path: Path
) -> None:
    chance = random.Random(way)
    for number in range(1 if way in ("empty", "zeroed") else 12):
        place = tmp_path / str(number)
        shutil.copytree(written["main"], place)
        (main,) = place.glob("*.db")
        main.write_bytes(spoilt(main.read_bytes(), way, chance))
        store = SqliteStore(place, "1-other")
        found = (
            result_of(read_run, place, "run-2"),
            result_of(read_rows, place, "run-2", 0, 10),
            result_of(lambda store, sign: take(store, sign, ["run-2"]).taken, store, main.stem),
        )
        for each in found:
            assert each, "the run is missing, and no error says so"
            assert not isinstance(each, Exception) or main.name in str(each)
        store.close()


def result_of(attempt: Callable[..., object], *arguments: object) -> object:
    """What it returns, or the error."""
    try:
        return attempt(*arguments)
    except (Damaged, JournalUnread, Unwritten) as error:
        return error


def test_a_process_killed_while_it_creates_its_journal_leaves_none(tmp_path: Path) -> None:
    place = tmp_path / "journal"
    place.mkdir()
    half = path_of(place, "1-dead").with_name("1-dead.db-new")
    half.write_bytes(b"SQLite")
    assert stored_runs(place) == []
    prune(place, "1-other", keep=0, days=0)
    assert not half.exists()
