"""Journals that earlier versions have written are read for ever: those in golden/ are played to the same end.

`run.jsonl` is what `callboard runs export` wrote of a run of `durable/everything`, beside its agents (`agents/`) and
what came of it (`outcome.json`). It was played in the directory `RECORDED`, in whose place another name of that length
stands here, so that rows stay as they were written. A change that these tests don't survive has to read old rows as it
read them before; a new `FOLD` comes with another directory here, and no directory is ever taken away.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from callboard.actors.runs.moving import read_file, take_in
from callboard.actors.runs.rerun.replay import replay
from callboard.actors.work.journal.of_run import past_of
from callboard.protocol.journal import Began, decode, encode
from callboard.supervisors.journal.row import Row

GOLDEN = Path(__file__).with_name("golden")
RECORDED = b"/tmp/golden-recorded"
NAMES = sorted(path.name for path in GOLDEN.iterdir())


def told(name: str) -> dict[str, Any]:
    wanted: dict[str, Any] = json.loads((GOLDEN / name / "outcome.json").read_text())
    return wanted


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="golden-", dir="/tmp") as made:
        assert len(made.encode()) == len(RECORDED)
        yield Path(made)


@pytest.mark.parametrize("name", NAMES)
async def test_it_is_played_to_the_end_that_it_had_then(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    shutil.copytree(GOLDEN / name / "agents", home / "config" / "agents")
    moved = read_file(GOLDEN / name / "run.jsonl")
    rows = [(path, data.replace(RECORDED, bytes(home))) for path, data in moved.rows]
    take_in(msgspec.structs.replace(moved, rows=rows), os.environ)
    play = partial(replay, moved.run, config_dir=home / "config")
    replayed = await trio.to_thread.run_sync(play)
    assert replayed.differences == ()
    wanted = told(name)
    assert (replayed.outcome.status, replayed.outcome.output) == (wanted["status"], wanted["output"])
    assert not replayed.ended_early


@pytest.mark.parametrize("name", NAMES)
def test_each_row_says_what_it_said_then(name: str) -> None:
    """A field that was renamed would be left out silently: what is read and written again is the same."""
    rows = read_file(GOLDEN / name / "run.jsonl").rows
    past = past_of(Row(number, path, data) for number, (path, data) in enumerate(rows, 1))
    wanted = told(name)
    assert (len(rows), len(past.replies), past.tool_calls, past.questions) == tuple(wanted["counts"])
    for _, data in rows:
        row = decode(data)
        if not isinstance(row, Began):  # it has the settings of its time
            assert msgspec.msgpack.decode(encode(row)) == msgspec.msgpack.decode(data)
