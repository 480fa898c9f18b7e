"""Conversations that grow too long."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request
from support.messages import has_message

import callboard
from callboard.actors.runs.loading import RunCallbacks
from callboard.actors.runs.session_run import say
from callboard.actors.work.agent.history import Compaction, DoesNotFit, SumUp, estimate
from callboard.actors.work.tools.functions import function_tool
from callboard.actors.work.tools.stored_results import StoredResults
from callboard.protocol.chat import AssistantTurn, TokenUsage, ToolCall, ToolTurn, Turn, UserTurn
from callboard.protocol.requests import RunRequest

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


async def run(agent_runner: AgentRunner, **config: object) -> callboard.Outcome:
    agent_runner.models.answer_with(ask_often)
    agent = callboard.Agent(name="looker", instructions="Look.", can_ask_user=False, **config)
    return await agent_runner.run("Look at all things.", target=agent, tools=[look])


async def test_older_turns_give_way_to_a_summary(agent_runner: AgentRunner) -> None:
    outcome = await run(agent_runner, compression_threshold=800)
    assert outcome.output == "done"
    compacted = agent_runner.of("history.compacted")
    assert compacted
    assert all(data.tokens > 800 > data.summary_tokens for data in compacted)
    before = agent_runner.of("history.compacting")
    assert [(data.turns, data.tokens) for data in before] == [(data.turns, data.tokens) for data in compacted]
    last = agent_runner.models.requests[-1].json["messages"]
    assert last[1]["role"] == "user"
    assert last[1]["content"].startswith("[Summary of the conversation so far")
    assert last[1]["content"].endswith("SUMMARY")
    assert max(len(request.body) for request in agent_runner.models.requests[-4:]) < 8_000


async def test_no_result_is_parted_from_its_call(agent_runner: AgentRunner) -> None:
    for keep in (1, 2, 3, 5):
        ask_often.turns = 0
        agent_runner.models.requests.clear()
        await run(agent_runner, compression_threshold=500, compression_keep_last=keep)
        for request in agent_runner.models.requests:
            called: set[str] = set()
            for message in request.json["messages"]:
                called.update(call["id"] for call in message.get("tool_calls") or ())
                if message["role"] == "tool":
                    assert message["tool_call_id"] in called


async def test_the_models_window_is_the_bound_where_the_agent_names_none(agent_runner: AgentRunner) -> None:
    settings = json.loads(agent_runner.models.config())
    settings["clients"][0]["models"] = [{"name": "model", "max_input_tokens": 1_000}]
    (agent_runner.config_dir / "config.yaml").write_text(json.dumps(settings))
    agent_runner.models.answer_with(ask_often)
    async with callboard.Root(config_dir=agent_runner.config_dir) as root:
        agent = callboard.Agent(name="looker", instructions="Look.", can_ask_user=False)
        kinds: list[str] = []
        await callboard.run(agent, "go", tools=[look], root=root, on_event=lambda event: kinds.append(event.kind))
    assert "history.compacted" in kinds


async def test_without_a_bound_nothing_is_shortened(agent_runner: AgentRunner) -> None:
    await run(agent_runner)
    assert agent_runner.of("history.compacted") == []
    assert len(agent_runner.models.requests) == ROUNDS + 1


async def test_a_summary_that_can_not_be_had_is_a_warning(agent_runner: AgentRunner) -> None:
    def refuses(request: Request) -> Reply | str:
        if has_message(request.system, "work.agent.history.2"):
            return Reply(status=400, error="no summaries today")
        return ask_often(request)

    agent_runner.models.answer_with(refuses)
    agent = callboard.Agent(name="looker", compression_threshold=800, can_ask_user=False)
    outcome = await agent_runner.run("go", target=agent, tools=[look])
    assert outcome.output == "done"
    warnings = [data for data in agent_runner.of("run.warning") if data.code == "not_compacted"]
    assert warnings
    assert "no summaries today" in warnings[0].message


async def test_the_todo_list_stands_behind_the_summary_word_for_word(agent_runner: AgentRunner) -> None:
    def with_todo(request: Request) -> Reply | str:
        if ask_often.turns == 0 and "You shorten" not in request.system:
            ask_often.turns = 1
            return Reply(calls=[("todo__init", {"goal": "see it all"}), ("todo__add", {"task": "look twice"})])
        return ask_often(request)

    agent_runner.models.answer_with(with_todo)
    agent = callboard.Agent(
        name="looker", compression_threshold=800, can_ask_user=False, auto_continue=True, max_auto_continues=0
    )
    await agent_runner.run("go", target=agent, tools=[look])
    summary = agent_runner.models.requests[-1].json["messages"][1]["content"]
    assert "[Todo list]\nGoal: see it all\nProgress: 0/1 completed\n  ○ 1. look twice" in summary


@pytest.mark.parametrize("honest", [True, False])
async def test_results_count_before_the_request_that_carries_them(agent_runner: AgentRunner, honest: bool) -> None:
    window = 3_000

    def big(number: int) -> str:
        """Looks at a big thing."""
        return f"thing {number}: " + "x" * 4_000

    def answer(request: Request) -> Reply | str:
        size = len(request.body) // 4 if honest else 0
        if has_message(request.system, "work.agent.history.2"):
            return Reply(text="SUMMARY", input_tokens=size)
        turn = ask_often.turns = ask_often.turns + 1
        if turn > ROUNDS:
            return Reply(text="done", input_tokens=size, output_tokens=0)
        return Reply(calls=[("big", {"number": turn})], input_tokens=size, output_tokens=0)

    agent_runner.models.answer_with(answer)
    agent = callboard.Agent(name="looker", compression_threshold=window, compression_keep_last=2, can_ask_user=False)
    outcome = await agent_runner.run("go", target=agent, tools=[big])
    assert outcome.output == "done"
    assert agent_runner.of("history.compacted")
    talk = [request for request in agent_runner.models.requests if "You shorten" not in request.system]
    assert max(len(request.body) // 4 for request in talk) < window + 1_500


# --- as far as it achieves something ------------------------------------------------------------------------


def wide(number: int) -> str:
    """Looks at a wide thing."""
    return f"begin {number}: " + "x" * 20_000 + f" :end {number}"


def counting(rounds: int, tool: str = "wide", **arguments: object) -> Callable[[Request], Reply]:
    """Calls a tool for so many rounds, by a model that counts what it is sent."""
    turns = iter(range(1, rounds + 1))

    def answer(request: Request) -> Reply:
        size = len(request.body) // 4
        if "You shorten the record" in request.system:
            return Reply(text="SUMMARY", input_tokens=size)
        number = next(turns, None)
        if number is None:
            return Reply(text="done", input_tokens=size, output_tokens=1)
        return Reply(calls=[(tool, arguments or {"number": number})], input_tokens=size, output_tokens=1)

    return answer


def parted(agent_runner: AgentRunner) -> tuple[list[Request], list[Request]]:
    """The requests of the conversation, and those for a summary."""
    asked = [request for request in agent_runner.models.requests if "You shorten the record" not in request.system]
    return asked, [request for request in agent_runner.models.requests if request not in asked]


async def windowed(
    agent_runner: AgentRunner, window: int, agent: callboard.Agent, *tools: Any, **options: Any
) -> callboard.Outcome:
    """A run with a model of this window."""
    settings = json.loads(agent_runner.models.config())
    settings["clients"][0]["models"] = [{"name": "model", "max_input_tokens": window}]
    (agent_runner.config_dir / "config.yaml").write_text(json.dumps(settings))
    async with callboard.Root(config_dir=agent_runner.config_dir) as root:
        return await callboard.run(
            agent, options.pop("prompt", "go"), tools=tools, root=root, on_event=agent_runner.events.append, **options
        )


async def test_kept_turns_over_the_threshold_ask_for_no_summary_each_turn(agent_runner: AgentRunner) -> None:
    agent_runner.models.answer_with(counting(12))
    agent = callboard.Agent(name="looker", compression_threshold=8_000, can_ask_user=False, max_turns=20)
    outcome = await agent_runner.run("Look at all things.", target=agent, tools=[wide])
    assert outcome.output == "done"
    asked, summaries = parted(agent_runner)
    assert len(asked) == 13
    assert len(summaries) <= 2
    assert max(len(request.body) // 4 for request in asked) < 8_500
    last = asked[-1].results
    assert last[-1] == wide(12)  # what the model has not read yet is whole
    assert all(text.startswith("begin") and " characters left out ...]" in text for text in last[:-1])
    assert last[-2].endswith(" :end 11")
    shortened = agent_runner.of("history.compacted")
    assert all(data.tokens_now < data.tokens for data in shortened)
    assert sum(data.results for data in shortened) == 11


async def test_several_results_of_a_turn_stay_with_their_calls(agent_runner: AgentRunner) -> None:
    turns = iter(range(1, 9))

    def answer(request: Request) -> Reply:
        size = len(request.body) // 4
        if has_message(request.system, "work.agent.history.2"):
            return Reply(text="SUMMARY", input_tokens=size)
        if next(turns, None) is None:
            return Reply(text="done", input_tokens=size)
        return Reply(calls=[("wide", {"number": each}) for each in range(next(turns))], input_tokens=size)

    agent_runner.models.answer_with(answer)
    agent = callboard.Agent(name="looker", compression_threshold=12_000, compression_keep_last=2, can_ask_user=False)
    assert (await agent_runner.run("go", target=agent, tools=[wide])).output == "done"
    for request in parted(agent_runner)[0]:
        due: list[str] = []
        for message in request.json["messages"]:
            if message["role"] == "tool":
                due.remove(message["tool_call_id"])
            else:
                assert due == []
                due = [call["id"] for call in message.get("tool_calls") or ()]
        assert due == []


async def test_what_can_not_be_made_to_fit_ends_in_words_and_without_a_loop(agent_runner: AgentRunner) -> None:
    def answer(request: Request) -> Reply:
        size = len(request.body) // 4
        if has_message(request.system, "work.agent.history.2"):
            return Reply(text="SUMMARY", input_tokens=size)
        return Reply(text="say " * 4_000, calls=[("look", {"number": 1})], input_tokens=size)

    agent_runner.models.answer_with(answer)
    agent = callboard.Agent(name="looker", instructions="Look.", can_ask_user=False, max_turns=50)
    outcome = await windowed(agent_runner, 10_000, agent, look)
    assert (outcome.status, outcome.exit_code) == ("failed", 4)
    assert outcome.error is not None
    assert outcome.error.code == "window"
    told = outcome.error.message
    assert has_message(told, "work.agent.history.too_large", agent="looker")
    assert has_message(told, "work.agent.history.too_large", window=10000)
    assert has_message(told, "work.agent.history.too_large")
    asked, summaries = parted(agent_runner)
    assert len(summaries) <= 1
    assert max(len(request.body) // 4 for request in asked) <= 10_000


async def test_system_prompt_and_tools_are_called_too_large_only_once_they_were_counted(
    agent_runner: AgentRunner,
) -> None:
    agent = callboard.Agent(name="looker", instructions="rule " * 2_000, can_ask_user=False)
    outcome = await windowed(agent_runner, 1_000, agent, wide)  # whose provider counts 10
    assert outcome.output == "ok"
    agent_runner.models.answer_with(counting(3))
    outcome = await windowed(agent_runner, 1_000, agent, wide)
    assert outcome.error is not None
    assert outcome.error.code == "window"


async def test_a_prompt_over_the_window_ends_before_the_first_request(agent_runner: AgentRunner) -> None:
    agent_runner.models.answer_with(counting(1))
    agent = callboard.Agent(name="looker", can_ask_user=False)
    outcome = await windowed(agent_runner, 1_000, agent, wide, prompt="word " * 5_000)
    assert (outcome.exit_code, agent_runner.models.requests) == (4, [])


async def test_what_the_model_has_not_read_is_cut_where_it_would_not_fit_else(agent_runner: AgentRunner) -> None:
    agent_runner.models.answer_with(counting(3))
    agent = callboard.Agent(name="looker", can_ask_user=False)
    outcome = await windowed(agent_runner, 4_000, agent, wide)
    assert outcome.output == "done"
    asked, summaries = parted(agent_runner)
    assert summaries == []
    assert max(len(request.body) // 4 for request in asked) < 4_000


async def test_a_system_prompt_of_nine_tenths_of_the_window_leads_to_no_loop(agent_runner: AgentRunner) -> None:
    agent_runner.models.answer_with(counting(0))
    agent = callboard.Agent(name="looker", instructions="rule " * 7_200, can_ask_user=False)
    history: list[Turn] = []

    def keep(turns: Sequence[Turn]) -> None:
        history[:] = turns

    for number in range(50):
        outcome = await windowed(
            agent_runner, 10_000, agent, prompt=f"prompt {number} " * 20, history=tuple(history), on_history=keep
        )
        assert outcome.output == "done"
    asked, summaries = parted(agent_runner)
    assert len(asked) == 50
    assert len(summaries) <= 10
    assert max(len(request.body) // 4 for request in asked) < 10_500


def reading(request: Request) -> Reply:
    """Looks at a wide thing, then at a small one, then reads what was left out of the first."""
    size = len(request.body) // 4
    results = request.results
    if len(results) < 2:
        return Reply(calls=[("wide", {"number": len(results)})], input_tokens=size)
    if len(results) == 2:
        (path,) = re.findall(r"the whole text is in (\S+) \.\.\.\]", results[0])
        return Reply(calls=[("fs_cat", {"path": path}), ("fs_write", {"path": path, "contents": "mine"})])
    return Reply(text="done", input_tokens=size)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of callboard's state."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "callboard"


READER: dict[str, Any] = {"global_tools": ["fs_cat", "fs_write"], "can_ask_user": False, "compression_threshold": 8_000}


async def test_the_whole_result_is_in_a_file_that_the_model_can_read(agent_runner: AgentRunner, state: Path) -> None:
    there: list[list[Path]] = []
    agent_runner.models.answer_with(reading)
    outcome = await agent_runner.run(
        "go",
        target=callboard.Agent(name="reader", **READER),
        tools=[wide],
        yes=True,
        on_event=lambda event: there.append([*state.rglob("*.txt")]) if event.kind == "history.compacted" else None,
    )
    assert outcome.output == "done"
    assert len(there[0]) == 1
    *_, whole, written = agent_runner.models.requests[-1].results
    assert whole == wide(0)
    assert has_message(written, "work.tools.builtin.allowed_paths.AllowedPaths.find.5")
    assert [*(state / "results").iterdir()] == []


async def test_no_other_run_can_read_it(agent_runner: AgentRunner, state: Path) -> None:
    other = StoredResults(state / "results" / "run-other", temporary=True)
    (path,) = other.keep([("look", "secret")])
    agent_runner.models.script(Reply(calls=[("fs_cat", {"path": path})]), "done")
    await agent_runner.run("go", target=callboard.Agent(name="reader", **READER))
    assert has_message(
        agent_runner.models.requests[-1].results[0], "work.tools.builtin.allowed_paths.AllowedPaths.find.5"
    )


async def test_a_model_that_reads_no_files_is_told_of_none(agent_runner: AgentRunner, state: Path) -> None:
    agent_runner.models.answer_with(counting(3))
    agent = callboard.Agent(name="looker", can_ask_user=False, compression_threshold=8_000)
    await agent_runner.run("go", target=agent, tools=[wide])
    assert agent_runner.of("history.compacted")
    assert str(state) not in agent_runner.models.requests[-1].results[0]
    assert not state.exists() or not [*state.rglob("*.txt")]


async def test_what_a_session_has_cut_stays_with_it(agent_runner: AgentRunner, state: Path) -> None:
    agent_runner.plain(
        "global_tools: [fs_cat]\ncan_ask_user: false\ncompression_threshold: 8000\ncompression_keep_last: 20",
        name="clerk",
    )
    sessions = agent_runner.root.sessions
    hooks = RunCallbacks(tools=(function_tool(wide),))
    agent_runner.models.answer_with(counting(2))
    speak = partial(say, agent_runner.root, None, "work", agent="clerk", compress=False)
    await speak(RunRequest(target="clerk", prompt="look"), hooks)
    stored = await sessions.get(None, "work", agent="clerk")
    (path,) = (sessions.store.path(stored.id, "clerk").parent / "results").iterdir()
    assert path.read_text() == wide(1)
    agent_runner.models.answer_with(counting(1, "fs_cat", path=str(path)))
    await speak(RunRequest(target="clerk", prompt="read"), hooks)
    asked = agent_runner.models.requests[-1]
    assert asked.results[-1] == wide(1)
    assert [len(text) < 2_000 for text in asked.results] == [True, True, False]
    stored = await sessions.get(None, "work", agent="clerk")
    assert not stored.session.compressed_messages
    assert (await sessions.export(None, "work", agent="clerk")).count("## User") == 2
    await sessions.delete(None, "work", agent="clerk")
    assert not path.exists()


def test_a_count_from_before_a_shortening_counts_no_more() -> None:
    messages: list[Turn] = [UserTurn("w" * 4_000), AssistantTurn("a" * 4_000)] * 4
    compaction = Compaction(7_000, 2)
    compaction.count(TokenUsage(input_tokens=12_000), messages)
    found = compaction.step(messages)
    assert isinstance(found, SumUp)
    compaction.shorten(messages, found.cut, "short", "")
    assert compaction.size(messages) < 7_000
    assert compaction.step(messages) is None


CONTENTS = st.builds(lambda letter, times: letter * times, st.sampled_from("ab "), st.sampled_from([0, 9, 900, 9_000]))
EXCHANGES = st.tuples(
    st.booleans(), CONTENTS, st.lists(CONTENTS, max_size=3), st.sampled_from([None, 0.5, 1.0, 3.0]), st.booleans()
)


@given(
    st.lists(EXCHANGES, max_size=30), st.integers(1, 8), st.sampled_from([None, 3_000, 9_000]), st.integers(0, 2_000)
)
def test_whatever_is_said_it_stays_in_order_fits_and_is_summed_up_as_it_grows(
    exchanges: list[tuple[bool, str, list[str], float | None, bool]], keep: int, window: int | None, fixed: int
) -> None:
    """Each exchange: what people say, what the model says, what its calls give, what its provider counts."""
    bound = 2_500
    compaction = Compaction(bound, keep, window=window, fixed=fixed)
    messages: list[Turn] = [UserTurn("begin")]
    summaries, grown = 0, float(fixed)
    for number, (speaks, said, results, rate, obtainable) in enumerate(exchanges):
        if speaks or isinstance(messages[-1], AssistantTurn):
            messages.append(UserTurn(said))
        while (found := compaction.step(messages)) is not None and not isinstance(found, DoesNotFit):
            before, last = compaction.size(messages), messages[-1]
            if isinstance(found, SumUp):
                summaries += 1
                if obtainable:
                    compaction.shorten(messages, found.cut, "in short", "")
                    assert compaction.size(messages) < before
                else:
                    compaction.failed(messages, found.cut)
            else:
                compaction.cut(messages, found.places, ["/f"] * len(found.places))
                assert compaction.size(messages) < before
            assert type(messages[-1]) is type(last)
        _paired(messages)
        if isinstance(found, DoesNotFit):
            assert window is not None
            assert compaction.size(messages) > window
            break
        if window is not None:
            counted = any(each[3] for each in exchanges[:number])
            assert compaction.size(messages) <= window if counted else estimate(messages) <= 1.5 * window
        calls = tuple(ToolCall(id=f"{number}-{i}", name="look") for i in range(len(results)))
        sent = fixed + estimate(messages)
        messages.append(AssistantTurn(said, calls))
        compaction.count(TokenUsage(input_tokens=int(sent * rate) if rate else 0), messages)
        messages += [ToolTurn(call.id, "look", text) for call, text in zip(calls, results, strict=True)]
        grown += 3 * estimate([AssistantTurn(said), *messages[-len(results) - 1 :]]) + 3 * 9_000 / 4
    assert summaries <= 1 + grown / (bound / 5)


def _paired(messages: Sequence[Turn]) -> None:
    due: list[str] = []
    for turn in messages:
        if isinstance(turn, ToolTurn):
            assert turn.call == due.pop(0)
        else:
            assert due == []
            due = [call.id for call in turn.tool_calls] if isinstance(turn, AssistantTurn) else []
    assert due == []
