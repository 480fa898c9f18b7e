"""What knowledge asks of models is charged to the innermost that has limits: an agent or a graph, then the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request

import callboard

GRAPH = """
start: look
nodes:
  look:
    type: rag
    documents: [facts.txt]
    embedding_model: fake:vectors
    chunk_size: 200
    chunk_overlap: 20
    state_updates: {found: "{{output.context}}"}
    next: e
  e: {type: end, output: "{{found}}"}
"""
CALLER = """
start: ask
nodes:
  ask: {type: agent, agent: g, prompt: what is the sky?, on_error: continue, next: e}
  e: {type: end, output: "went on"}
"""
TOKENS = 15
"""Of each request for vectors."""


def answer(request: Request) -> Reply:
    rows = [{"index": number, "embedding": [3.0, 4.0]} for number, _ in enumerate(request.json["input"])]
    usage = {"prompt_tokens": TOKENS, "total_tokens": TOKENS}
    return Reply(raw=json.dumps({"data": rows, "usage": usage}).encode())


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def library(agent_runner: AgentRunner, limits: str = "") -> None:
    (agent_runner.agent(limits + GRAPH) / "facts.txt").write_text("the sky is green")
    agent_runner.models.answer_with(answer)


async def test_a_graph_with_limits_of_its_own_pays_for_what_it_looks_up(agent_runner: AgentRunner) -> None:
    library(agent_runner, f"limits: {{max_tokens: {TOKENS - 1}}}")
    outcome = await agent_runner.run("what is the sky?")
    assert (outcome.status, len(agent_runner.models.requests)) == ("failed", 1)
    assert f"agent 'g' has used {TOKENS} of its {TOKENS - 1} tokens" in str(outcome.error)
    library(agent_runner, f"limits: {{max_tokens: {2 * TOKENS}}}")
    outcome = await agent_runner.run("what is the sky?")
    assert outcome.status == "done", outcome.error
    assert "the sky is green" in str(outcome.output)


async def test_its_limits_end_it_alone_and_its_callers_go_on(agent_runner: AgentRunner) -> None:
    library(agent_runner, f"limits: {{max_tokens: {TOKENS - 1}}}")
    agent_runner.agent(CALLER, name="caller")
    outcome = await agent_runner.run("go", target="caller", limits=callboard.Limits(max_tokens=1_000))
    assert (outcome.status, outcome.output) == ("done", "went on"), outcome.error
    assert len(agent_runner.models.requests) == 1, "the graph could not look anything up"


async def test_what_has_no_limits_is_charged_to_the_run(agent_runner: AgentRunner) -> None:
    library(agent_runner)
    outcome = await agent_runner.run("what is the sky?", limits=callboard.Limits(max_tokens=TOKENS - 1))
    assert outcome.status == "failed"
    assert f"the run has used {TOKENS} of its {TOKENS - 1} tokens" in str(outcome.error)
