"""Processes that are killed while they write, claim or go on, at every statement that they have SQLite do."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest
import trio
from support.journals import World
from support.waiting import until

from callboard.supervisors.journal.liveness_lock import is_alive
from callboard.supervisors.journal.reading import read_run, stored_runs
from callboard.supervisors.journal.row import State

RUNS = ["run-1", "run-2"]
ROWS = 30


def data_of(row: int) -> bytes:
    return bytes([row % 3]) * 20_000 if row % 7 == 0 else b"%d" % row * 40


def check(world: World) -> dict[str, State]:
    """Each run is there once, whole up to its last row, and has the row of each effect; no effect came twice."""
    effects = [effect for effect in world.effects if effect[-1].isdigit() and "claimed" not in effect]
    assert len(effects) == len(set(effects))
    kept = stored_runs(world.directory)
    assert len({each.run for each in kept}) == len(kept)
    for each in kept:
        assert each.damage == ""
        past = read_run(world.directory, each.run)
        assert past is not None
        assert [(row.seq, row.data) for row in past.rows] == [(n, data_of(n)) for n in range(1, each.rows + 1)]
    rows = {each.run: each.rows for each in kept}
    for effect in effects:
        run, row = effect.split()
        assert rows[run] >= int(row)
    return {each.run: each.state for each in kept}


def some(name: str, all: int, of: range) -> list[object]:
    """One of so many places, with a fixed seed; the others are for `make soak`."""
    few = set(random.Random(name).sample(of, max(1, len(of) // all)))
    return [pytest.param(place, marks=() if place in few else pytest.mark.soak) for place in of]


@pytest.mark.parametrize("kill", some("writer", 15, range(1, 180)))
def test_a_writer_that_is_killed_leaves_all_that_was_waited_for(tmp_path: Path, kill: int) -> None:
    world = World(tmp_path)
    world.play(runs=RUNS, rows=ROWS, kill=kill)
    check(world)


@pytest.mark.parametrize("kill", some("claimer", 12, range(1, 130)))
def test_who_claims_may_be_killed_anywhere_and_another_goes_on(tmp_path: Path, kill: int) -> None:
    world = World(tmp_path)
    first, killed = world.play(runs=RUNS, rows=ROWS, effects=3)
    assert killed
    before = check(world)
    assert before == dict.fromkeys(RUNS, State.INTERRUPTED)
    world.play(claim=first, rows=ROWS, kill=kill)
    assert check(world).keys() == before.keys()
    for _ in range(3):
        for sign in sorted({kept.sign for kept in stored_runs(world.directory) if kept.state is State.INTERRUPTED}):
            world.play(claim=sign, rows=ROWS)
    assert check(world) == dict.fromkeys(RUNS, State.OVER)
    assert {kept.rows for kept in stored_runs(world.directory)} == {ROWS}


@pytest.mark.parametrize("seed", some("lives", 10, range(20)))
def test_a_run_outlives_any_number_of_kills(tmp_path: Path, seed: int) -> None:
    world, chance = World(tmp_path), random.Random(seed)
    world.play(runs=RUNS, rows=ROWS, kill=chance.randrange(20, 120))
    for life in range(30):
        states = check(world)
        left = [kept.sign for kept in stored_runs(world.directory) if kept.state is State.INTERRUPTED]
        if not left:
            break
        world.play(claim=left[0], rows=ROWS, kill=chance.randrange(5, 80) if life < 10 else 10**9)
    assert set(states.values()) <= {State.OVER}
    assert set(states) <= set(RUNS)


@pytest.mark.parametrize("seed", some("two", 8, range(8)))
def test_of_two_who_claim_at_once_one_gets_each_run(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path)
    first, killed = world.play(runs=RUNS, rows=ROWS, effects=3)
    assert killed
    programs = [world.start(claim=first, rows=ROWS) for _ in range(2)]
    for program in programs:
        program.communicate()
        assert program.returncode == 0
    claimed = [effect for effect in world.effects if "claimed" in effect]
    assert len(claimed) == len({effect.split()[0] for effect in claimed}) == len(RUNS)
    assert check(world) == dict.fromkeys(RUNS, State.OVER)


@pytest.mark.parametrize("seed", some("wakes", 10, range(10)))
async def test_an_old_process_that_wakes_after_its_run_was_claimed_writes_nothing_and_begins_nothing(
    tmp_path: Path, seed: int
) -> None:
    world, rows = World(tmp_path), 3_000
    old = world.start(runs=["run-1"], rows=rows)
    assert old.stdout is not None
    sign = old.stdout.readline().strip()
    await until(lambda: len(world.effects) > seed * 10)
    old.send_signal(signal.SIGSTOP)
    (world.directory / f"{sign}.alive").unlink()  # as somebody who tidies up may do
    assert not is_alive(world.directory, sign)
    done = len(world.effects)
    _, killed = await trio.to_thread.run_sync(lambda: world.play(claim=sign, rows=rows))
    assert not killed
    after = world.effects
    stopped_while_it_wrote = after[done:] == ["refused StillPlayed"]
    assert stopped_while_it_wrote or after[-1] == "run-1 over"
    await trio.sleep(1.1)  # what it saw before it was stopped is not fresh any more
    old.send_signal(signal.SIGCONT)
    await trio.to_thread.run_sync(old.communicate)
    if stopped_while_it_wrote:  # nobody took the run from it
        assert world.effects[-1] == "run-1 over"
        return
    *under_way, refused = world.effects[len(after) :]
    assert refused == "refused RunClaimed"
    assert len(under_way) <= 1  # it was stopped in the midst of it, and nobody else has done that one, as is checked
    (kept,) = stored_runs(world.directory)
    assert (kept.rows, kept.state) == (rows, State.OVER)
    assert check(world) == {"run-1": State.OVER}
