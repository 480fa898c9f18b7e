"""`cassette:FILE`: replies of a recorded run, while tools, children, limits and the ledger work as ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.fake_models import FakeModels, Reply, Request

import callboard
from callboard.protocol.cassette import CassetteDiffers
from callboard.protocol.errors import ConfigError, InvalidFile
from callboard.protocol.events import Event, LlmDelta, LlmRequest
from callboard.protocol.requests import Limits

WRITER = """
name: writer
instructions: You write.
global_tools: [fs_write, fs_cat]
"""
LEAD = "name: lead\ninstructions: You lead.\ncan_spawn_agents: true\n"
CHILD = "name: child\ninstructions: You are a child.\n"


@pytest.fixture
def config(fake_model: FakeModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration with agents; we are in an empty directory."""
    config = fake_model.config_dir(tmp_path / "config")
    for name, text in (("writer", WRITER), ("lead", LEAD), ("child", CHILD)):
        (config / "agents" / name).mkdir(parents=True)
        (config / "agents" / name / "config.yaml").write_text(text)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return config


def script(models: FakeModels) -> None:
    models.script(
        Reply(text="I write it.", calls=[("fs_write", {"path": "note.txt", "contents": "hello\n"})]),
        Reply(calls=[("fs_cat", {"path": "note.txt"})]),
        "It is written.",
    )


async def run(config: Path, target: str = "writer", **options: Any) -> callboard.Outcome:
    return await callboard.run(target, "go", config_dir=config, yes=True, **options)


async def test_tools_work_and_replies_come_from_the_cassette(fake_model: FakeModels, config: Path) -> None:
    script(fake_model)
    await run(config, record="tape.jsonl")
    note, asked = Path("note.txt"), len(fake_model.requests)
    note.unlink()
    outcome = await run(config, model="cassette:tape.jsonl")
    assert (outcome.status, outcome.output, note.read_text()) == ("done", "I write it.\nIt is written.", "hello\n")
    assert len(fake_model.requests) == asked
    assert [*outcome.usage] == ["cassette:tape.jsonl"]


async def test_what_tools_return_may_differ_from_what_they_returned_then(fake_model: FakeModels, config: Path) -> None:
    script(fake_model)
    await run(config, record="tape.jsonl")
    Path("note.txt").unlink()
    Path("note.txt").mkdir()
    outcome = await run(config, model="cassette:tape.jsonl")
    assert outcome.output.endswith("It is written.")


async def test_a_reply_names_the_children_of_this_run(fake_model: FakeModels, config: Path) -> None:
    def answer(request: Request) -> Reply:
        if request.system.startswith("You are a child"):
            return Reply(text=f"done {request.prompt}")
        results = [json.loads(text) for text in request.results]
        match len(results):
            case 0:
                return Reply(calls=[("agent__spawn", {"agent": "child", "prompt": name}) for name in ("one", "two")])
            case 2:
                return Reply(calls=[("agent__collect", {"id": result["id"]}) for result in results])
        return Reply(text=" and ".join(result["output"] for result in results[2:]))

    fake_model.answer_with(answer)
    recorded = await run(config, "lead", record="tape.jsonl")
    assert recorded.output == "done one and done two"
    events: list[Event] = []
    outcome = await run(config, "lead", model="cassette:tape.jsonl", on_event=events.append)
    assert outcome.status == "done", outcome.error
    results = [event.data.result for event in events if event.data.kind == "tool.call.finished"]
    assert [json.loads(result).get("status") for result in results].count("completed") == 2


async def test_a_reply_is_streamed_and_the_request_is_an_event(fake_model: FakeModels, config: Path) -> None:
    script(fake_model)
    await run(config, record="tape.jsonl")
    events: list[Event] = []
    await run(config, model="cassette:tape.jsonl", on_event=events.append)
    said = "".join(event.data.text for event in events if isinstance(event.data, LlmDelta))
    assert said == "I write it.It is written."
    assert sum(isinstance(event.data, LlmRequest) for event in events) == 3


async def test_a_run_that_goes_another_way_is_refused(fake_model: FakeModels, config: Path) -> None:
    fake_model.script("Only this.")
    await run(config, record="tape.jsonl")
    first = await run(config, model="cassette:tape.jsonl")
    assert first.output == "Only this."
    outcome = await run(config, "child", model="cassette:tape.jsonl")
    assert outcome.error is not None
    assert outcome.error.code == CassetteDiffers.code


async def test_an_error_of_the_model_comes_again(fake_model: FakeModels, config: Path) -> None:
    fake_model.script(Reply(status=400, error="no"))
    first = await run(config, record="tape.jsonl")
    second = await run(config, model="cassette:tape.jsonl")
    assert first.error is not None
    assert second.error is not None
    assert second.error.code == first.error.code


@pytest.mark.parametrize(("text", "error"), [(None, ConfigError), ("hello\n", InvalidFile), ("", InvalidFile)])
async def test_a_file_that_is_no_cassette_is_refused_before_the_run(
    config: Path, text: str | None, error: type[Exception]
) -> None:
    if text is not None:
        Path("tape.jsonl").write_text(text)
    with pytest.raises(error):
        await run(config, model="cassette:tape.jsonl")


async def test_it_costs_what_the_recorded_model_costs_and_is_no_spending(fake_model: FakeModels, config: Path) -> None:
    fake_model.script(Reply(text="Dear.", input_tokens=1_000_000, output_tokens=0))
    await run(config, record="tape.jsonl")
    tape = Path("tape.jsonl")
    tape.write_text(tape.read_text().replace('"model":"fake:model"', '"model":"claude:claude-haiku-4-5"', 1))
    async with callboard.Root(config_dir=config, keeps_usage=True) as root:
        outcome = await callboard.run("writer", "go", root=root, model="cassette:tape.jsonl", limits=Limits(max_cost=5))
        assert outcome.usage["cassette:tape.jsonl"].cost == pytest.approx(1.0)
    assert not root.usage_file.exists()
    async with callboard.Root(config_dir=config, keeps_usage=True) as root:
        await callboard.run("writer", "go", root=root)
    assert root.usage_file.exists()


async def test_without_a_known_model_it_has_no_price(fake_model: FakeModels, config: Path) -> None:
    fake_model.script("Hello.")
    await run(config, record="tape.jsonl")
    outcome = await run(config, model="cassette:tape.jsonl")
    assert not outcome.usage["cassette:tape.jsonl"].priced
