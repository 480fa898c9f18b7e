"""Recipes: where they come from, what they leave open, and how they are kept with their base."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.messages import fragment, says

import callboard
from callboard.actors.work.knowledge.recipe import Recipe, encoded, read_recipe, recipes_of
from callboard.actors.work.library import AGENTS
from callboard.protocol.errors import KnowledgeError, KnowledgeMissing
from callboard.protocol.settings import Settings

GRAPH = """
name: g
start: a
nodes:
  a: {type: rag, documents: [x/], embedding_model: openai:small, chunk_size: 400, state_updates: {y: ""}, next: b}
  b: {type: rag, documents: [x/, y.md], top_k: 9, batch_size: 3, state_updates: {y: "{{output}}"}, next: e}
  e: {type: end}
"""


def graph(home: Path, text: str = GRAPH) -> callboard.GraphAgent:
    home.mkdir(parents=True)
    (home / "graph.yaml").write_text(text)
    loaded = callboard.load(home)
    assert isinstance(loaded, callboard.GraphAgent)
    return loaded


def plain(home: Path, **fields: object) -> Recipe:
    return Recipe(what="w", target="t", directory=home / "w.kb", documents=("x",), base=home, **fields)


def test_every_rag_node_has_a_recipe_of_its_own(tmp_path: Path) -> None:
    home = tmp_path / "agents" / "g"
    agent = graph(home)
    first, second = recipes_of(agent.graph, home, tmp_path, {}).values()
    assert (first.what, first.target, first.node) == (
        fragment("work.knowledge.recipe.recipes_of", id="a", name="g"),
        "g:a",
        "a",
    )
    assert (first.directory, first.base, first.documents) == (home / "a.kb", home, ("x/",))
    assert (first.embedding_model, first.chunk_size, first.upstream) == ("openai:small", 400, home / "a.yaml")
    assert (second.documents, second.batch_size, second.asks) == (("x/", "y.md"), 3, False)
    assert recipes_of(agent.graph, home, tmp_path, {}, compat="loki")["a"].asks


def test_an_agent_elsewhere_is_called_by_its_path(tmp_path: Path) -> None:
    agent = graph(tmp_path / "g")
    assert recipes_of(agent.graph, tmp_path / "g", tmp_path, {})["a"].target == f"{tmp_path / 'g'}:a"


def test_built_in_agents_are_never_written_to(tmp_path: Path) -> None:
    agent = graph(tmp_path / "g")
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    place = recipes_of(agent.graph, AGENTS / "coder", tmp_path, environ)["a"].directory
    assert place.is_relative_to(tmp_path / "callboard" / "knowledge")
    assert recipes_of(agent.graph, AGENTS / "other", tmp_path, environ)["a"].directory != place


def test_an_agent_made_in_python_looks_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    agent = callboard.Agent(name="clerk", documents=("notes/",))
    [recipe] = recipes_of(agent, None, tmp_path, {"XDG_CACHE_HOME": str(tmp_path)}).values()
    assert (recipe.base, recipe.directory.name) == (tmp_path, "documents.kb")
    assert recipes_of(callboard.Agent(name="clerk"), None, tmp_path, {}) == {}


@pytest.mark.parametrize("id", ["n" * 300, "ü" * 80, "../../x", "a/b", "/etc/passwd", ".."])
def test_a_base_stands_beside_its_agent_whatever_its_node_is_called(tmp_path: Path, id: str) -> None:
    rag = {"type": "rag", "documents": ["x"], "state_updates": {"y": ""}, "next": "e"}
    text = json.dumps({"name": "g", "start": id, "nodes": {id: rag, "e": {"type": "end"}}})
    made = graph(tmp_path / "g", text)
    [recipe] = recipes_of(made.graph, made.directory, tmp_path, {}).values()
    recipe.directory.mkdir()
    assert recipe.directory.parent == made.directory
    assert recipe.upstream is None or recipe.upstream.parent == made.directory
    assert recipe.upstream is None or not recipe.upstream.is_file()


def test_settings_say_what_a_recipe_does_not(tmp_path: Path) -> None:
    settings = Settings(
        rag_embedding_model="openai:small",
        rag_chunk_size=300,
        rag_chunk_overlap=30,
        rag_top_k=7,
        rag_reranker_model="c:r",
    )
    open = plain(tmp_path).settled(settings)
    assert (open.embedding_model, open.chunk_size, open.chunk_overlap) == ("openai:small", 300, 30)
    assert (open.top_k, open.reranker_model) == (7, "c:r")
    said = plain(tmp_path, embedding_model="a:b", chunk_size=20, top_k=1, reranker_model="d:e").settled(settings)
    assert (said.embedding_model, said.chunk_size, said.chunk_overlap) == ("a:b", 20, None)
    assert (said.top_k, said.reranker_model) == (1, "d:e")


def test_what_is_specified_names_model_and_sizes(tmp_path: Path) -> None:
    assert plain(tmp_path, embedding_model="a:b", chunk_size=10, chunk_overlap=0).specified
    assert not plain(tmp_path, embedding_model="a:b", chunk_size=10).specified


def test_a_kept_recipe_moves_with_its_base(tmp_path: Path) -> None:
    home = tmp_path / "g"
    recipe = plain(home, chunk_size=10, top_k=3)
    recipe.directory.mkdir(parents=True)
    (recipe.directory / "recipe.json").write_bytes(encoded(recipe))
    shutil.move(home, tmp_path / "moved")
    read = read_recipe(tmp_path / "moved" / "w.kb")
    assert (read.base, read.documents, read.chunk_size, read.top_k) == (tmp_path / "moved", ("x",), 10, 3)


def test_a_base_far_from_its_documents_keeps_where_they_are(tmp_path: Path) -> None:
    recipe = Recipe(
        what="w", target="t", directory=tmp_path / "cache" / "w.kb", documents=("x",), base=tmp_path / "src"
    )
    recipe.directory.mkdir(parents=True)
    (recipe.directory / "recipe.json").write_bytes(encoded(recipe))
    assert read_recipe(recipe.directory).base == tmp_path / "src"


def test_what_is_no_recipe_is_told(tmp_path: Path) -> None:
    with pytest.raises(KnowledgeMissing, match=says("work.knowledge.recipe.read_recipe", name="recipe.json")):
        read_recipe(tmp_path)
    (tmp_path / "recipe.json").write_text("{}")
    with pytest.raises(KnowledgeError, match=says("work.knowledge.recipe.read_recipe.2", path="…recipe.json")):
        read_recipe(tmp_path)
