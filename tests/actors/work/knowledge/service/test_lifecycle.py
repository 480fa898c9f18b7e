"""How a base comes to be there: built in silence, after a question, or not at all."""

from __future__ import annotations

import base64
import json
import os
import zipfile
from pathlib import Path

import msgspec
import pytest
import trio
from support.agent_runs import AgentRunner
from support.answering_person import Person
from support.messages import fragment, has_message
from support.model_events import EventCollector

import callboard
from callboard.actors.work.knowledge import run_knowledge
from callboard.actors.work.knowledge.base.layout import BaseLayout
from callboard.actors.work.models import weights
from callboard.protocol.events import Event

GRAPH = """
start: look
nodes:
  look: {type: rag, documents: [notes/], state_updates: {found: "{{output.context}}"}, next: e}
  e: {type: end, output: "{{found}}"}
"""
LOKI = GRAPH.replace("start: look", "start: look\nsettings: {compat: loki}")
WHOLE = GRAPH.replace("[notes/]", "[notes/], embedding_model: 'local:static', chunk_size: 500, chunk_overlap: 20")


def library(agent_runner: AgentRunner, graph: str = GRAPH) -> Path:
    home = agent_runner.agent(graph)
    (home / "notes").mkdir(exist_ok=True)
    (home / "notes" / "cake.md").write_text("A cake needs flour and eggs.\n")
    return home


def forget_weights() -> dict[str, bytes]:
    """Remove the weights; what they were."""
    where = weights.directory(os.environ)
    kept = {path.name: path.read_bytes() for path in where.iterdir()}
    for path in where.iterdir():
        path.unlink()
    return kept


# --- enough is said --------------------------------------------------------------------------------------------


async def test_with_weights_at_hand_nobody_is_asked(knowing: AgentRunner) -> None:
    library(knowing)
    person = Person(knowing.root, lambda _: "no")
    with knowing.root.questions.attach(person):
        assert "flour" in (await knowing.run("flour")).output
    assert not person.asked_for


async def test_progress_is_told_phase_by_phase(knowing: AgentRunner) -> None:
    library(knowing)
    await knowing.run("flour")
    phases = [each.phase for each in knowing.of("knowledge.building")]
    assert list(dict.fromkeys(phases)) == ["read", "embed", "index"]
    assert knowing.kinds("knowledge.built", "graph.started") == ["knowledge.built", "graph.started"]


async def test_lokis_rules_build_in_silence_what_says_all_three(knowing: AgentRunner) -> None:
    library(knowing, WHOLE.replace("start: look", "start: look\nsettings: {compat: loki}"))
    assert "flour" in (await knowing.run("flour")).output


# --- a person is asked -----------------------------------------------------------------------------------------


async def test_lokis_rules_ask_before_a_base_is_built(knowing: AgentRunner) -> None:
    library(knowing, LOKI)
    person = Person(knowing.root, lambda _: "yes")
    with knowing.root.questions.attach(person):
        assert "flour" in (await knowing.run("flour")).output
    [question] = person.asked_for
    assert has_message(
        question.text,
        "work.knowledge.run_knowledge._is_allowed.2",
        what=fragment("work.knowledge.recipe.recipes_of", id="look", name="g"),
        fetch="Build",
        documents="notes/",
    )
    assert (question.options, question.node) == (("yes", "no"), "look")


async def test_a_no_ends_the_run(knowing: AgentRunner) -> None:
    home = library(knowing, LOKI)
    with knowing.root.questions.attach(Person(knowing.root, lambda _: "no")):
        outcome = await knowing.run("flour")
    assert (outcome.status, outcome.exit_code) == ("failed", 3)
    assert has_message(
        outcome.error.message,
        "work.knowledge.run_knowledge._have_leave",
        what=fragment("work.knowledge.recipe.recipes_of", id="look", name="g"),
    )
    assert not (home / "look.kb").exists()


async def test_missing_weights_are_pulled_for_a_yes(knowing: AgentRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    library(knowing)
    kept = forget_weights()

    async def pull(_: object, name: str, environ: dict[str, str], tell: weights.OnProgress) -> None:
        assert name == "wordllama"
        tell("downloading", 5, 10)
        for file, data in kept.items():
            (weights.directory(environ) / file).write_bytes(data)

    monkeypatch.setattr(weights, "pull", pull)
    person = Person(knowing.root, lambda _: "yes")
    with knowing.root.questions.attach(person):
        assert "flour" in (await knowing.run("flour")).output
    assert "Download WordLlama 256 (19 MB, from the Python package index) and build a" in person.asked_for[0].text
    pulled = knowing.of("knowledge.building")[0]
    assert (pulled.phase, pulled.done, pulled.total) == ("pull", 5, 10)


async def test_an_empty_cache_is_filled_for_the_first_agent_with_documents(
    knowing: AgentRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = knowing.plain("instructions: x\ndocuments: [notes/]", name="clerk")
    (home / "notes").mkdir()
    (home / "notes" / "cake.md").write_text("A cake needs flour and eggs.\n")
    index = tmp_path / "index"
    index.mkdir()
    wheel_of_weights(index, forget_weights(), monkeypatch)
    for name, value in (("NO_INDEX", "1"), ("FIND_LINKS", str(index)), ("CONFIG_FILE", os.devnull)):
        monkeypatch.setenv(f"PIP_{name}", value)
    outcome = await knowing.run("flour", "clerk", yes=True)
    assert outcome.status == "done", outcome.error
    assert "A cake needs flour" in knowing.models.requests[-1].prompt
    assert {event.phase for event in knowing.of("knowledge.building")} >= {"pull", "read"}


def wheel_of_weights(index: Path, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a wheel with these files into `index`, from which the weights are pulled."""
    known = weights.KNOWN["wordllama"]
    parts = tuple(msgspec.structs.replace(part, member=part.file) for part in known.parts)
    monkeypatch.setitem(weights.KNOWN, "wordllama", msgspec.structs.replace(known, parts=parts))
    version = known.package.partition("==")[2]
    info = f"wordllama-{version}.dist-info"
    texts = {
        "METADATA": f"Metadata-Version: 2.1\nName: wordllama\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(index / f"wordllama-{version}-py3-none-any.whl", "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        for name, text in texts.items():
            archive.writestr(f"{info}/{name}", text)


async def test_yes_beforehand_counts(knowing: AgentRunner) -> None:
    library(knowing, LOKI)
    assert (await knowing.run("flour", yes=True)).status == "done"


async def test_prepared_answers_are_not_used_up_by_the_question(knowing: AgentRunner) -> None:
    library(knowing, LOKI)
    outcome = await knowing.run("flour", answers=["yes"])
    assert outcome.exit_code == 3


# --- nobody is there -------------------------------------------------------------------------------------------


async def test_without_weights_and_people_the_error_says_what_to_do(knowing: AgentRunner) -> None:
    library(knowing)
    forget_weights()
    outcome = await knowing.run("flour")
    assert outcome.exit_code == 3
    assert outcome.error.code == "knowledge"
    assert has_message(
        outcome.error.message,
        "work.knowledge.run_knowledge._unspecified.5",
        what=fragment("work.knowledge.recipe.recipes_of", id="look", name="g"),
        where="…`embedding_model`…",
    )


async def test_an_agent_is_told_of_the_settings(knowing: AgentRunner) -> None:
    home = knowing.plain("instructions: x\ndocuments: [notes/]", name="clerk")
    (home / "notes").mkdir()
    forget_weights()
    outcome = await knowing.run("flour", "clerk")
    assert outcome.error.message.startswith("no knowledge base is built for the knowledge of 'clerk'")
    assert has_message(outcome.error.message, "work.knowledge.run_knowledge._unspecified.2")


async def test_looking_at_a_graph_builds_nothing(knowing: AgentRunner) -> None:
    home = library(knowing)
    callboard.load(home)
    assert callboard.validate(home) == []
    assert not (home / "look.kb").exists()


# --- others build it -------------------------------------------------------------------------------------------


async def test_two_runs_that_need_the_same_base_build_it_once(knowing: AgentRunner) -> None:
    library(knowing)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(knowing.run, "flour")
    assert len(knowing.of("knowledge.built")) == 1
    assert len(knowing.of("run.finished")) == 5


async def test_another_builder_is_waited_for(knowing: AgentRunner) -> None:
    home = library(knowing)
    lock = BaseLayout(home / "look.kb").build_lock()
    told = trio.Event()

    def on_event(event: Event) -> None:
        if getattr(event.data, "code", "") == "knowledge_busy":
            told.set()

    async def let_go() -> None:
        await told.wait()
        os.close(lock)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(let_go)
            outcome = await knowing.run("flour", on_event=on_event)
    assert "flour" in outcome.output
    [warned] = [each.message for each in knowing.of("run.warning") if each.code == "knowledge_busy"]
    assert has_message(warned, "work.knowledge.base.layout.BaseLayout.build_lock.2", who=f"process {os.getpid()}…")


async def test_the_wait_for_another_builder_is_bounded(knowing: AgentRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    home = library(knowing)
    monkeypatch.setattr(run_knowledge, "BUSY", 0.3)
    lock = BaseLayout(home / "look.kb").build_lock()
    try:
        outcome = await knowing.run("flour")
    finally:
        os.close(lock)
    assert (outcome.exit_code, outcome.error.code) == (3, "knowledge_busy")


async def test_a_run_cancelled_while_it_builds_leaves_no_lock_and_the_old_base(knowing: AgentRunner) -> None:
    home = library(knowing)
    await knowing.run("flour")
    (home / "notes" / "more.md").write_text("The moon is far away.\n" * 2000)
    building = trio.Event()

    def on_event(event: Event) -> None:
        if event.kind == "knowledge.building":
            building.set()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:

            async def cancelled() -> None:
                await knowing.run("moon", rebuild_knowledge=True, on_event=on_event)

            nursery.start_soon(cancelled)
            await building.wait()
            nursery.cancel_scope.cancel()
    os.close(BaseLayout(home / "look.kb").build_lock())
    assert BaseLayout(home / "look.kb").number() == 1
    assert "flour" in (await knowing.run("flour")).output


# --- it is there -----------------------------------------------------------------------------------------------


async def test_what_can_not_be_read_is_told_once_and_does_not_make_a_base_stale(knowing: AgentRunner) -> None:
    home = library(knowing)
    (home / "notes" / "picture.md").write_bytes(bytes(range(256)) * 40)
    for _ in range(2):
        assert "flour" in (await knowing.run("flour")).output
    codes = [each.code for each in knowing.of("run.warning")]
    assert codes == ["knowledge_unreadable"]
    assert [each.source for each in BaseLayout(home / "look.kb").lost().told] == ["notes/picture.md"]


async def test_a_rebuild_that_can_read_nothing_fails_and_leaves_the_base(knowing: AgentRunner) -> None:
    home = library(knowing)
    await knowing.run("flour")
    (home / "notes" / "cake.md").write_bytes(b"\0" * 1000)
    outcome = await knowing.run("flour", rebuild_knowledge=True)
    assert (outcome.exit_code, outcome.error.code) == (3, "knowledge")
    assert has_message(outcome.error.message, "work.knowledge.base.build._Build.read")
    assert "flour" in (await knowing.run("flour")).output


# --- Loki's own file -------------------------------------------------------------------------------------------


async def test_a_file_of_lokis_is_taken_over_with_its_vectors(knowing: AgentRunner) -> None:
    [row] = await knowing.root.knowledge.embedder().embed(EventCollector(), ["Cake!"])
    vector = base64.b64encode(row.astype("<f4").tobytes()).decode()
    pieces = [{"page_content": "Cake!", "metadata": {}}]
    home = library(knowing)
    file = {
        "embedding_model": "local:static",
        "chunk_size": 700,
        "chunk_overlap": 35,
        "reranker_model": None,
        "top_k": 1,
        "batch_size": None,
        "next_file_id": 1,
        "document_paths": ["notes/"],
        "files": {"0": {"hash": "x", "path": "notes/cake.md", "documents": pieces}},
        "vectors": {"0-0": vector},
    }
    (home / "look.yaml").write_text(json.dumps(file))
    outcome = await knowing.run("Cake!")
    assert "Cake!" in outcome.output
    [warned] = [each.message for each in knowing.of("run.warning") if each.code == "knowledge_imported"]
    assert warned == (
        f"rag node 'look' of 'g': imported the chunks of {home / 'look.yaml'} (1); from now on "
        f"{home / 'look.kb'} is used instead of that file"
    )


async def test_a_file_of_another_kind_with_the_nodes_name_is_left_alone(knowing: AgentRunner) -> None:
    home = library(knowing)
    (home / "look.yaml").write_text("name: something else\n")
    assert "flour" in (await knowing.run("flour")).output
    assert "knowledge_imported" not in [each.code for each in knowing.of("run.warning")]


# --- what is open is said by --------------------------------------------------------------------------------------


async def test_a_node_comes_before_the_settings_and_a_base_before_both(knowing: AgentRunner) -> None:
    home = library(knowing)
    settings = msgspec.structs.replace(knowing.root.settings, rag_chunk_size=300, rag_chunk_overlap=10)
    knowing.root.settings = settings
    await knowing.run("flour")
    meta = BaseLayout(home / "look.kb").meta(1)
    assert (meta.model, meta.settings.chunk_size, meta.settings.chunk_overlap) == ("local:static", 300, 10)
    knowing.root.knowledge.settings = msgspec.structs.replace(settings, rag_chunk_size=900)
    await knowing.run("flour")
    assert "knowledge_stale" not in [each.code for each in knowing.of("run.warning")]
