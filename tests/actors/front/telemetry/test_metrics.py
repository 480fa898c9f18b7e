"""What is measured, in which buckets, and with which labels."""

from __future__ import annotations

from typing import Any

from support.agent_runs import AgentRunner
from support.fake_models import Reply
from support.traced import Traced

from callboard.actors.front.telemetry.spans import MOST_NAMES, OPERATION, OTHER, TOKENS, Instruments, provider_and_model
from callboard.protocol.events import McpServerStarted, McpServerStopped
from callboard.supervisors import Actor


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


async def an_agent(agent_runner: AgentRunner) -> None:
    agent_runner.plain("instructions: hi\ncan_ask_user: false", name="kid")
    agent_runner.models.script(Reply(calls=[("add", {"a": 1, "b": 2})]), "three of them, I think")
    assert (await agent_runner.run("x", target="kid", tools=[add])).status == "done"


def labelled(points: list[Any]) -> list[dict[str, Any]]:
    return [dict(point.attributes) for point in points]


async def test_the_wait_between_two_tries_is_not_the_time_of_a_chunk(agent_runner: AgentRunner, traced: Traced) -> None:
    agent_runner.plain("instructions: hi\ncan_ask_user: false", name="kid")
    agent_runner.models.script(Reply("three of them, I think", drop="middle"), "three of them, I think")
    with traced.of(agent_runner.root):
        assert (await agent_runner.run("x", target="kid")).status == "done"
    deltas = agent_runner.kinds("llm.delta")
    (others,) = traced.points("gen_ai.client.operation.time_per_output_chunk")
    assert others.count == len(deltas) - 2


async def test_an_agents_run_is_measured_as_the_conventions_say(agent_runner: AgentRunner, traced: Traced) -> None:
    with traced.of(agent_runner.root):
        await an_agent(agent_runner)
    model = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "fake",
        "gen_ai.request.model": "model",
        "gen_ai.response.model": "model",
    }
    (chats,) = traced.points("gen_ai.client.operation.duration")
    assert (chats.count, dict(chats.attributes), chats.explicit_bounds) == (2, model, OPERATION)
    tokens = {point.attributes["gen_ai.token.type"]: point for point in traced.points("gen_ai.client.token.usage")}
    assert {type: (point.sum, point.explicit_bounds) for type, point in tokens.items()} == {
        "input": (20, TOKENS),
        "output": (10, TOKENS),
    }
    assert labelled([tokens["input"]]) == [{**model, "gen_ai.token.type": "input"}]
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "kid"}
    for name, total in (("duration", None), ("inference_calls", 2), ("tool_calls", 1)):
        (point,) = traced.points(f"gen_ai.invoke_agent.{name}")
        assert agent.items() <= dict(point.attributes).items()
        assert total in (None, point.sum)
    (tool,) = traced.points("gen_ai.execute_tool.duration")
    assert dict(tool.attributes) == {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add"}
    (first,) = traced.points("gen_ai.client.operation.time_to_first_chunk")
    (others,) = traced.points("gen_ai.client.operation.time_per_output_chunk")
    deltas = agent_runner.kinds("llm.delta")
    assert (first.count, others.count) == (1, len(deltas) - 1)
    assert traced.points("gen_ai.workflow.duration") == []


async def test_a_graph_is_a_workflow_and_a_failure_has_its_type(agent_runner: AgentRunner, traced: Traced) -> None:
    agent_runner.agent("start: a\nnodes:\n  a: {type: llm, prompt: hi, next: z}\n  z: {type: end}")
    agent_runner.models.script(Reply(status=401, error="no"))
    with traced.of(agent_runner.root):
        await agent_runner.run("x")
    (workflow,) = traced.points("gen_ai.workflow.duration")
    assert workflow.attributes["gen_ai.workflow.name"] == "g"
    (chat,) = traced.points("gen_ai.client.operation.duration")
    assert chat.attributes["error.type"] == "credentials"
    assert traced.points("gen_ai.client.token.usage") == []


async def test_no_label_holds_the_id_of_a_run(agent_runner: AgentRunner, traced: Traced) -> None:
    with traced.of(agent_runner.root):
        await an_agent(agent_runner)
    names = ["gen_ai.client.operation.duration", "gen_ai.invoke_agent.duration", "gen_ai.execute_tool.duration"]
    labels = [label for name in names for labels in labelled(traced.points(name)) for label in labels.values()]
    assert labels
    assert not [label for label in labels if "run-" in str(label)]


async def test_connections_to_mcp_servers_are_measured_when_they_end(agent_runner: AgentRunner, traced: Traced) -> None:
    started = McpServerStarted(server="s", version="1", protocol="2025-06-18", seconds=0.1, tools=1)

    async def server(me: Actor) -> None:
        me.emit(started)
        me.emit(McpServerStopped(server="s"))

    async def dies(me: Actor) -> None:
        me.emit(started)
        raise RuntimeError("gone")

    with traced.of(agent_runner.root):
        await agent_runner.root.kernel.spawn(server, link=False).wait()
        await agent_runner.root.kernel.spawn(dies, link=False).wait()
    points = {point.attributes.get("error.type"): point.count for point in traced.points("mcp.client.session.duration")}
    assert points == {None: 1, "mcp_lost": 1}


def test_a_label_has_only_so_many_values_whatever_strangers_say(traced: Traced) -> None:
    measured = Instruments(traced.meters.get_meter("x"))
    told = [measured.bounded({"gen_ai.tool.name": f"tool-{number}"}) for number in range(MOST_NAMES + 50)]
    assert len({labels["gen_ai.tool.name"] for labels in told}) == MOST_NAMES + 1
    assert told[-1] == {"gen_ai.tool.name": OTHER}
    assert measured.bounded({"gen_ai.tool.name": "tool-1"}) == {"gen_ai.tool.name": "tool-1"}


def test_providers_have_the_conventions_names() -> None:
    assert provider_and_model("claude:opus") == ("anthropic", "opus")
    assert provider_and_model("openai:gpt:4") == ("openai", "gpt:4")
    assert provider_and_model("mine") == ("mine", "mine")
