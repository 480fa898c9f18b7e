"""stdout holds the result and nothing else."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable

import pytest
from support.waiting import PATIENCE

from callboard.cli.render.result import for_format
from callboard.protocol import events as ev
from callboard.protocol.outcome import ErrorReport, Outcome

MakeEvent = Callable[..., ev.Event]

DONE = Outcome(run_id="run-1", status="done", output="café \x1b[31m", state={"a": [1]}, order=["a"])
FAILED = Outcome(run_id="run-1", status="failed", error=ErrorReport(code="graph", message="loops", node="a"))


def written(
    form: str, outcome: Outcome, events: list[ev.Event] | None = None, stream: io.StringIO | None = None
) -> str:
    stream = stream if stream is not None else io.StringIO()
    result = for_format(form, stream)
    for event in events or []:
        result.on_event(event)
    result.finish(outcome)
    return stream.getvalue()


def test_text_is_the_output_byte_for_byte_and_a_newline() -> None:
    assert written("text", DONE) == "café \x1b[31m\n"


def test_text_on_a_terminal_is_made_harmless(terminal: io.StringIO) -> None:
    assert written("text", DONE, stream=terminal) == "café \\x1b[31m\n"


def test_a_run_that_failed_before_its_end_has_no_text() -> None:
    assert written("text", FAILED) == ""


@pytest.mark.parametrize("outcome", [DONE, FAILED])
def test_json_is_one_object_whatever_happened(outcome: Outcome) -> None:
    text = written("json", outcome)
    assert text.count("\n") == 1
    assert json.loads(text) == outcome.to_wire()
    assert set(json.loads(text)) == {
        "schema_version", "run_id", "status", "output", "state", "order", "nodes", "usage", "priced", "turns",
        "tool_calls", "children", "failures", "error",
    }  # fmt: skip


def test_stream_json_is_every_event_and_ends_with_the_outcome(event: MakeEvent) -> None:
    events = [
        event(ev.RunStarted(target="x", name="x", dialect="graph")),
        event(ev.RunFinished(outcome=DONE.to_wire())),
        event(ev.ActorStopped()),
    ]
    lines = [json.loads(line) for line in written("stream-json", DONE, events).splitlines()]
    assert [line["kind"] for line in lines] == ["run.started", "run.finished"]
    assert [line["schema_version"] for line in lines] == [1, 1]
    assert lines[-1]["data"]["outcome"] == DONE.to_wire()


def test_stream_json_ends_with_the_outcome_even_if_the_run_lost_its_last_event(event: MakeEvent) -> None:
    started = event(ev.RunStarted(target="x", name="x", dialect="graph"))
    last = json.loads(written("stream-json", FAILED, [started]).splitlines()[-1])
    assert (last["kind"], last["seq"], last["run"]) == ("run.failed", 2, "run-1")
    assert last["data"]["outcome"]["error"]["message"] == "loops"


def test_half_a_surrogate_pair_is_escaped_and_stops_nothing(event: MakeEvent) -> None:
    line = event(ev.LlmDelta(text="\ud83d"))
    text = written("stream-json", FAILED, [line]).splitlines()[0]
    assert json.loads(text)["data"]["text"] == "\ud83d"


def test_a_reader_that_goes_away_is_noticed_and_told_at_the_end(event: MakeEvent) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    result = for_format("stream-json", Gone())
    noticed = threading.Event()
    result.on_write_error(noticed.set)
    result.on_event(event(ev.LlmDelta(text="x")))
    assert noticed.wait(PATIENCE)
    with pytest.raises(BrokenPipeError):
        result.finish(DONE)
