"""What a run is given to look its prompt up in, and what it counts for that."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from support.agent_runs import AgentRunner
from support.fake_models import FakeModels, Reply, Request
from support.messages import has_message

import callboard
from callboard.actors.work.knowledge.embed.local import PULLED_AS
from callboard.actors.work.models import weights
from callboard.protocol.errors import UsageError

ECHO = 'start: e\nnodes:\n  e: {type: end, output: "{{initial_prompt}}"}'


def shelve(agent_runner: AgentRunner, name: str, **notes: str) -> None:
    """A knowledge base with a name of its own."""
    home = agent_runner.config_dir / "knowledge"
    (home / name).mkdir(parents=True)
    for note, text in notes.items():
        (home / name / f"{note}.txt").write_text(text)
    (home / f"{name}.yaml").write_text(f"documents: [{name}/]\n")


async def test_a_graph_finds_named_bases_in_its_prompt(knowing: AgentRunner) -> None:
    shelve(knowing, "kitchen", cake="A cake needs flour")
    shelve(knowing, "sky", moon="The moon needs no flour", rings="rings of stones")
    knowing.agent(ECHO)
    output = (await knowing.run("flour", knowledge=["kitchen", "sky"])).output
    first, second = output.index("[Source: kitchen/cake.txt]"), output.index("[Source: sky/moon.txt]")
    assert first < second
    assert output.endswith("\n\nflour")


async def test_a_base_that_is_named_twice_is_asked_once(knowing: AgentRunner) -> None:
    shelve(knowing, "kitchen", cake="A cake needs flour")
    knowing.agent(ECHO)
    output = (await knowing.run("flour", knowledge=["kitchen", "kitchen"])).output
    assert output.count("A cake needs flour") == 1


async def test_an_agent_with_the_tool_searches_named_bases_itself(knowing: AgentRunner) -> None:
    shelve(knowing, "kitchen", cake="A cake needs flour")
    knowing.plain("instructions: x\nknowledge: tool", name="clerk")
    knowing.models.script(Reply(calls=[("knowledge__search", {"query": "flour"})]), "Flour.")
    await knowing.run("what?", "clerk", knowledge=["kitchen"])
    first, second = (request.json["messages"][-1]["content"] for request in knowing.models.requests)
    assert first == "what?"
    assert "A cake needs flour" in second


async def test_attached_files_stand_before_the_prompt(knowing: AgentRunner, tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("Buy flour.")
    knowing.agent(ECHO)
    output = (await knowing.run("what?", files=[str(tmp_path / "note.md")])).output
    assert "Buy flour." in output
    assert output.endswith("\n\nwhat?")


async def test_an_agent_needs_no_prompt_where_files_are_attached(knowing: AgentRunner, tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("Buy flour.")
    knowing.plain("instructions: x", name="clerk")
    knowing.models.script("ok")
    assert (await knowing.run("", "clerk", files=[str(tmp_path / "note.md")])).status == "done"
    assert knowing.models.requests[0].prompt.endswith("</document>")


@pytest.mark.parametrize(
    "given", [{"knowledge": ["kitchne"]}, {"files": ["/no/such/file"]}, {"files": ["https://x/**"]}]
)
async def test_unknown_names_are_wrong_usage_before_the_run_starts(
    knowing: AgentRunner, given: dict[str, list[str]]
) -> None:
    shelve(knowing, "kitchen", cake="A cake needs flour")
    knowing.agent(ECHO)
    with pytest.raises(UsageError):
        await knowing.run("flour", **given)
    assert knowing.events == []


async def test_a_run_without_knowledge_opens_nothing(knowing: AgentRunner) -> None:
    knowing.agent(ECHO)
    await knowing.run("flour")
    assert knowing.root._knowledge is None


async def test_tokens_for_vectors_count_in_the_run_and_can_end_it(
    tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: Request) -> Reply:
        rows = [{"index": n, "embedding": [1.0, float(len(text))]} for n, text in enumerate(request.json["input"])]
        usage = {"prompt_tokens": 40, "total_tokens": 40}
        return Reply(raw=json.dumps({"object": "list", "data": rows, "usage": usage}).encode())

    fake_model.answer_with(answer)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    agent_runner = AgentRunner(fake_model.config_dir(tmp_path / "config"), fake_model, None)
    look = "type: rag, documents: [a.md], embedding_model: 'fake:vectors', state_updates: {x: '{{output.context}}'}"
    home = agent_runner.agent(
        f"start: one\nnodes:\n  one: {{{look}, query: '{{{{initial_prompt}}}} one', next: two}}\n"
        f"  two: {{{look}, query: '{{{{initial_prompt}}}} two', next: e}}\n  e: {{type: end, output: '{{{{x}}}}'}}"
    )
    (home / "a.md").write_text("flour")
    async with callboard.Root(config_dir=agent_runner.config_dir) as agent_runner.root:
        outcome = await agent_runner.run("first")
        assert (outcome.output, outcome.turns) == ("[Source: a.md]\nflour", 0)
        assert outcome.usage["fake:vectors"].input_tokens == 120  # the chunk, which the cache knows after that; queries
        outcome = await agent_runner.run("second", limits=callboard.Limits(max_tokens=39))
    assert (outcome.status, outcome.error.code) == ("failed", "budget")
    assert has_message(
        outcome.error.message,
        "work.spending.accounts.Account._check_spent.2",
        name="…'two'…",
        tokens=40,
        max_tokens=39,
        _key="`max_tokens`, --max-tokens",
    )


RAG = """\
start: ask
nodes:
  ask: {type: rag, documents: [notes.md], query: "{{initial_prompt}}", state_updates: {found: "{{output}}"}, next: e}
  e: {type: end, output: "{{found}}"}
"""


@pytest.mark.parametrize("approve_all", [True, False])
async def test_a_missing_extra_is_named_before_weights_are_fetched_or_asked_about(
    agent_runner: AgentRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approve_all: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    unusable = msgspec.structs.replace(weights.KNOWN[PULLED_AS], module="callboard_no_such_module")
    monkeypatch.setitem(weights.KNOWN, PULLED_AS, unusable)
    home = agent_runner.agent(RAG)
    (home / "notes.md").write_text("The sky is blue.")
    outcome = await agent_runner.run("sky", approve_all=approve_all)
    assert outcome.error is not None
    assert has_message(outcome.error.message, "work.models.weights.require_extra")
    assert "question.asked" not in [event.kind for event in agent_runner.events]
    assert not list((tmp_path / "cache").rglob("*wordllama*"))
