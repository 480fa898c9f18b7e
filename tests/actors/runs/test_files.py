"""Runs that are kept as files: also when they are killed, when a text is no Unicode, and when the disk is full."""

from __future__ import annotations

import errno
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.messages import has_message

import callboard
from callboard.actors.runs.files import Saved
from callboard.protocol.events import Event, Warned
from callboard.protocol.outcome import Outcome


def event(text: str = "a", seq: int = 1) -> Event:
    data = Warned(code="x", message=text)
    return Event(seq=seq, ts=datetime.now(UTC), run="run-1", actor="/run-1", kind=data.kind, data=data)


def logged(saved: Saved) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (saved.directory / "log.jsonl").read_text().splitlines()]


def test_an_event_is_in_the_log_as_soon_as_it_has_happened(tmp_path: Path) -> None:
    saved = Saved(tmp_path / "run-1")
    for number in range(1, 4):
        saved.on_event(event(seq=number))
        assert len(logged(saved)) == number
    saved.close()


def test_half_a_character_does_not_end_the_log(tmp_path: Path) -> None:
    saved = Saved(tmp_path / "run-1")
    saved.on_event(event("\ud83d"))
    saved.on_event(event("b", 2))
    saved.close()
    assert [line["data"]["message"] for line in logged(saved)] == ["\ud83d", "b"]
    assert saved.error is None


def test_what_cant_be_written_is_told_once_and_raises_nothing(tmp_path: Path) -> None:
    saved = Saved(tmp_path / "run-1")
    (saved.directory / "outcome.json").mkdir()
    saved.keep(Outcome(run_id="run-1", status="done"), {})
    saved.close()
    assert saved.error == f"the run could not be saved to {saved.directory}: Is a directory"
    assert (saved.directory / "usage.json").exists()


async def test_a_run_whose_files_find_no_room_is_done_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_saved: Saved, _name: str, _value: Any) -> None:
        _saved._failed(OSError(errno.ENOSPC, "No space left on device"))

    monkeypatch.setattr(Saved, "_write", full)
    (tmp_path / "flow.yaml").write_text("graph: {nodes: [{id: A, type: literal, config: {content: hello}}]}\n")
    outcome = await callboard.run(tmp_path / "flow.yaml", "go", save=tmp_path / "runs", config_dir=tmp_path)
    assert (outcome.status, outcome.output, outcome.exit_code) == ("done", "hello", 1)
    assert outcome.save_error is not None
    directory = f"{tmp_path}/runs/{outcome.run_id}"
    assert has_message(
        outcome.save_error, "runs.files.Saved._failed", directory=directory, error="No space left on device"
    )
    assert outcome.to_wire()["unsaved"] == outcome.save_error
