"""Whoever works for a run stops with it, however deep: models, people, code, servers, in units of a subgraph."""

from __future__ import annotations

import sys

import pytest
import trio
from support.descendants import living, name_of
from support.fake_models import Reply, Request
from support.mcp_processes import SERVERS
from support.waiting import until
from support.workflow_agents import RETRIES, Agents

UNITS = 3


def deep() -> str:
    """A subgraph per unit, in which code, a model, a server's tool and a person are all waited for."""
    server = f"{{command: '{sys.executable}', args: ['-S', '{SERVERS / 'scripted.py'}', '--legacy']}}"
    lines = "\\n".join(str(i) for i in range(UNITS))
    code = "import subprocess, time; subprocess.Popen(['sleep', '77']); time.sleep(60)"
    return f"""
graph:
  start: [S]
  nodes:
    - {{id: S, type: literal, config: {{content: "{lines}"}}}}
    - id: T
      type: subgraph
      config:
        type: config
        config:
          start: [Code, Model, Tool, Person]
          end: []
          nodes:
            - {{id: Code, type: python, config: {{code: "{code}"}}}}
            - {{id: Model, type: agent, config: {{{{fake}}, name: m, role: hold}}}}
            - {{id: Person, type: human, config: {{}}}}
            - id: Tool
              type: agent
              config: {{{{fake}}, name: m, role: call, tooling: [{{type: mcp_local, config: {server}}}]}}
          edges: []
  edges:
    - {{from: S, to: T, dynamic: {{type: map, config: {{split_type: lines}}}}}}
"""


async def test_cancelling_reaches_everybody_below_units_of_a_subgraph(agents: Agents, nursery: trio.Nursery) -> None:
    def answer(request: Request) -> Reply:
        return (
            Reply(hold=trio.Event())
            if request.system == "hold"
            else Reply(calls=[("slow", {"seconds": 60})], text="slowly")
        )

    agents.models.answer_with(answer)
    kernel = agents.root.kernel
    before = living(kernel)

    def all_at_work() -> bool:
        asked = len(agents.of("question.asked"))
        calls = [data for data in agents.of("tool.call.started") if "slow" in data.tool]
        if len(agents.models.requests) < 2 * UNITS or not asked == len(calls) == UNITS:
            return False
        return len([child for child in living(kernel) if name_of(child) == "sleep"]) == UNITS

    async def cancel() -> None:
        await until(all_at_work, 60)
        agents.ref.cancel()

    nursery.start_soon(cancel)
    with trio.fail_after(60):
        result = await agents.run(deep())
        assert sorted(result.order) == sorted(["S", "T", *["Code", "Model", "Tool", "Person"] * UNITS])
        await agents.models.until(lambda models: models.cut == UNITS)
        await until(lambda: living(kernel) <= before)


# --- what errors end a run with ---------------------------------------------------------------------------

ONE = "graph: {start: [A], nodes: [{id: A, type: agent, config: {{fake}, name: m, RETRY}}]}".replace("RETRY", RETRIES)


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [(400, "model", 1), (401, "credentials", 3), (404, "model", 1), (500, "upstream", 6), (503, "upstream", 6)],
)
async def test_an_error_of_a_node_keeps_its_kind(status: int, code: str, exit_code: int, agents: Agents) -> None:
    agents.models.answer_with(lambda _: Reply(status=status, error="no"))
    error = (await agents.run(ONE)).error
    assert error is not None
    assert (error.code, error.exit_code, error.node) == (code, exit_code, "A")
