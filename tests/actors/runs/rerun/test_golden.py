"""Journals that earlier versions have written are read for ever: those in golden/ are played to the same end.

`run.jsonl` is what `callboard runs export` wrote of a run of `durable/everything`, or of `durable/whole` just before
its end. Beside it are its files (`agents/`, or `config/` and `flow/`) and what came of it (`outcome.json`). It was
played in the directory `RECORDED`, in whose place another name of that length stands here, so that rows stay as they
were written. A change that these tests don't survive has to read old rows as it read them before; a new `FOLD` comes
with other directories here, and no directory is ever taken away.
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

import callboard
from callboard.actors.runs.durable import resume
from callboard.actors.runs.rerun.replay import replay
from callboard.actors.runs.sessions.store import SessionStore
from callboard.actors.runs.stored_runs import ExportedRun, insert_export, read_export
from callboard.actors.work.journal.run_journal import past_of
from callboard.protocol.journal import Began, Over, decode, encode
from callboard.supervisors.journal.row import StoredRow

GOLDEN = Path(__file__).with_name("golden")
RECORDED = b"/tmp/golden-recorded"
NAMES = sorted(path.name for path in GOLDEN.iterdir())
GRAPHS = [name for name in NAMES if (GOLDEN / name / "agents").exists()]
WHOLE = [name for name in NAMES if (GOLDEN / name / "flow").exists()]


def told(name: str) -> dict[str, Any]:
    wanted: dict[str, Any] = json.loads((GOLDEN / name / "outcome.json").read_text())
    return wanted


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="golden-", dir="/tmp") as made:
        assert len(made.encode()) == len(RECORDED)
        yield Path(made)


def brought(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> ExportedRun:
    """The run, with the names of today in its rows."""
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    moved = read_export(GOLDEN / name / "run.jsonl")
    rows = [(path, data.replace(RECORDED, bytes(home))) for path, data in moved.rows]
    return msgspec.structs.replace(moved, rows=rows, about=moved.about.replace(RECORDED, bytes(home)))


@pytest.mark.parametrize("name", GRAPHS)
async def test_it_is_played_to_the_end_that_it_had_then(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(GOLDEN / name / "agents", home / "config" / "agents")
    moved = brought(name, home, monkeypatch)
    insert_export(moved, os.environ)
    play = partial(replay, moved.run, config_dir=home / "config")
    replayed = await trio.to_thread.run_sync(play)
    assert replayed.differences == ()
    wanted = told(name)
    assert (replayed.outcome.status, replayed.outcome.output) == (wanted["status"], wanted["output"])
    assert not replayed.ended_early


@pytest.mark.parametrize("name", WHOLE)
async def test_what_was_killed_at_its_end_comes_to_it_without_doing_anything(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in ("config", "flow"):
        shutil.copytree(GOLDEN / name / each, home / each)
    moved = brought(name, home, monkeypatch)
    assert isinstance(decode(moved.rows[-1][1]), Over)
    insert_export(msgspec.structs.replace(moved, rows=moved.rows[:-1], ended=None), os.environ)
    async with callboard.Root(config_dir=home / "config") as root:
        outcome = await resume(root, moved.run)
    wanted = told(name)
    assert (outcome.status, outcome.output) == (wanted["status"], wanted["output"])
    assert not (home / "world").exists()
    store = SessionStore(home / "config")
    id = store.resolve_alias("bridges", "whole")
    assert id is not None
    said = [(each["role"], each["content"]) for each in store.open(id, "whole").session.messages]
    assert said == [("user", "hello"), ("assistant", wanted["output"])]


@pytest.mark.parametrize("name", NAMES)
def test_each_row_says_what_it_said_then(name: str) -> None:
    """A field that was renamed would be left out silently: what is read and written again is the same."""
    rows = read_export(GOLDEN / name / "run.jsonl").rows
    past = past_of(StoredRow(number, path, data) for number, (path, data) in enumerate(rows, 1))
    wanted = told(name)
    assert (len(rows), len(past.replies), past.tool_calls, past.questions) == tuple(wanted["counts"])
    for _, data in rows:
        row = decode(data)
        if not isinstance(row, Began):  # it has the settings of its time
            assert plain(msgspec.msgpack.decode(encode(row))) == plain(msgspec.msgpack.decode(data))


def plain(value: Any) -> Any:
    """Without the kind of questions that are of the usual one, which may be left out."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if (name, each) != ("kind", "text")}
    return [plain(each) for each in value] if isinstance(value, list) else value
