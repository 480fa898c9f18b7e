"""The root of a process: what was spent is written, however the rest of its stop went; and work beside all runs."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from support.messages import says

from callboard import Root
from callboard.actors.runs.root import result_of
from callboard.actors.work.spending.accounts import Amount, reserve
from callboard.actors.work.spending.book import read
from callboard.actors.work.spending.days import Days
from callboard.actors.work.spending.ledger import LedgerFile
from callboard.protocol.chat import TokenUsage
from callboard.protocol.errors import NotFound, ShuttingDown
from callboard.protocol.settings.api import ApiLimits, ApiSettings, DailyLimits

SETTINGS = ApiSettings(limits=ApiLimits(daily=DailyLimits(max_cost=5.0)))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("STATE", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    return tmp_path


async def spend(root: Root) -> None:
    """Have a request settled that is neither in the book nor in the ledger yet."""
    root.days = Days(root.kernel, LedgerFile(root.usage_file), SETTINGS, now=time.time)
    account = root.days.account("alice")
    assert account is not None
    assert root.book is not None
    hold = await reserve(account, Amount(100, 1.0), lambda: None)
    hold.spend(Amount(60, 0.5))
    root.book.add("alice", "", "a:b", TokenUsage(input_tokens=60), 0.5)


def written(file: Path) -> tuple[list[float], list[float], list[float]]:
    db = sqlite3.connect(file)
    try:
        held, ledger = ([cost for (cost,) in db.execute(f"SELECT cost FROM {name}")] for name in ("held", "ledger"))
    finally:
        db.close()
    return held, ledger, [spent.cost for spent in read(file).values()]


async def test_what_was_spent_is_written_though_an_actor_uses_up_the_time_of_the_stop(home: Path) -> None:
    begun = trio.Event()

    async def slow(me: Any) -> None:
        me.started()
        begun.set()
        with trio.move_on_after(0.8, shield=True):
            await trio.sleep_forever()

    async with Root(stop_within=0.2, keeps_usage=True) as root:
        root.kernel.spawn(slow, name="slow", link=False)
        await begun.wait()
        await spend(root)
    assert written(root.usage_file) == ([], [0.5], [0.5])


async def test_what_was_spent_is_written_though_something_else_fails_to_close(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> None:
        raise RuntimeError("a bug")

    root = Root(keeps_usage=True)
    await root.__aenter__()
    await spend(root)
    monkeypatch.setattr(root.gateway, "aclose", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        await root.__aexit__(None, None, None)
    assert written(root.usage_file) == ([], [0.5], [0.5])
    assert root.kernel.actor.end is not None, "the kernel has ended, too"


# --- work beside all runs ------------------------------------------------------------------------------------


async def test_what_an_actor_beside_all_runs_returns_is_the_result_and_its_crash_is_raised(home: Path) -> None:
    async def works(_: Any) -> int:
        return 5

    async def crashes(_: Any) -> int:
        raise NotFound("there is none")

    async with Root() as root:
        assert await result_of(root, works, name="sum") == 5
        with pytest.raises(NotFound, match="there is none"):
            await result_of(root, crashes, name="sum")


async def test_an_actor_beside_all_runs_has_ended_when_its_caller_is_interrupted(home: Path) -> None:
    steps: list[str] = []
    interrupted = trio.CancelScope()

    async def works(me: Any) -> None:
        trio.lowlevel.current_trio_token().run_sync_soon(interrupted.cancel)
        try:
            await trio.sleep_forever()
        finally:
            with me.cleanup():
                await trio.sleep(0.01)
                steps.append("cleaned up")

    async with Root() as root:
        with interrupted:
            await result_of(root, works, name="work")
        steps.append("goes on")
    assert interrupted.cancelled_caught
    assert steps == ["cleaned up", "goes on"]


async def test_an_actor_that_the_stopping_root_ends_has_no_result(home: Path) -> None:
    at_work = trio.Event()

    async def works(_: Any) -> int:
        at_work.set()
        await trio.sleep_forever()
        return 1

    async def wait(root: Root) -> None:
        with pytest.raises(ShuttingDown, match=says("runs.root.result_of", name="sum")):
            await result_of(root, works, name="sum")

    async with trio.open_nursery() as nursery, Root() as root:
        nursery.start_soon(wait, root)
        await at_work.wait()
