"""`callboard.log_events`: events as records of `logging`."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import callboard
from callboard.actors.front.telemetry import event_log
from callboard.testing import ScriptedModel, call

CLERK = callboard.Agent(name="clerk", instructions="Look it up.")


def look_up(key: str) -> str:
    """Look a number up."""
    return {"a": "seven"}[key]


@pytest.mark.parametrize("content", [False, True])
async def test_events_of_a_run_are_records_with_the_event(
    content: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel([call("look_up", key="a"), call("look_up", key="b"), "Secret words."])
    logger = logging.getLogger("app.agents")
    async with callboard.Root(config_dir=tmp_path) as root:
        with caplog.at_level(logging.DEBUG, "app.agents"):
            log = callboard.log_events(logger, content=content)
            await root.run(CLERK, "What is a?", tools=[look_up], model=model, on_event=log)
    records = [record for record in caplog.records if record.name == "app.agents"]
    levels = {record.getMessage().split()[0]: record.levelname for record in records}
    assert levels["run.started"] == levels["llm.response"] == levels["run.finished"] == "INFO"
    assert levels["actor.spawned"] == levels["llm.delta"] == "DEBUG"
    finished = [record for record in records if record.getMessage().startswith("tool.call.finished")]
    assert [record.levelname for record in finished] == ["INFO", "WARNING"]
    assert "KeyError" in finished[1].getMessage()
    event = finished[0].__dict__["event"]
    assert isinstance(event, callboard.Event)
    text = "\n".join(record.getMessage() for record in records)
    for words in ("What is a?", "Secret words.", "seven"):
        assert (words in text) == content


async def test_a_bus_has_the_events_of_all_runs_and_failures_are_errors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with callboard.Root(config_dir=tmp_path) as root:
        with caplog.at_level(logging.INFO, "callboard.events"), root.bus.listen(callboard.log_events()):
            await root.run(CLERK, "one", model=ScriptedModel(["done"]))
            failed = await root.run(CLERK, "two", model=ScriptedModel([]))
    records = [record for record in caplog.records if record.name == "callboard.events"]
    errors = [record.getMessage() for record in records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "run.failed" in errors[0]
    assert failed.run_id in errors[0]
    assert "code=model" in errors[0]


def test_kinds_with_a_level_of_their_own_exist() -> None:
    named = event_log.ERRORS | event_log.WARNINGS | event_log.DETAILS
    assert named <= callboard.events.KINDS.keys()
