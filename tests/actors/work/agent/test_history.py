"""Conversations that grow too long."""

from __future__ import annotations

import json

import pytest
from fake_models import Reply, Request
from stage import Stage

import callboard

ROUNDS = 12


def look(number: int) -> str:
    """Looks at a thing."""
    return f"thing {number}: " + "x" * 400


def ask_often(request: Request) -> Reply | str:
    """Calls a tool for a dozen rounds; writes a summary when asked to."""
    if "You shorten the record" in request.system:
        return Reply(text="SUMMARY", input_tokens=10, output_tokens=1)
    done = sum(1 for message in request.json["messages"] if message["role"] == "assistant")
    turn = ask_often.turns = getattr(ask_often, "turns", 0) + 1
    size = len(request.body) // 4
    if turn > ROUNDS:
        return Reply(text="done", input_tokens=size)
    return Reply(calls=[("look", {"number": turn})], input_tokens=size, output_tokens=done)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ask_often.turns = 0


async def run(stage: Stage, **config: object) -> callboard.Outcome:
    stage.models.answer_with(ask_often)
    agent = callboard.Agent(name="looker", instructions="Look.", can_ask_user=False, **config)
    return await stage.run("Look at all things.", target=agent, tools=[look])


async def test_older_turns_give_way_to_a_summary(stage: Stage) -> None:
    outcome = await run(stage, compression_threshold=800)
    assert outcome.output == "done"
    compacted = stage.of("history.compacted")
    assert compacted
    assert all(data.tokens > 800 > data.summary_tokens for data in compacted)
    last = stage.models.requests[-1].json["messages"]
    assert last[1]["role"] == "user"
    assert last[1]["content"].startswith("[Summary of the conversation so far")
    assert last[1]["content"].endswith("SUMMARY")
    assert max(len(request.body) for request in stage.models.requests[-4:]) < 8_000


async def test_no_result_is_parted_from_its_call(stage: Stage) -> None:
    for keep in (1, 2, 3, 5):
        ask_often.turns = 0
        stage.models.requests.clear()
        await run(stage, compression_threshold=500, compression_keep_last=keep)
        for request in stage.models.requests:
            called: set[str] = set()
            for message in request.json["messages"]:
                called.update(call["id"] for call in message.get("tool_calls") or ())
                if message["role"] == "tool":
                    assert message["tool_call_id"] in called


async def test_the_models_window_is_the_bound_where_the_agent_names_none(stage: Stage) -> None:
    settings = json.loads(stage.models.config())
    settings["clients"][0]["models"] = [{"name": "model", "max_input_tokens": 1_000}]
    (stage.config_dir / "config.yaml").write_text(json.dumps(settings))
    stage.models.answer_with(ask_often)
    async with callboard.Root(config_dir=stage.config_dir) as root:
        agent = callboard.Agent(name="looker", instructions="Look.", can_ask_user=False)
        kinds: list[str] = []
        await callboard.run(agent, "go", tools=[look], root=root, on_event=lambda event: kinds.append(event.kind))
    assert "history.compacted" in kinds


async def test_without_a_bound_nothing_is_shortened(stage: Stage) -> None:
    await run(stage)
    assert stage.of("history.compacted") == []
    assert len(stage.models.requests) == ROUNDS + 1


async def test_a_summary_that_can_not_be_had_is_a_warning(stage: Stage) -> None:
    def refuses(request: Request) -> Reply | str:
        if "You shorten the record" in request.system:
            return Reply(status=400, error="no summaries today")
        return ask_often(request)

    stage.models.answer_with(refuses)
    agent = callboard.Agent(name="looker", compression_threshold=800, can_ask_user=False)
    outcome = await stage.run("go", target=agent, tools=[look])
    assert outcome.output == "done"
    warnings = [data for data in stage.of("run.warning") if data.code == "not_compacted"]
    assert warnings
    assert "no summaries today" in warnings[0].message


async def test_the_todo_list_stands_behind_the_summary_word_for_word(stage: Stage) -> None:
    def with_todo(request: Request) -> Reply | str:
        if ask_often.turns == 0 and "You shorten" not in request.system:
            ask_often.turns = 1
            return Reply(calls=[("todo__init", {"goal": "see it all"}), ("todo__add", {"task": "look twice"})])
        return ask_often(request)

    stage.models.answer_with(with_todo)
    agent = callboard.Agent(
        name="looker", compression_threshold=800, can_ask_user=False, auto_continue=True, max_auto_continues=0
    )
    await stage.run("go", target=agent, tools=[look])
    summary = stage.models.requests[-1].json["messages"][1]["content"]
    assert "[Todo list]\nGoal: see it all\nProgress: 0/1 completed\n  ○ 1. look twice" in summary


@pytest.mark.parametrize("honest", [True, False])
async def test_results_count_before_the_request_that_carries_them(stage: Stage, honest: bool) -> None:
    window = 3_000

    def big(number: int) -> str:
        """Looks at a big thing."""
        return f"thing {number}: " + "x" * 4_000

    def answer(request: Request) -> Reply | str:
        size = len(request.body) // 4 if honest else 0
        if "You shorten the record" in request.system:
            return Reply(text="SUMMARY", input_tokens=size)
        turn = ask_often.turns = ask_often.turns + 1
        if turn > ROUNDS:
            return Reply(text="done", input_tokens=size, output_tokens=0)
        return Reply(calls=[("big", {"number": turn})], input_tokens=size, output_tokens=0)

    stage.models.answer_with(answer)
    agent = callboard.Agent(name="looker", compression_threshold=window, compression_keep_last=2, can_ask_user=False)
    outcome = await stage.run("go", target=agent, tools=[big])
    assert outcome.output == "done"
    assert stage.of("history.compacted")
    talk = [request for request in stage.models.requests if "You shorten" not in request.system]
    assert max(len(request.body) // 4 for request in talk) < window + 1_500
