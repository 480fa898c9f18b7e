"""Functions with a `callboard.Context`: what they know of their call, and the agents that they run."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request

import callboard
from callboard.actors.work.tools.functions import function_tool
from callboard.protocol.errors import UsageError
from callboard.protocol.requests import Limits
from callboard.supervisors import Actor

AGENT = callboard.Agent(name="clerk", instructions="Count.")


@dataclass
class Deps:
    table: dict[str, int]


async def test_a_context_has_the_dependencies_and_ids_of_its_call(agent_runner: AgentRunner) -> None:
    seen: list[callboard.Context[Deps]] = []

    async def look_up(ctx: callboard.Context[Deps], key: str) -> int:
        """Looks a number up."""
        seen.append(ctx)
        return ctx.deps.table[key]

    agent_runner.models.script(Reply(calls=[("look_up", {"key": "a"})]), "7")
    outcome = await agent_runner.run("a?", target=AGENT, tools=[look_up], deps=Deps({"a": 7}))
    assert outcome.final == "7"
    assert agent_runner.models.requests[1].results == ["7"]
    offered = agent_runner.models.requests[0].json["tools"][0]["function"]
    assert list(offered["parameters"]["properties"]) == ["key"]
    (started,) = [event for event in agent_runner.events if event.kind == "tool.call.started"]
    assert (seen[0].run_id, seen[0].call_id, seen[0].agent) == (outcome.run_id, started.id, "clerk")


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_an_agent_that_a_function_runs_is_a_child_of_the_run(agent_runner: AgentRunner, kind: str) -> None:
    worker = callboard.Agent(name="worker", instructions="Work.", result=list[int])
    results: list[callboard.Outcome[list[int]]] = []

    async def ask(ctx: callboard.Context[None]) -> str:
        results.append(await ctx.run(worker, "numbers?"))
        return str(results[0].unwrap())

    def ask_in_thread(ctx: callboard.Context[None]) -> str:
        results.append(ctx.run_sync(worker, "numbers?"))
        return str(results[0].unwrap())

    tool = function_tool(ask if kind == "async" else ask_in_thread, name="ask")
    agent_runner.models.script(Reply(calls=[("ask", {})]), '{"result": [1, 2]}', "done")
    outcome = await agent_runner.run("go", target=AGENT, tools=[tool])
    assert outcome.status == "done"
    assert agent_runner.models.requests[2].results == ["[1, 2]"]
    assert results[0].result == [1, 2]
    assert outcome.turns == 3
    assert sum(used.input_tokens for used in outcome.usage.values()) == 30
    assert [(child.agent, child.status, child.turns) for child in outcome.children] == [("worker", "completed", 1)]
    (actor,) = [e.actor for e in agent_runner.events if e.kind == "agent.started" and e.data.agent == "worker"]
    assert actor.startswith(f"/{outcome.run_id}/clerk/")
    assert actor.endswith("/worker")


async def test_what_children_use_counts_for_the_limits_of_the_run(agent_runner: AgentRunner) -> None:
    worker = callboard.Agent(name="worker", instructions="Work.")
    statuses: list[str] = []

    async def ask(ctx: callboard.Context[None]) -> str:
        for _ in range(5):
            outcome = await ctx.run(worker, "go")
            statuses.append(outcome.status)
        return "asked"

    agent_runner.models.answer_with(
        lambda request: "ok" if request.system.startswith("Work") else Reply(calls=[("ask", {})])
    )
    outcome = await agent_runner.run("go", target=AGENT, tools=[ask], limits=Limits(max_turns=3))
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.code == "max_turns"
    assert statuses == ["done", "done", "failed", "failed", "failed"]
    assert len(agent_runner.models.requests) == 3


async def test_children_that_fail_do_not_raise_but_unwrap_does(agent_runner: AgentRunner) -> None:
    errors: list[callboard.OutcomeError] = []

    async def noop() -> str:
        return ""

    worker = callboard.Agent(name="worker", instructions="Work.", max_turns=1, tools=[noop])

    async def ask(ctx: callboard.Context[None]) -> str:
        outcome = await ctx.run(worker, "go")
        with pytest.raises(callboard.OutcomeError) as caught:
            outcome.unwrap()
        errors.append(caught.value)
        return "failed"

    def answer(request: Request) -> Reply | str:
        if request.system.startswith("Work"):
            return Reply(calls=[("noop", {})])
        return request.results[-1] if request.results else Reply(calls=[("ask", {})])

    agent_runner.models.answer_with(answer)
    outcome = await agent_runner.run("go", target=AGENT, tools=[ask])
    assert outcome.final == "failed"
    assert errors[0].code == "max_turns"
    assert errors[0].outcome.status == "failed"
    assert outcome.children[0].status == "failed"


async def test_a_cancelled_call_ends_the_agent_that_it_runs(agent_runner: AgentRunner) -> None:
    worker = callboard.Agent(name="worker", instructions="Work.")
    began = trio.Event()

    async def ask(ctx: callboard.Context[None]) -> str:
        outcome = await ctx.run(worker, "go")
        return outcome.final

    def answer(request: Request) -> Reply:
        if request.system.startswith("Work"):
            began.set()
            return Reply("late", hold=trio.Event())
        return Reply(calls=[("ask", {})])

    agent_runner.models.answer_with(answer)
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            await agent_runner.run("go", target=AGENT, tools=[ask])

        nursery.start_soon(run)
        await began.wait()
        nursery.cancel_scope.cancel()
    assert agent_runner.events[-1].kind == "run.cancelled"
    assert agent_runner.events[-1].data.outcome["children"][0]["status"] == "cancelled"


async def test_agents_run_each_other_no_deeper_than_they_may(agent_runner: AgentRunner) -> None:
    async def deeper(ctx: callboard.Context[None]) -> str:
        outcome = await ctx.run(nested, "go")
        return outcome.final

    nested = callboard.Agent(name="nested", instructions="Nested.", tools=[deeper])
    agent_runner.models.answer_with(
        lambda request: request.results[-1] if request.results else Reply(calls=[("deeper", {})])
    )
    outcome = await agent_runner.run("go", target=nested)
    assert outcome.status == "done"
    assert "depth" in outcome.final


async def test_a_tool_that_no_agent_calls_has_a_context_without_one(me: Actor) -> None:
    async def look(ctx: callboard.Context[Any]) -> str:
        with pytest.raises(UsageError):
            await ctx.run(AGENT, "go")
        return ctx.agent

    assert await function_tool(look).run(me, {}) == ""


# --- errors -----------------------------------------------------------------------------------------------------------


class Broken(Exception):
    """An error of a program."""


async def test_an_error_is_logged_with_its_traceback_and_named_in_the_event(
    agent_runner: AgentRunner, caplog: pytest.LogCaptureFixture
) -> None:
    def look_up(key: str) -> int:
        return {}[key]  # type: ignore[no-any-return] # the mistake that the test is about

    agent_runner.models.script(Reply(calls=[("look_up", {"key": "nope"})]), "sorry")
    with caplog.at_level(logging.ERROR, "callboard.tools"):
        outcome = await agent_runner.run("go", target=AGENT, tools=[look_up])
    assert outcome.status == "done"
    (finished,) = agent_runner.of("tool.call.finished")
    assert finished.error == "KeyError: 'nope'"
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[0] is KeyError
    assert "in look_up" in str(logging.Formatter().formatException(record.exc_info))


async def test_an_error_of_a_tool_that_raises_fails_the_run(agent_runner: AgentRunner) -> None:
    @callboard.tool(on_error="raise")
    async def pay(amount: int) -> str:
        raise Broken(f"{amount} is too much")

    agent_runner.models.script(Reply(calls=[("pay", {"amount": 3})]), "never")
    outcome = await agent_runner.run("go", target=AGENT, tools=[pay])
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.code == "tool_raised"
    assert "Broken: 3 is too much" in outcome.error.message
    assert len(agent_runner.models.requests) == 1


async def test_invalid_arguments_are_told_even_if_errors_raise(agent_runner: AgentRunner) -> None:
    @callboard.tool(on_error="raise")
    async def pay(amount: int) -> str:
        return str(amount)

    agent_runner.models.script(
        Reply(calls=[("pay", {"amount": "much"})]), Reply(calls=[("pay", {"amount": 3})]), "paid"
    )
    outcome = await agent_runner.run("go", target=AGENT, tools=[pay])
    assert (outcome.status, outcome.final) == ("done", "paid")


async def test_a_refused_call_says_where_its_tool_comes_from(agent_runner: AgentRunner) -> None:
    async def pay(amount: int) -> str:
        return str(amount)

    agent_runner.models.script(Reply(calls=[("pay", {"amount": "much"})]), "sorry")
    await agent_runner.run("go", target=AGENT, tools=[pay])
    (started,) = agent_runner.of("tool.call.started")
    assert started.origin == "function"
