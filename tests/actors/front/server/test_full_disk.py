"""A real server whose disk fills up under it and has room again, and the server that comes after it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.serve_process import SOON, Serving

from callboard.actors.work.spending.accounts import Amount, reserve
from callboard.actors.work.spending.days import Days
from callboard.actors.work.spending.ledger import LedgerFile
from callboard.protocol.errors import LedgerBroken
from callboard.protocol.settings.api import ApiLimits, ApiSettings, DailyLimits
from callboard.supervisors import Root

AGENT = """
name: quick
start: done
nodes:
  done: {type: end, output: "it is done"}
"""


class Disk:
    """A small disk for a server's state."""

    def __init__(self, home: Path) -> None:
        self.state = home / "state"
        self._filling = self.state / "filling"

    def fill(self) -> None:
        with self._filling.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

    def clear(self) -> None:
        self._filling.unlink()

    def remount(self, how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", self.state], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    disk.state.mkdir()
    mounts = os.getuid() == 0 and shutil.which("mount") is not None
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", disk.state]
    if not mounts or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    yield disk
    subprocess.run(["umount", "--lazy", disk.state], check=True)


@pytest.fixture
def servers(tmp_path: Path, disk: Disk) -> Iterator[list[Serving]]:
    """Those that were started."""
    agent = tmp_path / "config" / "agents" / "quick"
    agent.mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text("durable: {by_default: false}\n")
    (agent / "graph.yaml").write_text(AGENT)
    started: list[Serving] = []
    yield started
    for serving in started:
        serving.process.kill()
        serving.process.wait()
        assert serving.process.stderr is not None
        serving.process.stderr.close()


def began(home: Path, servers: list[Serving]) -> Serving:
    servers.append(Serving(home))
    servers[-1].see("serving at ")
    return servers[-1]


def status(serving: Serving, run: str) -> Any:
    return serving.ask(f"/v1/runs/{run}")["status"]


def seqs(serving: Serving, run: str) -> list[int]:
    return [event["seq"] for event in serving.ask(f"/v1/runs/{run}/events")["events"]]


def until(condition: Any) -> None:
    late = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < late
        time.sleep(0.02)


def test_a_run_of_a_full_disk_is_known_now_and_on_disk_when_there_is_room_and_done_after_a_restart(
    tmp_path: Path, disk: Disk, servers: list[Serving]
) -> None:
    serving = began(tmp_path, servers)
    disk.fill()
    run = serving.ask("/v1/runs", {"target": "quick"})["run"]
    serving.see(f"the log of {run} can't be written: No space left on device")
    until(lambda: status(serving, run) == "done")
    known = seqs(serving, run)
    assert known == list(range(1, len(known) + 1))
    assert len(known) > 2
    disk.clear()
    summary = disk.state / "callboard" / "runs" / run / "run.json"
    until(lambda: summary.exists() and json.loads(summary.read_text())["info"]["status"] == "done")
    serving.process.send_signal(signal.SIGKILL)
    serving.end()
    assert len([line for line in serving.said if "can't be written" in line]) == 1
    shutil.rmtree(disk.state / "callboard" / "servers")
    after = began(tmp_path, servers)
    assert status(after, run) == "done"
    assert seqs(after, run) == known


async def test_what_counts_for_daily_limits_is_refused_on_a_full_or_read_only_disk_and_goes_on_later(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ApiSettings(limits=ApiLimits(daily=DailyLimits(max_tokens=1_000_000)))

    async def asked(days: Days, times: int = 1) -> None:
        account = days.account("local")
        assert account is not None
        for _ in range(times):
            (await reserve(account, Amount(100), lambda: None)).spend(Amount(50))

    async with Root() as root:
        first, second = (Days(root, LedgerFile(disk.state / "usage.db"), settings, now=time.time) for _ in range(2))
        await asked(first)
        disk.fill()
        with pytest.raises(LedgerBroken, match=r"usage\.db \(.*(full|disk I/O error)"):
            await asked(first, 500)  # what the file has room for is used first
        disk.clear()
        await asked(first)
        await first.aclose()
        disk.remount("ro")
        with pytest.raises(LedgerBroken, match=r"usage\.db \(.*(readonly|unable to open|Read-only)"):
            await asked(second)
        disk.remount("rw")
        await asked(second)
        await second.aclose()
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 2, "each time once"
    with contextlib.closing(sqlite3.connect(disk.state / "usage.db")) as book:
        assert book.execute("SELECT COUNT(*) FROM held").fetchone() == (0,)
