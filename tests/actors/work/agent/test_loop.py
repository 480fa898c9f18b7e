"""The agent loop over the wire: OpenAI's and Anthropic's formats, whole and in pieces."""

from __future__ import annotations

import trio
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request
from support.messages import has_message

import callboard
from callboard.protocol.errors import TurnsReached


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


AGENT = callboard.Agent(name="clerk", instructions="Count.", can_ask_user=False)


async def test_a_tool_is_called_and_its_result_told(wired: AgentRunner) -> None:
    wired.models.script(Reply(text="I add.", calls=[("add", {"a": 2, "b": 3})]), "It is 5.")
    outcome = await wired.run("2+3?", target=AGENT, tools=[add])
    assert outcome.output == "I add.\nIt is 5."
    assert wired.models.requests[1].results == ["5"]
    assert (outcome.turns, outcome.tool_calls) == (2, 1)
    wired.check_stream()


async def test_several_calls_of_one_turn_run_at_once(wired: AgentRunner) -> None:
    waiting = trio.Event()

    async def first() -> str:
        await waiting.wait()
        return "first"

    async def second() -> str:
        waiting.set()
        return "second"

    wired.models.script(Reply(calls=[("first", {}), ("second", {})]), "done")
    outcome = await wired.run("go", target=AGENT, tools=[first, second])
    assert outcome.output == "done"
    assert wired.models.requests[1].results == ["first", "second"]


async def test_malformed_arguments_are_told_and_the_run_goes_on(wired: AgentRunner) -> None:
    wired.models.script(Reply(calls=[("add", '{"a": 2, "b":')]), Reply(calls=[("add", {"a": 1, "b": 1})]), "2")
    outcome = await wired.run("1+1?", target=AGENT, tools=[add])
    assert outcome.output == "2"
    told = wired.models.requests[2].results
    assert has_message(told[0], "work.tools.checking.Checks.arguments")
    assert told[1] == "2"


async def test_an_unknown_tool_is_told_and_the_run_goes_on(wired: AgentRunner) -> None:
    wired.models.script(Reply(calls=[("substract", {"a": 2})]), "sorry")
    outcome = await wired.run("2-1?", target=AGENT, tools=[add])
    assert outcome.output == "sorry"
    assert "Unknown tool 'substract'" in wired.models.requests[1].results[0]


async def test_silent_tools_do_not_end_the_conversation(wired: AgentRunner) -> None:
    def silent() -> None: ...

    wired.models.script(Reply(calls=[("silent", {})]), "done")
    assert (await wired.run("go", target=AGENT, tools=[silent])).output == "done"
    assert wired.models.requests[1].results == ["null"]


async def test_a_connection_that_breaks_in_the_middle_is_tried_again(
    wired: AgentRunner, autojump_clock: trio.testing.MockClock
) -> None:
    played = []

    async def note() -> str:
        played.append(1)
        return "noted"

    wired.models.script(
        Reply(text="I will note", calls=[("note", {})], drop="middle"), Reply(calls=[("note", {})]), "done"
    )
    outcome = await wired.run("go", target=AGENT, tools=[note])
    assert (outcome.status, outcome.output) == ("done", "done")
    assert played == [1]
    assert "llm.retry" in wired.kinds("llm")


async def test_an_endless_loop_of_calls_is_ended_with_a_clear_error(agent_runner: AgentRunner) -> None:
    turn = 0

    def answer(request: Request) -> Reply:
        nonlocal turn
        turn += 1
        return Reply(calls=[("add", {"a": turn, "b": 1})])

    agent_runner.models.answer_with(answer)
    outcome = await agent_runner.run("go", target=callboard.Agent(name="x", max_turns=5), tools=[add])
    assert (outcome.status, outcome.exit_code) == ("failed", 4)
    assert outcome.error is not None
    assert has_message(
        outcome.error.message, "engine.conversation.decider.ConversationDecider._turn", bound="max_turns", max_turns=5
    )
    assert turn == 5
    assert outcome.error.code == TurnsReached.code


async def test_a_limit_of_the_run_ends_it(agent_runner: AgentRunner) -> None:
    agent_runner.models.answer_with(
        lambda request: Reply(text="more", calls=[("add", {"a": len(request.body), "b": 1})])
    )
    outcome = await agent_runner.run("go", target=AGENT, tools=[add], limits=callboard.Limits(max_turns=3))
    assert (outcome.status, outcome.exit_code) == ("failed", 4)
    assert outcome.turns == 3


async def test_a_hostile_reply_leaves_a_living_run(agent_runner: AgentRunner) -> None:
    many = {f"k{i}": i for i in range(10_000)}
    agent_runner.models.script(Reply(calls=[("x" * 1_000_000, {}), ("add", many), ("add", {"a": 1, "b": 2})]), "done")
    outcome = await agent_runner.run("go", target=AGENT, tools=[add])
    assert outcome.output == "done"
    assert agent_runner.models.requests[1].results[2] == "3"
    assert len(agent_runner.models.requests[1].body) < 300_000
