"""What is kept of runs, whatever happens to the disk and to the process."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from support.control_hub import MadeRun, hub_of
from support.messages import has_message
from support.waiting import until

import callboard
from callboard.actors.front.control.hub import Hub
from callboard.actors.front.control.logs import writer
from callboard.actors.front.control.logs.files import EVENTS, SUMMARY
from callboard.actors.front.control.logs.run_logs import RunLogs, list_logged_runs
from callboard.protocol.control.caller import LOCAL
from callboard.protocol.errors import ConfigError, NotFound


async def _over(hub: Hub, run: MadeRun) -> None:
    run.end()
    with trio.fail_after(60):
        while run.id not in hub.logs.past:
            await hub.logs.flush()


async def test_a_log_is_private_and_whole(root: callboard.Root, tmp_path: Path) -> None:
    async with hub_of(root, tmp_path) as hub:
        run = MadeRun(root, "run-1")
        run.say("hello")
        await _over(hub, run)
    home = tmp_path / "runs" / "run-1"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert [stat.S_IMODE((home / name).stat().st_mode) for name in (EVENTS, SUMMARY)] == [0o600, 0o600]
    assert (home / EVENTS).read_bytes().count(b"\n") == 4
    found = list_logged_runs(tmp_path / "runs")
    assert [(info.run, info.status, info.seq, info.output) for info in found] == [("run-1", "done", 4, "made")]


async def test_runs_outlive_their_process_and_are_read_by_the_next(root: callboard.Root, tmp_path: Path) -> None:
    async with hub_of(root, tmp_path) as hub:
        run = MadeRun(root, "run-1")
        await _over(hub, run)
    async with hub_of(root, tmp_path) as hub:
        assert [info.run for info in hub.list(LOCAL)] == ["run-1"]
        assert (await hub.wait(LOCAL, "run-1")).output == "made"
        with hub.subscribe(LOCAL, "run-1", 1) as events:
            assert [event.seq async for event in events] == [2, 3]


async def test_only_the_newest_runs_are_kept(root: callboard.Root, tmp_path: Path) -> None:
    async with hub_of(root, tmp_path, keep_runs=2) as hub:
        for number in range(5):
            await _over(hub, MadeRun(root, f"run-{number}"))
        await hub.logs.prune()
        assert [info.run for info in hub.list(LOCAL)] == ["run-4", "run-3"]
    assert sorted(path.name for path in (tmp_path / "runs").glob("run-*")) == ["run-3", "run-4"]


async def test_what_is_beyond_the_limit_is_removed_soon_after_runs_have_ended(
    root: callboard.Root, tmp_path: Path
) -> None:
    async with hub_of(root, tmp_path, keep_runs=3) as hub:
        for number in range(60):
            await _over(hub, MadeRun(root, f"run-{number:02}"))
        await until(lambda: len(list((tmp_path / "runs").glob("run-*"))) == 3, 60)
        assert [info.run for info in hub.list(LOCAL)] == ["run-59", "run-58", "run-57"]


KILLED = """
    import sys, os, signal
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    import trio, callboard
    from support.control_hub import MadeRun, hub_of
    async def main():
        async with callboard.Root(config_dir={config!r}, wait_for_front_end=True) as root:
            async with hub_of(root, Path({state!r})) as hub:
                run = MadeRun(root, "run-killed")
                for _ in range(500):
                    run.say()
                await hub.logs.flush()
                print("up", flush=True)
                while True:
                    run.say()
                    await trio.sleep(0.001)
    trio.run(main)
"""


async def test_what_a_killed_process_leaves_is_readable_and_lost(root: callboard.Root, tmp_path: Path) -> None:
    script = textwrap.dedent(KILLED).format(
        tests=str(Path(__file__).parents[3]), config=str(tmp_path / "config"), state=str(tmp_path)
    )

    def play() -> None:
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            (alive,) = list_logged_runs(tmp_path / "runs")
            assert alive.status == "running"
            process.send_signal(signal.SIGKILL)

    await trio.to_thread.run_sync(play)
    with (tmp_path / "runs" / "run-killed" / EVENTS).open("ab") as file:
        file.write(b'{"schema_version":1,"seq":99')  # torn
    async with hub_of(root, tmp_path) as hub:
        info = hub.get(LOCAL, "run-killed")
        assert info.status == "lost"
        assert info.ended is not None
        assert info.seq >= 502
        with hub.subscribe(LOCAL, "run-killed") as events:
            assert [event.seq async for event in events] == list(range(1, info.seq + 1))
        outcome = await hub.wait(LOCAL, "run-killed")
        assert outcome.error is not None
        assert outcome.error.code == "lost"


class Disk:
    """Where logs are written: full at once, after as much as fits, and not full again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch

    def fill(self) -> None:
        real = os.write

        def full(file: int, data: Any) -> int:
            if len(data) > 10:
                return real(file, data[:10])  # as much as fits
            raise OSError(errno.ENOSPC, "No space left on device")

        def no_room(*_: Any, **__: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        self._patch.setattr(writer.os, "write", full)
        self._patch.setattr(writer, "make_private", no_room)
        self._patch.setattr(writer, "write_summary", no_room)

    def clear(self) -> None:
        self._patch.undo()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def test_a_full_disk_is_told_once_and_costs_nothing_when_there_is_room_again(
    root: callboard.Root, hub: Hub, disk: Disk
) -> None:
    run = MadeRun(root, "run-full")
    run.say()
    await hub.logs.flush()
    disk.fill()
    run.say()
    with hub.subscribe(LOCAL, run.id, 4) as live:
        await hub.logs.flush()
        with trio.fail_after(60):
            warning = await anext(live)
    assert b"log_broken" in warning.data
    assert b"No space left on device" in warning.data
    for _ in range(40):
        run.say()
        await hub.logs.flush()
    with hub.subscribe(
        LOCAL, run.id
    ) as events:  # what was written, then what the ring holds; the rest can't be read now
        seen = [(await anext(events)).seq for _ in range(3 + 16)]
        assert seen[:3] == [1, 2, 3]
        assert seen[3:] == list(range(30, 46))
        assert events.lost == (4, 29)
    disk.clear()
    run.end()
    assert (await hub.wait(LOCAL, run.id)).status == "done"
    await until(lambda: run.id in hub.logs.past)
    lines = (hub.logs.directory / run.id / EVENTS).read_bytes().splitlines()
    assert [msgspec.json.decode(line)["seq"] for line in lines] == list(range(1, 47))
    assert sum(b"log_broken" in line for line in lines) == 1


async def test_a_run_that_began_and_ended_on_a_full_disk_is_whole_when_there_was_room(
    root: callboard.Root, tmp_path: Path, disk: Disk
) -> None:
    async with hub_of(root, tmp_path) as hub:
        disk.fill()
        run = MadeRun(root, "run-full")
        for _ in range(20):
            run.say()
        run.end()
        await hub.logs.flush()
        assert [info.status for info in hub.list(LOCAL)] == ["done"]
        with hub.subscribe(LOCAL, run.id) as events:
            assert [event.seq async for event in events] == list(range(1, 24))
        assert not (hub.logs.directory / run.id).exists()
        disk.clear()
        await until((hub.logs.directory / run.id / SUMMARY).exists)
    async with hub_of(root, tmp_path) as hub:
        assert [(info.run, info.status) for info in hub.list(LOCAL)] == [(run.id, "done")]
        with hub.subscribe(LOCAL, run.id) as events:
            assert [event.seq async for event in events] == list(range(1, 24))


async def test_what_a_full_disk_leaves_in_memory_is_bounded_and_what_fits_is_written_later(
    root: callboard.Root, hub: Hub, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MOST_UNWRITTEN", 20_000)
    disk._patch = pytest.MonkeyPatch()
    disk.fill()
    run = MadeRun(root, "run-long")
    for _ in range(100):
        run.say("x" * 1000)
        await hub.logs.flush()
    assert hub.running.live[run.id].log.unwritten <= 20_000
    run.end()
    await until(lambda: run.id in hub.logs.past)  # it is not kept for what will never be written
    assert hub.get(LOCAL, run.id).status == "done"
    disk.clear()
    await until((hub.logs.directory / run.id / SUMMARY).exists)
    (info,) = list_logged_runs(hub.logs.directory)
    assert info.status == "done"
    lines = (hub.logs.directory / run.id / EVENTS).read_bytes().splitlines()
    assert 1 < len(lines) < 20
    await hub.logs.flush()
    assert hub.logs.writer._put == hub.logs.writer._written


async def test_a_run_that_is_removed_while_the_disk_is_full_does_not_come_back(
    root: callboard.Root, hub: Hub, disk: Disk
) -> None:
    disk.fill()
    run = MadeRun(root, "run-gone")
    run.end()
    await hub.logs.flush()
    await hub.delete(LOCAL, run.id)
    disk.clear()
    await hub.logs.flush()
    assert not (hub.logs.directory / run.id).exists()
    assert hub.list(LOCAL) == []


async def test_a_disk_that_stands_still_costs_bounded_memory(
    root: callboard.Root, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BACKLOG", 10_000)
    monkeypatch.setattr(writer, "GATHER", 30.0)
    run = MadeRun(root, "run-still")
    for _ in range(20):
        run.say("x" * 1000)
    assert has_message(hub.running.live[run.id].log.broken, "front.control.logs.writer.RunLog.append")
    monkeypatch.undo()
    await hub.logs.flush()
    run.end()
    assert (await hub.wait(LOCAL, run.id)).status == "done"


@pytest.mark.parametrize(
    "odd", ["..", "../run-1", "/etc/passwd", "run-1/../run-1", "", ".", "run-", "run-A", "run-1\0", "x" * 5000, "run-é"]
)
async def test_an_odd_id_is_no_run_and_never_a_path(
    root: callboard.Root, hub: Hub, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = MadeRun(root, "run-1")
    await _over(hub, run)

    def touched(*_: Any) -> None:
        raise AssertionError("the disk was asked")

    monkeypatch.setattr(Path, "open", touched)
    monkeypatch.setattr(Path, "read_bytes", touched)
    with pytest.raises(NotFound):
        hub.get(LOCAL, odd)
    with pytest.raises(NotFound):
        hub.subscribe(LOCAL, odd)
    with pytest.raises(NotFound):
        await hub.events(LOCAL, odd)


async def test_a_directory_that_can_not_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="XDG_STATE_HOME"):
        async with RunLogs(tmp_path / "file" / "runs"):
            pass


async def test_what_is_no_json_is_made_some(root: callboard.Root, hub: Hub) -> None:
    run = MadeRun(root, "run-odd")
    run.say("half a pair: \ud800")
    run.end()
    with hub.subscribe(LOCAL, run.id) as events:
        assert [event.seq async for event in events] == [1, 2, 3, 4]


async def test_thousands_of_logs_need_few_open_files(root: callboard.Root, hub: Hub) -> None:
    runs = [MadeRun(root, f"run-{number}") for number in range(200)]
    await hub.logs.flush()
    assert len(hub.logs.writer._open) <= writer.OPEN_FILES
    for run in runs:
        run.say()
        run.end()
    with trio.fail_after(60):
        while len(hub.logs.past) < 200:
            await hub.logs.flush()
    assert {info.seq for info in list_logged_runs(hub.logs.directory)} == {4}
