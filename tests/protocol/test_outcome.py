"""What `-o json` prints of a run's end."""

from __future__ import annotations

from callboard.protocol.outcome import NodeTime, Outcome, Usage


def test_figures_are_printed_without_the_noise_of_floats() -> None:
    outcome = Outcome(
        run_id="run-1",
        status="done",
        nodes={"a": NodeTime(visits=1, seconds=0.12045474500335)},
        usage={"m": Usage(input_tokens=1, output_tokens=2, cost=0.0006999999999999999)},
    )
    wire = outcome.to_wire()
    assert wire["nodes"] == {"a": {"visits": 1, "seconds": 0.120455}}
    assert wire["usage"] == {"m": {"input_tokens": 1, "output_tokens": 2, "cost": 0.0007, "priced": True}}
    assert wire["priced"] is True
    assert "exit_code" not in wire
