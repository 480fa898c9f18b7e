"""Whose words are reduced to their stems: said in a node, a base's file or the settings, and kept by a base."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import pytest
from support.agent_runs import AgentRunner
from support.messages import has_message, says

from callboard.actors.work.knowledge.base.bm25_index import LANGUAGES, NO_LANGUAGE
from callboard.actors.work.knowledge.base.layout import BaseLayout
from callboard.actors.work.knowledge.recipe import read_recipe
from callboard.actors.work.knowledge.registry import make, named
from callboard.protocol.errors import KnowledgeError
from callboard.protocol.languages import Language

GRAPH = """
start: look
nodes:
  look: {type: rag, documents: [notes/], state_updates: {found: "{{output.sources}}"}, next: e}
  e: {type: end, output: "{{found}}"}
"""
GERMAN = GRAPH.replace("[notes/]", "[notes/], language: de")


def library(agent_runner: AgentRunner, graph: str) -> Path:
    home = agent_runner.agent(graph)
    (home / "notes").mkdir(exist_ok=True)
    (home / "notes" / "a.md").write_text("Die Katzen schlafen.\n")
    return home


def language(home: Path) -> str:
    layout = BaseLayout(home / "look.kb")
    return layout.meta(layout.number()).settings.language


async def found_by_words(agent_runner: AgentRunner, home: Path, query: str) -> bool:
    recipe = read_recipe(home / "look.kb")

    async def look(me: object) -> bool:
        return bool((await agent_runner.root.knowledge.retrieve(me, recipe, query, mode="keyword")).chunks)

    return bool(await agent_runner.root.kernel.spawn(look, name="look", link=False).result())


def test_every_language_that_can_be_said_has_stems() -> None:
    assert sorted(get_args(Language)) == sorted([*LANGUAGES, NO_LANGUAGE])


async def test_a_node_says_whose_stems_its_base_has(knowing: AgentRunner) -> None:
    home = library(knowing, GERMAN)
    await knowing.run("Katze")
    assert (language(home), read_recipe(home / "look.kb").language) == ("de", "de")
    assert await found_by_words(knowing, home, "schl\u00e4ft Katze")
    assert not await found_by_words(knowing, home, "Hund")


async def test_the_settings_say_it_for_those_who_do_not(knowing: AgentRunner) -> None:
    knowing.root.settings = msgspec.structs.replace(knowing.root.settings, rag_language="none")
    home = library(knowing, GRAPH)
    await knowing.run("Katzen")
    assert language(home) == "none"
    assert await found_by_words(knowing, home, "Katzen")
    assert not await found_by_words(knowing, home, "Katze")


async def test_another_language_is_told_and_takes_a_rebuild(knowing: AgentRunner) -> None:
    home = library(knowing, GRAPH)
    await knowing.run("Katze")
    library(knowing, GERMAN)
    await knowing.run("Katze")
    [warned] = [each.message for each in knowing.of("run.warning") if each.code == "knowledge_stale"]
    assert has_message(warned, "work.knowledge.run_knowledge._warn_stale")
    assert language(home) == "en"
    recipe = msgspec.structs.replace(read_recipe(home / "look.kb"), language="de")

    async def build(me: object) -> None:
        await knowing.root.knowledge.build(me, recipe)

    with pytest.raises(
        Exception, match=says("work.knowledge.base.build.BuildStart._check", what="language", was="en", wanted="de")
    ) as raised:
        await knowing.root.kernel.spawn(build, name="build", link=False).result()
    assert isinstance(raised.value.__cause__ or raised.value, KnowledgeError)
    await knowing.run("Katze", rebuild_knowledge=True)
    assert language(home) == "de"


def test_a_base_with_a_name_says_it_in_its_file(tmp_path: Path) -> None:
    make("manual", [str(tmp_path)], tmp_path, language="no")
    assert named("manual", tmp_path).language == "no"
