"""Steering over the websocket means the same to a graph, a workflow and a conversation: one driver plays them all."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing
from support.agent_runs import AgentRunner
from support.control_hub import Client
from support.fake_models import Reply

GRAPH = """
start: first
nodes:
  first: {type: input, question: "First?", on_error: continue, next: second}
  second: {type: input, question: "Second?", next: e}
  e: {type: end, output: over}
"""

WORKFLOW = """
graph:
  id: flow
  start: [First]
  end: [Second]
  nodes:
    - {id: First, type: human, config: {description: "First?"}, on_error: continue}
    - {id: Second, type: human, config: {description: "Second?"}}
  edges:
    - {from: First, to: Second}
"""


@pytest.fixture(params=["graph", "workflow", "conversation"])
async def begun(request: pytest.FixtureRequest, agent_runner: AgentRunner, client: Client) -> tuple[str, str, str]:
    """A run that waits at its first question of two: its id, the path of who decides, and of who asks."""
    kind = str(request.param)
    prompt = "begin"
    if kind == "graph":
        agent_runner.agent(GRAPH, "both")
        target, decides, asks = "both", "both", "first"
    elif kind == "workflow":
        file = agent_runner.config_dir.parent / "flow.yaml"
        file.write_text(WORKFLOW)
        target, decides, asks = str(file), "flow", "First"
    else:
        agent_runner.plain("instructions: ask\ncan_ask_user: true", "clerk")
        first, second = (Reply(calls=[("user__input", {"question": f"{nth}?"})]) for nth in ("First", "Second"))
        agent_runner.models.script(first, second, "over")
        target, decides, asks = "clerk", "clerk", "user__input"
    run = (await client.result("_run/start", target=target, prompt=prompt))["run"]["run"]
    await question(client, run, "First?")
    return run, f"/{run}/{decides}", f"/{run}/{decides}/{asks}"


async def question(client: Client, run: str, text: str) -> str:
    """The id of this question, once the run asks it."""
    while (await told(client, run))["status"] in ("running", "waiting"):
        for each in (await client.result("_question/list", run=run))["questions"]:
            if text in each["text"]:
                return str(each["id"])
        await trio.testing.wait_all_tasks_blocked(0.01)
    raise AssertionError(await told(client, run))


async def told(client: Client, run: str) -> dict[str, Any]:
    """What is known of the run."""
    known: dict[str, Any] = (await client.result("_run/get", run=run))["run"]
    return known


async def open_questions(client: Client, run: str) -> list[dict[str, Any]]:
    questions: list[dict[str, Any]] = (await client.result("_question/list", run=run))["questions"]
    return questions


async def ended(client: Client, run: str) -> dict[str, Any]:
    while (known := await told(client, run))["status"] in ("running", "waiting"):
        await trio.testing.wait_all_tasks_blocked(0.01)
    return known


async def test_what_is_paused_takes_its_results_and_begins_nothing(begun: tuple[str, str, str], client: Client) -> None:
    run, decides, _ = begun
    assert await client.result("_actor/pause", path=decides) == {"paused": True}
    await client.result("_question/answer", question=await question(client, run, "First?"), value="go")
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert await open_questions(client, run) == []
    assert await client.result("_actor/resume", path=decides) == {"resumed": True}
    await client.result("_question/answer", question=await question(client, run, "Second?"), value="go")
    assert (await ended(client, run))["status"] == "done"


async def test_one_that_is_cancelled_has_failed_and_what_comes_after_a_failure_comes(
    begun: tuple[str, str, str], client: Client
) -> None:
    run, _, asks = begun
    assert await client.result("_actor/cancel", path=asks) == {"cancelled": True}
    await client.result("_question/answer", question=await question(client, run, "Second?"), value="go")
    assert (await ended(client, run))["status"] == "done"


async def test_who_decides_can_be_cancelled_with_all_below_it(begun: tuple[str, str, str], client: Client) -> None:
    run, decides, _ = begun
    assert await client.result("_actor/cancel", path=decides) == {"cancelled": True}
    assert (await ended(client, run))["status"] == "failed"
    assert await open_questions(client, run) == []
