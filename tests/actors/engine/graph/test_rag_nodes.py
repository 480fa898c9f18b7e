"""rag nodes: what they look up, where their bases come from, and how they fail."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import trio
from support.agent_runs import AgentRunner
from support.messages import fragment, has_message

import callboard
from callboard.actors.work.knowledge.service import Knowledge
from callboard.protocol.errors import UpstreamError

GRAPH = """
start: look
nodes:
  look:
    type: rag
    documents: [./notes/]
    query: "{{initial_prompt}}"
    state_updates: {found: "{{output}}", context: "{{output.context}}", source: "{{output.sources[0]}}"}
    next: e
  e: {type: end, output: "{{context}}|{{source}}"}
"""


def write(home: Path, **notes: str) -> Path:
    (home / "notes").mkdir(exist_ok=True)
    for name, text in notes.items():
        (home / "notes" / f"{name}.md").write_text(text)
    return home


def library(agent_runner: AgentRunner, graph: str = GRAPH, name: str = "g") -> Path:
    return write(
        agent_runner.agent(graph, name=name),
        cake="# Cake\n\nA cake needs flour and eggs.\n",
        moon="# Moon\n\nThe moon is far away.\n",
    )


async def test_a_node_finds_what_its_documents_say(knowing: AgentRunner) -> None:
    library(knowing)
    outcome = await knowing.run("flour eggs")
    assert outcome.output == "[Source: notes/cake.md]\n# Cake\n\nA cake needs flour and eggs.|notes/cake.md"
    assert not knowing.warnings


async def test_the_output_is_context_sources_and_chunks(knowing: AgentRunner) -> None:
    library(knowing, GRAPH.replace('"{{output}}"', '{raw: "{{output}}"}'))
    outcome = await knowing.run("flour")
    found = outcome.state["found"]
    assert set(found) == {"context", "sources", "chunks"}
    [chunk] = found["chunks"]
    assert set(chunk) == {"text", "source", "score", "lines"}
    assert (chunk["text"], chunk["source"], chunk["lines"]) == (
        "# Cake\n\nA cake needs flour and eggs.",
        "notes/cake.md",
        [1, 3],
    )
    assert 0 < chunk["score"] <= 1


async def test_a_base_is_built_beside_its_agent_once(knowing: AgentRunner) -> None:
    home = library(knowing)
    await knowing.run("flour")
    await knowing.run("moon")
    assert (home / "look.kb" / "current").is_file()
    [built] = knowing.of("knowledge.built")
    assert (built.what, built.added, built.chunks) == (
        fragment("work.knowledge.recipe.recipes_of", id="look", name="g"),
        2,
        2,
    )
    assert [(found.what, found.query, found.sources) for found in knowing.of("knowledge.retrieved")] == [
        (fragment("work.knowledge.recipe.recipes_of", id="look", name="g"), 5, ("notes/cake.md",)),
        (fragment("work.knowledge.recipe.recipes_of", id="look", name="g"), 4, ("notes/moon.md",)),
    ]


async def test_what_finds_nothing_is_empty(knowing: AgentRunner) -> None:
    library(knowing)
    outcome = await knowing.run("   ")
    assert (outcome.status, outcome.state["context"]) == ("done", "")


async def test_top_k_bounds_what_is_found(knowing: AgentRunner) -> None:
    home = library(knowing, GRAPH.replace("query:", "top_k: 1\n    query:"))
    write(home, bread="Bread needs flour too.\n", pie="A pie needs flour as well.\n")
    await knowing.run("flour")
    assert [found.chunks for found in knowing.of("knowledge.retrieved")] == [1]


async def test_a_changed_file_is_told_and_the_base_used_as_it_was(knowing: AgentRunner) -> None:
    home = library(knowing)
    await knowing.run("flour")
    write(home, cake="A cake needs nothing.", rings="Saturn has rings.")
    (home / "notes" / "moon.md").unlink()
    outcome = await knowing.run("flour")
    assert "A cake needs flour and eggs." in outcome.output
    [warned] = [each for each in knowing.of("run.warning") if each.code == "knowledge_stale"]
    assert has_message(
        warned.message,
        "work.knowledge.run_knowledge._warn_stale.2",
        what=fragment("work.knowledge.recipe.recipes_of", id="look", name="g"),
        command="build",
        target="g:look",
    )
    assert warned.node == "look"


async def test_rebuilding_takes_what_the_files_say_now(knowing: AgentRunner) -> None:
    home = library(knowing)
    await knowing.run("flour")
    write(home, cake="A cake needs eggs alone.")
    outcome = await knowing.run("cake", rebuild_knowledge=True)
    assert "eggs alone" in outcome.output
    assert not [each for each in knowing.of("run.warning") if each.code == "knowledge_stale"]


async def test_other_chunk_sizes_are_told(knowing: AgentRunner) -> None:
    home = library(knowing)
    await knowing.run("flour")
    (home / "graph.yaml").write_text((home / "graph.yaml").read_text().replace("query:", "chunk_size: 400\n    query:"))
    await knowing.run("flour")
    [warned] = [each for each in knowing.of("run.warning") if each.code == "knowledge_stale"]
    assert has_message(
        warned.message, "work.knowledge.run_knowledge._warn_stale", wanted="…chunk_size is 400", was="1000…"
    )


async def test_documents_that_can_not_be_read_are_warned_about(knowing: AgentRunner) -> None:
    home = library(knowing)
    (home / "notes" / "x.pdf").write_bytes(b"%PDF-no")
    assert (await knowing.run("flour")).status == "done"
    [warned] = [each for each in knowing.of("run.warning") if each.code == "knowledge_unreadable"]
    assert warned.message.startswith("rag node 'look' of 'g': 1 of the documents could not be read: notes/x.pdf (")


async def test_a_typo_in_documents_ends_the_run_and_leaves_no_base(knowing: AgentRunner) -> None:
    home = library(knowing, GRAPH.replace("./notes/", "./nodes/"))
    outcome = await knowing.run("flour")
    assert (outcome.status, outcome.exit_code) == ("failed", 3)
    assert has_message(outcome.error.message, "work.knowledge.run_knowledge._build.2", source="nodes")
    assert not (home / "look.kb").exists()


async def test_a_failed_lookup_names_the_node(knowing: AgentRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise UpstreamError("no route to the model")

    library(knowing)
    monkeypatch.setattr(Knowledge, "retrieve", broken)
    outcome = await knowing.run("flour")
    assert outcome.error.message == "at node 'look': rag node 'look' retrieval failed: no route to the model"
    assert outcome.exit_code == UpstreamError.exit_code


async def test_a_lookup_that_takes_too_long_names_the_node(
    knowing: AgentRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(*_: object, **__: object) -> None:
        await trio.sleep_forever()

    library(knowing, GRAPH.replace("query:", "timeout: 0.1\n    query:"))
    monkeypatch.setattr(Knowledge, "retrieve", slow)
    outcome = await knowing.run("flour")
    assert has_message(outcome.error.message, "engine.graph.run._timeout_text.2", seconds="0.1")


async def test_an_agent_that_can_not_be_written_to_has_its_bases_in_the_cache(
    knowing: AgentRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = library(knowing)
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != home and access(path, mode))
    assert (await knowing.run("flour")).status == "done"
    [base] = (tmp_path / "cache" / "callboard" / "knowledge").glob("g-*/look.kb")
    assert (base / "current").is_file()
    assert not (home / "look.kb").exists()


async def test_a_child_graph_has_its_own_bases(knowing: AgentRunner) -> None:
    library(knowing, name="kid")
    parent = knowing.agent(
        "start: a\nnodes:\n  a: {type: agent, agent: kid, prompt: '{{initial_prompt}}', next: e,"
        " state_updates: {said: '{{output}}'}}\n  e: {type: end, output: '{{said}}'}"
    )
    outcome = await knowing.run("flour")
    assert outcome.output.endswith("|notes/cake.md")
    assert (parent.parent / "kid" / "look.kb").is_dir()


async def test_a_map_of_lookups_sees_to_the_base_once(knowing: AgentRunner) -> None:
    library(
        knowing,
        """
        start: m
        initial_state: {topics: [flour, moon, flour, moon]}
        nodes:
          m: {type: map, over: "{{topics}}", as: topic, branch: look, collect_into: found, output_key: hit, next: e}
          look: {type: rag, documents: [./notes/], query: "{{topic}}", state_updates: {hit: "{{output.sources[0]}}"}}
          e: {type: end, output: "{{found}}"}
        """,
    )
    outcome = await knowing.run()
    assert json.loads(outcome.output) == ["notes/cake.md", "notes/moon.md"] * 2
    assert len(knowing.of("knowledge.built")) == 1


# --- before the run ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["driver: duckdb", "graph_hops: 2", "extractor_model: a:b", "extractor_prompt: x"])
async def test_keys_of_later_lokis_are_warned_about(agent_runner: AgentRunner, key: str) -> None:
    home = library(agent_runner, GRAPH.replace("query:", f"{key}\n    query:"))
    [problem] = callboard.validate(home)
    assert (problem.severity, problem.code) == ("warning", "ignored_key")
    assert problem.key == f"nodes.look.{key.split(':')[0]}"


@pytest.mark.parametrize(("compat", "severity"), [("standard", "error"), ("loki", "warning")])
async def test_an_overlap_as_long_as_the_chunks_is_wrong(agent_runner: AgentRunner, compat: str, severity: str) -> None:
    home = library(agent_runner, GRAPH.replace("query:", "chunk_size: 10\n    chunk_overlap: 10\n    query:"))
    [problem] = callboard.validate(home, compat=compat)
    assert (problem.severity, problem.code) == (severity, "bad_overlap")


async def test_an_overlap_as_long_as_the_chunks_ends_the_run(knowing: AgentRunner) -> None:
    library(knowing, GRAPH.replace("query:", "chunk_size: 10\n    chunk_overlap: 10\n    query:"))
    outcome = await knowing.run("flour", compat="loki", yes=True)
    assert has_message(
        outcome.error.message,
        "work.knowledge.service.Knowledge._plan",
        what=fragment("work.knowledge.recipe.recipes_of", id="look", name="g"),
        overlap=10,
        size=10,
    )
