"""Memories of a run: who reads and writes what and when, and what is there the next time."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from support.fake_models import Reply, Request
from support.messages import has_message
from support.workflow_agents import Agents, said

BOARD = """
graph:
  start: [A]
  memory: [{name: bb, type: blackboard, config: {}}]
  nodes:
    - {id: A, type: agent, config: {{fake}, name: m, memories: [{name: bb, write: true}]}}
    - {id: B, type: agent, config: {{fake}, name: m, role: R, memories: [{name: bb, read: true}]}}
  edges: [{from: A, to: B}]
"""

MOON = "the moon rings far"
CAKE = "cake needs eggs flour"

SIMPLE = """
graph:
  start: [A]
  memory: [{name: s, type: simple%s}]
  nodes:
    - id: A
      type: agent
      config: {{fake}, name: m, memories: [{name: s, read: true, write: true, similarity_threshold: 0.5%s}]}
"""


async def test_a_blackboard_gives_the_latest_in_front_of_the_last_thing_said(agents: Agents) -> None:
    agents.models.script("hello out", "done")
    await agents.run(BOARD)
    assert said(agents.models.requests[1]) == [
        ("system", "R"),
        ("user", "===== Related Memories =====\n\n--- bb ---\n1. hello out\n\n===== End of Memory ====="),
        ("user", "hello out"),
    ]


async def test_what_is_not_said_is_no_in_standard_and_yes_in_devall(agents: Agents) -> None:
    half = BOARD.replace(", write: true", ", read: true")
    for compat, told in (("standard", 2), ("devall", 3)):
        agents.models.requests.clear()
        await agents.run(half, compat=compat)
        assert len(said(agents.models.requests[1])) == told


@pytest.mark.parametrize("compat", ["standard", "devall"])
async def test_a_memory_of_which_neither_is_said_is_read_and_written(agents: Agents, compat: str) -> None:
    await agents.run(BOARD.replace(", write: true", "").replace(", read: true", ""), compat=compat)
    assert len(said(agents.models.requests[1])) == 3


async def test_a_blackboard_with_a_path_is_there_in_the_next_run_and_has_its_bounds(agents: Agents) -> None:
    kept = BOARD.replace("config: {}", "config: {memory_path: notes/bb, max_items: 2}", 1)
    for word in ("one", "two", "three"):
        agents.models.script(word, "done")
        await agents.run(kept)
    memory = said(agents.models.requests[5])[1][1]
    assert "1. two\n2. three" in memory
    assert "one" not in memory
    assert (agents.home / "notes" / "bb").is_file()


async def test_a_blackboard_without_a_path_ends_with_its_run(agents: Agents) -> None:
    for compat in ("standard", "devall"):
        await agents.run(BOARD, compat=compat)
        only_b = BOARD.replace("edges: [{from: A, to: B}]", "edges: []\n  end: [B]").replace("[A]", "[B]", 1)
        await agents.run(only_b, compat=compat)
        assert len(said(agents.models.requests[-1])) == 2


# --- simple stores ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("weights")
async def test_a_simple_store_finds_again_what_is_like_the_task_and_nothing_else(agents: Agents) -> None:
    agents.models.script("moon far", "flour eggs cake", "done")
    for task in (MOON, CAKE, "cake flour"):
        assert (await agents.run(SIMPLE % ("", ""), task)).error is None
    assert said(agents.models.requests[0]) == [("user", MOON)]
    memory, _ = said(agents.models.requests[2])
    assert f"1. Input: {CAKE}\nOutput: flour eggs cake\n" in memory[1]
    assert "moon" not in memory[1]


@pytest.mark.usefixtures("weights")
async def test_top_k_bounds_what_is_found(agents: Agents) -> None:
    for number in range(3):
        agents.models.script(f"cake eggs {number}")
        await agents.run(SIMPLE % ("", ", top_k: 2"), f"flour cake {number}")
    await agents.run(SIMPLE % ("", ", top_k: 2"), "flour cake")
    memory, _ = said(agents.models.requests[3])
    assert memory[1].count("Output:") == 2


@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize(("compat", "finds"), [("standard", True), ("devall", False)])
async def test_a_threshold_of_zero_finds_what_is_like_nothing(agents: Agents, compat: str, finds: bool) -> None:
    config = ", config: {memory_path: s.memory, embedding: {provider: local, model: static}}"
    yaml = (SIMPLE % (config, "")).replace("similarity_threshold: 0.5", "similarity_threshold: 0.0")
    agents.models.script("cake stones", "done")
    for task in ("cake stones", "bicycle flour"):  # their cosine is -0.19
        assert (await agents.run(yaml, task, compat=compat)).error is None
    assert ("cake stones" in agents.models.requests[1].body.decode()) is finds


@pytest.mark.usefixtures("weights")
async def test_stores_are_kept_apart_by_name_and_by_file(agents: Agents) -> None:
    await agents.run(SIMPLE % ("", ""), CAKE)
    await agents.run((SIMPLE % ("", "")).replace("name: s,", "name: other,"), CAKE)
    await agents.run(SIMPLE % ("", ""), CAKE, name="another.yaml")
    assert [len(said(request)) for request in agents.models.requests] == [1, 1, 1]
    await agents.run(SIMPLE % ("", ""), CAKE)
    assert len(said(agents.models.requests[3])) == 2


@pytest.mark.usefixtures("weights")
async def test_a_bare_simple_store_of_devall_stays_empty(agents: Agents) -> None:
    for _ in range(2):
        await agents.run(SIMPLE % (", config: {}", ""), CAKE, compat="devall")
    assert [len(said(request)) for request in agents.models.requests] == [1, 1]
    assert not (agents.root.config_dir / "memory").exists()


@pytest.mark.usefixtures("weights")
async def test_devall_keeps_three_sentences(agents: Agents) -> None:
    config = ", config: {memory_path: s.memory, embedding: {provider: local, model: static}}"
    task = "Cake. Eggs. Flour. Moon."
    agents.models.script("cake " * 300)
    for _ in range(2):
        await agents.run(SIMPLE % (config, ""), task, compat="devall")
    memory, _ = said(agents.models.requests[1])
    assert "1. Input: Cake. Eggs. Flour.\n" in memory[1]
    assert "Moon" not in memory[1]


@pytest.mark.usefixtures("weights")
async def test_the_same_is_remembered_once_and_trifles_never(agents: Agents) -> None:
    agents.models.answer_with(lambda _: "eggs flour cake")
    for _ in range(3):
        await agents.run(SIMPLE % ("", ""), CAKE)
    memory, _ = said(agents.models.requests[2])
    assert memory[1].count("Output:") == 1
    agents.models.answer_with(lambda _: " ")
    await agents.run(SIMPLE % ("", ""), "cake")
    await agents.run(SIMPLE % ("", ""), "cake")
    assert said(agents.models.requests[4])[0][1].count("Output:") == 1


@pytest.mark.usefixtures("weights")
async def test_fifty_agents_at_once_write_one_store(agents: Agents) -> None:
    nodes = "".join(
        f"    - {{id: N{i}, type: agent, config: {{{{fake}}, name: m, role: '{i}', "
        "memories: [{name: s, read: true, write: true}]}}\n"
        for i in range(50)
    )
    ids = ", ".join(f"N{i}" for i in range(50))
    yaml = f"graph:\n  start: [{ids}]\n  end: []\n  memory: [{{name: s, type: simple}}]\n  nodes:\n{nodes}"
    agents.models.answer_with(lambda request: f"cake {request.system}")
    result = await agents.run(yaml, CAKE)
    assert (result.error, len(result.outputs)) == (None, 50)
    reader = (SIMPLE % ("", ", top_k: 60")).replace("0.5", "-1.0")
    await agents.run(reader, CAKE)
    memory, _ = said(agents.models.requests[-1])
    assert sorted(int(line.split()[-1]) for line in memory[1].splitlines() if "Output:" in line) == list(range(50))


# --- stages -----------------------------------------------------------------------------------------------

STAGED = """
graph:
  start: [A]
  memory: [{name: bb, type: blackboard, config: {memory_path: bb}}]
  nodes:
    - id: A
      type: agent
      config:
        {fake}
        memories: [{name: bb, read: true, write: true, retrieve_stage: %s}]
        %s
""".replace("{fake}", "provider: openai\n        name: m\n        base_url: BASE\n        api_key: k")
THINKS = "thinking: {type: reflection, config: {reflection_prompt: Think.}}"


async def staged(agents: Agents, stage: str, thinking: str = "", compat: str = "standard") -> tuple[list[str], Any]:
    """Which requests of the second run were told of the first, and what that run said."""
    yaml = (STAGED % (stage, thinking)).replace("BASE", agents.models.openai_base)
    agents.models.answer_with(lambda _: "remarkable")
    await agents.run(yaml, compat=compat)
    agents.models.requests.clear()
    agents.models.answer_with(lambda _: "answer")
    result = await agents.run(yaml, compat=compat)
    assert result.error is None
    names = ["answer", "reflection"][: len(agents.models.requests)]
    told = [
        name for name, each in zip(names, agents.models.requests, strict=True) if "remarkable" in each.body.decode()
    ]
    return told, result.final_messages[-1]


@pytest.mark.parametrize(
    ("stage", "thinking", "compat", "told"),
    [
        ("gen", "", "standard", ["answer"]),
        ("gen", THINKS, "standard", ["answer", "reflection"]),
        ("pre_gen_thinking", THINKS, "standard", ["reflection"]),
        ("pre_gen_thinking", "", "standard", ["answer"]),
        ("post_gen_thinking", THINKS, "standard", ["reflection"]),
        ("post_gen_thinking", "", "standard", []),
        ("finished", THINKS, "standard", []),
        ("pre_gen_thinking", THINKS, "devall", []),
        ("post_gen_thinking", THINKS, "devall", ["reflection"]),
        ("[gen, post_gen_thinking]", THINKS, "devall", ["answer", "reflection"]),
    ],
)
async def test_a_memory_is_read_when_its_stage_comes(
    agents: Agents, stage: str, thinking: str, compat: str, told: list[str]
) -> None:
    assert (await staged(agents, stage, thinking, compat))[0] == told


async def test_what_is_read_at_the_end_goes_with_the_message(agents: Agents) -> None:
    _, message = await staged(agents, "finished")
    assert message.metadata == {"memories": {"bb": ["remarkable"]}}


@pytest.mark.parametrize(
    ("stage", "shown"), [("pre_gen_thinking", True), ("[gen, finished]", True), ("post_gen_thinking", False)]
)
async def test_people_see_what_is_read_before_they_answer(agents: Agents, stage: str, shown: bool) -> None:
    yaml = f"""
        graph:
          start: [H]
          memory: [{{name: bb, type: blackboard, config: {{memory_path: bb}}}}]
          nodes:
            - id: H
              type: human
              config: {{memories: [{{name: bb, read: true, write: true, retrieve_stage: {stage}}}]}}
        """
    for answer in ("too long", "fine"):
        await agents.run(yaml, answers=[answer])
    assert ("too long" in agents.of("question.asked")[1].question["text"]) is shown


async def test_people_see_their_memories_and_what_they_say_is_remembered(agents: Agents) -> None:
    yaml = """
        graph:
          start: [H]
          memory: [{name: bb, type: blackboard, config: {memory_path: bb}}]
          nodes:
            - {id: H, type: human, config: {description: Say., memories: [{name: bb, read: true, write: true}]}}
        """
    await agents.run(yaml, answers=["too long"])
    result = await agents.run(yaml, answers=["fine"])
    assert result.output == "fine"
    first, second = agents.of("question.asked")
    assert "too long" not in first.question["text"]
    assert second.question["text"].endswith("--- bb ---\n1. too long")


# --- documents --------------------------------------------------------------------------------------------

FILES = """
graph:
  start: [A]
  memory:
    - {name: docs, type: file, config: {file_sources: [{path: docs, file_types: [.md]}]}}
  nodes:
    - {id: A, type: agent, config: {{fake}, name: m, memories: [{name: docs, read: true, write: true, top_k: 1}]}}
"""


@pytest.mark.usefixtures("weights")
async def test_a_file_store_is_a_base_that_is_built_once(agents: Agents) -> None:
    docs = agents.home / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("the moon rings far\n")
    (docs / "b.md").write_text("cake needs eggs flour\n")
    (docs / "c.txt").write_text("cake needs eggs flour, says nobody\n")
    for _ in range(2):
        result = await agents.run(FILES, "cake eggs flour")
        assert result.error is None
    for request in agents.models.requests:
        memory, _ = said(request)
        assert memory[1].count("1. cake needs eggs flour\n") == 1
    assert [data.what for data in agents.of("knowledge.built")] == ["memory 'docs'"]
    (base,) = (agents.root.config_dir / "memory").glob("wf-*/docs.kb")
    assert base.is_dir()


# --- by words ---------------------------------------------------------------------------------------------


async def test_a_store_without_a_model_at_hand_is_searched_by_its_words(agents: Agents) -> None:
    agents.models.script("moon far", "flour eggs cake", "done")
    for task in (MOON, CAKE, "cake flour"):
        assert (await agents.run(SIMPLE % ("", ""), task)).error is None
    memory, _ = said(agents.models.requests[2])
    assert f"1. Input: {CAKE}\nOutput: flour eggs cake\n" in memory[1]
    assert "moon" not in memory[1]
    warned = agents.of("run.warning")[0]
    assert (warned.code, has_message(warned.message, "work.models.weights.pulled.3", name="wordllama")) == (
        "memory_by_words",
        True,
    )


async def test_documents_without_a_model_at_hand_are_searched_by_their_words(agents: Agents) -> None:
    docs = agents.home / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("the moon rings far\n")
    (docs / "b.md").write_text("cake needs eggs flour\n")
    for _ in range(2):
        assert (await agents.run(FILES, "What cakes need flour?")).error is None
    assert agents.warnings == ["memory_by_words"] * 2
    for request in agents.models.requests:
        memory, _ = said(request)
        assert "1. cake needs eggs flour\n" in memory[1]
    assert [data.what for data in agents.of("knowledge.built")] == ["memory 'docs'"]


NAMED = "embedding: {provider: openai, base_url: 'BASE', api_key: k, model: e}"


def without_embeddings(status: int) -> Any:
    def answer(request: Request) -> Reply | str:
        return Reply(status=status, error="no such page") if "embeddings" in request.path else "flour eggs cake"

    return answer


@pytest.mark.parametrize("kind", ["simple", "file"])
async def test_a_provider_that_makes_no_vectors_is_replaced_by_words(agents: Agents, kind: str) -> None:
    (agents.home / "docs").mkdir()
    (agents.home / "docs" / "a.md").write_text("cake needs eggs flour\n")
    embedding = NAMED.replace("BASE", agents.models.openai_base)
    simple = SIMPLE % (f", config: {{memory_path: s, {embedding}}}", "")
    yaml = simple if kind == "simple" else FILES.replace("file_types: [.md]}]", f"file_types: [.md]}}], {embedding}")
    agents.models.answer_with(without_embeddings(404))
    for _ in range(2):
        assert (await agents.run(yaml, "flour for a cake")).error is None
    chats = [request for request in agents.models.requests if "embeddings" not in request.path]
    assert "eggs" in said(chats[1])[0][1]
    assert agents.warnings[0] == "memory_by_words"


async def test_a_key_for_vectors_that_is_refused_fails_the_node(agents: Agents) -> None:
    embedding = NAMED.replace("BASE", agents.models.openai_base)
    agents.models.answer_with(without_embeddings(401))
    for _ in range(2):
        result = await agents.run(SIMPLE % (f", config: {{memory_path: s, {embedding}}}", ""), CAKE)
    assert agents.warnings == ["memory", "memory"] or result.error is not None
    assert "memory_by_words" not in agents.warnings


# --- mem0 -------------------------------------------------------------------------------------------------

MEM0 = """
graph:
  start: [A]
  memory: [{name: m0, type: mem0, config: {api_key: k0, user_id: ann}}]
  nodes:
    - {id: A, type: agent, config: {{fake}, name: m, memories: [{name: m0, read: true, write: true}]}}
"""


async def test_mem0_is_asked_and_told_over_http(agents: Agents) -> None:
    def answer(request: Request) -> Reply | str:
        if request.path == "/v2/memories/search/":
            found = [{"memory": "likes cake", "score": 0.9}, {"memory": "far away", "score": 0.1}]
            return Reply(raw=json.dumps(found).encode())
        return Reply(raw=b"[]") if request.path == "/v1/memories/" else "done"

    agents.models.answer_with(answer)
    result = await agents.run(MEM0, environ={"MEM0_BASE_URL": agents.models.url})
    assert (result.error, result.output) == (None, "done")
    search, chat, add = agents.models.requests
    assert search.headers["authorization"] == "Token k0"
    assert search.json == {"query": "TASK", "filters": {"AND": [{"user_id": "ann"}]}, "top_k": 10}
    memory, _ = said(chat)
    assert "1. likes cake\n" in memory[1]
    assert "far away" not in memory[1]
    assert add.json == {"messages": [{"role": "user", "content": "TASK"}], "user_id": "ann"}


async def test_a_memory_that_can_not_be_read_fails_the_node_or_counts_as_empty(agents: Agents) -> None:
    def answer(request: Request) -> Reply | str:
        return Reply(status=400, error="no such account") if "memories" in request.path else "done"

    agents.models.answer_with(answer)
    environ = {"MEM0_BASE_URL": agents.models.url}
    result = await agents.run(MEM0, environ=environ)
    assert "no such account" in str(result.error)
    result = await agents.run(MEM0, environ=environ, compat="devall")
    assert (result.error, result.output) == (None, "done")
    assert agents.warnings == ["memory", "memory"]


async def test_a_memory_that_can_not_be_written_is_a_warning(agents: Agents) -> None:
    (agents.home / "notes").write_text("in the way")
    yaml = BOARD.replace("config: {}", "config: {memory_path: notes/bb}", 1).replace("read: true", "read: false")
    result = await agents.run(yaml)
    assert result.error is None
    (warning,) = [data for data in agents.of("run.warning") if data.code == "memory"]
    assert warning.node == "A"
    assert has_message(warning.message, "engine.workflow.memory.notebook.Notebook._safely.2", _name="bb")


async def test_a_stream_of_runs_shows_what_was_looked_up(agents: Agents) -> None:
    await agents.run(BOARD)
    (found,) = agents.of("knowledge.retrieved")
    assert (found.what, found.chunks) == ("memory 'bb'", 1)


def test_nothing_of_a_graph_without_memories_is_imported() -> None:
    code = "import callboard.actors.engine.workflow.run, sys; print([m for m in sys.modules if 'workflow.memory' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"[]\n"
