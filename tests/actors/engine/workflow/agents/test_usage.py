"""What a workflow uses is counted, wherever in it: in subgraphs, second thoughts, vectors of memories."""

from __future__ import annotations

import json

from support.fake_models import Reply, Request
from support.workflow_agents import Agents

from callboard.protocol.errors import BudgetReached, TurnsReached
from callboard.protocol.requests import Limits

TEAM = """
graph:
  start: [Team]
  nodes:
    - id: Team
      type: subgraph
      config:
        type: config
        config:
          start: [A]
          memory:
            - name: s
              type: simple
              config: {memory_path: s.memory, embedding: {provider: openai, model: e, base_url: 'BASE', api_key: k}}
          nodes:
            - id: A
              type: agent
              config:
                {fake}
                thinking: {type: reflection, config: {reflection_prompt: Better.}}
                memories: [{name: s, read: true, write: true}]
          edges: []
  edges: []
"""


def team(agents: Agents) -> str:
    fake = f"provider: openai\n                name: m\n                base_url: '{agents.models.openai_base}'"
    return TEAM.replace("{fake}", f"{fake}\n                api_key: k").replace("BASE", agents.models.openai_base)


def answer(request: Request) -> Reply | str:
    if not request.path.endswith("/embeddings"):
        return "an answer that is worth keeping"
    vectors = [{"index": i, "embedding": [1.0, 0.0]} for i, _ in enumerate(request.json["input"])]
    return Reply(raw=json.dumps({"data": vectors, "usage": {"prompt_tokens": 7, "total_tokens": 7}}).encode())


async def test_tokens_of_subgraphs_second_thoughts_and_memories_count(agents: Agents) -> None:
    agents.models.answer_with(answer)
    assert (await agents.run(team(agents))).error is None
    meter = agents.context.meter
    used = {model.rpartition(":")[2]: usage for model, usage in meter.models.items()}
    assert (used["m"].input_tokens, used["m"].output_tokens) == (20, 10)  # the answer, and the second thought
    assert used["e"].input_tokens == 7  # what was written
    assert meter.nodes["A"].output_tokens == 10
    await agents.run(team(agents))
    used = {model.rpartition(":")[2]: usage for model, usage in agents.context.meter.models.items()}
    assert used["e"].input_tokens > 7  # what was looked for, too


async def test_limits_of_the_run_hold_in_subgraphs(agents: Agents) -> None:
    agents.models.answer_with(answer)
    error = (await agents.run(team(agents), limits=Limits(max_turns=1))).error
    assert isinstance(error, TurnsReached)
    assert len(agents.models.requests) == 1
    error = (await agents.run(team(agents), limits=Limits(max_tokens=20))).error
    assert isinstance(error, BudgetReached)
