"""Logs that are huge, broken, removed while they are read, or looked at by several at once."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from support.control_hub import Client, MadeRun, Served, hub_of

import callboard
from callboard.actors.front.control.hub import Hub
from callboard.actors.front.control.liveness import Alive
from callboard.actors.front.control.logs import files, run_logs
from callboard.actors.front.control.logs.files import EVENTS, read_page
from callboard.protocol.control.caller import LOCAL
from callboard.protocol.errors import NotFound


def _line(seq: int, size: int = 0) -> bytes:
    return msgspec.json.encode({"seq": seq, "kind": "llm.delta", "data": {"text": "x" * size}}) + b"\n"


async def _over(hub: Hub, run: MadeRun) -> None:
    run.end()
    with trio.fail_after(60):
        while run.id not in hub.logs.past:
            await hub.logs.flush()


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 10, 200, 3000]), max_size=60),
    after=st.integers(0, 70),
    torn=st.booleans(),
    most=st.integers(1, 80),
)
def test_a_page_holds_what_comes_after_a_number_wherever_that_lies(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], after: int, torn: bool, most: int
) -> None:
    place = tmp_path_factory.mktemp("log")
    lines = [_line(number + 1, size) for number, size in enumerate(sizes)]
    (place / EVENTS).write_bytes(b"".join(lines) + (b'{"seq":99' if torn else b""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "PAGE", 512)
        seen: list[int] = []
        offset, last = 0, after
        while page := read_page(place, offset, last, most).events:
            seen += [event.seq for event in page]
            last = page[-1].seq
    assert seen == list(range(after + 1, len(sizes) + 1))


def test_the_end_of_a_huge_log_is_found_without_reading_what_is_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / EVENTS).open("wb") as file:
        for seq in range(1, 40_001):
            file.write(_line(seq, 500))
    decoded = 0
    real = files._HEAD

    class Counting:
        def decode(self, line: bytes) -> Any:
            nonlocal decoded
            decoded += 1
            return real.decode(line)

    monkeypatch.setattr(files, "_HEAD", Counting())
    assert read_page(tmp_path, 0, 39_990).events[0].seq == 39_991
    assert decoded < 2_000


async def test_a_page_of_long_events_is_bounded_and_the_next_goes_on(root: callboard.Root, hub: Hub) -> None:
    run = MadeRun(root, "run-long")
    for _ in range(30):
        run.say("x" * 300_000)
    await _over(hub, run)
    first = await hub.events(LOCAL, run.id)
    assert 1 <= len(first) < 10
    assert sum(len(event.data) for event in first) < 3 * run_logs.MOST_AT_ONCE
    seen = [event.seq for event in first]
    while page := await hub.events(LOCAL, run.id, seen[-1]):
        seen += [event.seq for event in page]
    assert seen == list(range(1, 34))


async def test_a_log_without_its_end_is_told_as_lost_and_the_reader_comes_to_an_end(
    root: callboard.Root, hub: Hub, served: Served
) -> None:
    run = MadeRun(root, "run-cut")
    for _ in range(40):
        run.say()
    await _over(hub, run)
    log = hub.logs.directory / run.id / EVENTS
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:10]))
    async with served.connect() as websocket:
        client = Client(websocket)
        await client.result("_run/subscribe", run=run.id)
        assert (await client.until_told("_run/ended"))["status"] == "done"
        lost = await client.until_told("_run/lost")
        assert (lost["first"], lost["last"]) == (11, 43)
        assert client.seqs() == list(range(1, 11))
        page = await client.result("_run/events", run=run.id, after=10)
    assert page == {"events": [], "next": None}


async def test_who_reads_a_run_that_is_removed_is_told_its_end(
    root: callboard.Root, hub: Hub, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = MadeRun(root, "run-removed")
    for _ in range(40):
        run.say()
    await _over(hub, run)
    began, go = trio.Event(), trio.Event()
    real = hub.logs.page

    async def slowly(*args: Any) -> Any:
        began.set()
        await go.wait()
        return await real(*args)

    monkeypatch.setattr(hub.logs, "page", slowly)
    async with served.connect() as websocket:
        client = Client(websocket)
        await client.result("_run/subscribe", run=run.id)
        await began.wait()
        await hub.delete(LOCAL, run.id)
        go.set()
        assert (await client.until_told("_run/ended"))["status"] == "done"
        assert (await client.until_told("_run/lost"))["last"] == 43
    with pytest.raises(NotFound):
        hub.get(LOCAL, run.id)


async def test_a_run_that_is_being_read_is_not_cleared_away(root: callboard.Root, tmp_path: Path) -> None:
    async with hub_of(root, tmp_path, keep_runs=1) as hub:
        await _over(hub, MadeRun(root, "run-0"))
        with hub.subscribe(LOCAL, "run-0") as events:
            for number in (1, 2):
                await _over(hub, MadeRun(root, f"run-{number}"))
            await hub.logs.prune()
            assert [info.run for info in hub.list(LOCAL)] == ["run-2", "run-0"]
            assert [event.seq async for event in events] == [1, 2, 3]
        del events
        await hub.logs.prune()
        assert [info.run for info in hub.list(LOCAL)] == ["run-2"]


async def test_a_log_that_can_not_be_read_now_sends_its_reader_round_again(
    root: callboard.Root, hub: Hub, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = MadeRun(root, "run-emfile")
    await _over(hub, run)
    real = hub.logs.page

    async def refused(*_: Any) -> Any:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(hub.logs, "page", refused)
    monkeypatch.setattr("callboard.actors.front.control.methods.AGAIN_AFTER", 0.0)
    async with served.connect() as websocket:
        client = Client(websocket)
        await client.result("_run/subscribe", run=run.id)
        assert (await client.until_told("_run/lagged"))["after"] == 0
        monkeypatch.setattr(hub.logs, "page", real)
        await client.result("_run/subscribe", run=run.id)
        await client.until_told("_run/ended")
        assert client.seqs() == [1, 2, 3]


async def test_events_that_nobody_understands_hide_no_other_run(root: callboard.Root, tmp_path: Path) -> None:
    async with hub_of(root, tmp_path) as hub:
        await _over(hub, MadeRun(root, "run-good"))
        await _over(hub, MadeRun(root, "run-odd"))
    kept = tmp_path / "runs" / "run-odd" / "run.json"
    summary = msgspec.json.decode(kept.read_bytes())
    summary["process"], summary["info"]["status"] = "gone", "running"
    kept.write_bytes(msgspec.json.encode(summary))
    odd = b'{"seq":1,"kind":"run.started","ts":"not a time","data":7}\n{"seq":2,"kind":"question.asked"}\n'
    (kept.parent / EVENTS).write_bytes(odd)
    async with hub_of(root, tmp_path) as hub:
        assert {info.run: info.status for info in hub.list(LOCAL)} == {"run-good": "done", "run-odd": "lost"}
        assert hub.get(LOCAL, "run-odd").seq == 2


def test_two_who_look_at_a_process_that_is_gone_do_not_take_each_other_for_it(tmp_path: Path) -> None:
    sign = tmp_path / "1-abc"
    sign.touch()
    other = os.open(sign, os.O_RDWR)  # somebody else who looks at the same moment
    try:
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert not Alive(tmp_path).lives("1-abc")
    finally:
        os.close(other)
    alive = Alive(tmp_path)
    alive.begin()
    assert Alive(tmp_path).lives(alive.token)
    alive.end()
    assert not Alive(tmp_path).lives(alive.token)


def test_who_can_not_look_whether_a_process_lives_does_not_say_that_its_runs_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = Alive(tmp_path)
    alive.begin()

    def no_more_files(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as full:
        full.setattr("os.open", no_more_files)
        assert Alive(tmp_path).lives(alive.token)
    assert Alive(tmp_path).lives(alive.token)
    alive.end()
