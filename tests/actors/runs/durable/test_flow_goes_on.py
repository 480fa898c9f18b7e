"""Workflows go on in another process: what they began with, what was under way, what is no data, what they leave."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trio
from lives import Lives, entered, exited
from support.fake_models import FakeModels, Reply

import callboard
from callboard.actors.engine.workflow.machine.perform import Said
from callboard.actors.engine.workflow.messages import Message
from callboard.actors.engine.workflow.nodes import custom
from callboard.actors.runs.durable import resume
from callboard.actors.runs.stored_runs import interrupted
from callboard.protocol.journal import Asked, Intends, MessageRow
from callboard.protocol.workflow_messages import Fired


@pytest.fixture
def lives(tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch) -> Lives:
    return Lives(tmp_path, fake_model, monkeypatch)


class Plugin:
    """A type of nodes, `plugin`, whose config says what it gives, and whether it waits for ever."""

    ran: ClassVar[list[str]] = []

    def load(self) -> Any:
        return self.run

    async def run(self, me: Any, job: Any) -> Said:
        self.ran.append(job.node.id)
        if job.values.get("waits") and len(self.ran) == 1:
            me.root.begin_stop()
            await trio.sleep_forever()
        metadata = {"thing": Path} if job.values.get("object") else {}
        return Said(outputs=(Message(role="assistant", content=f"{job.node.id} ran", metadata=metadata),))


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> type[Plugin]:
    Plugin.ran = []
    monkeypatch.setattr(custom, "node_types", lambda: {"plugin": Plugin()})
    monkeypatch.setattr("callboard.actors.runs.devall_loader.node_types", lambda: {"plugin": Plugin()})
    return Plugin


# --- what it began with -----------------------------------------------------------------------------------


async def test_it_goes_on_with_the_files_of_subgraphs_that_it_began_with(lives: Lives) -> None:
    lives.put("""
        graph:
          start: [First]
          nodes:
            - {id: First, type: human, config: {}}
            - {id: Team, type: subgraph, config: {type: file, config: {path: parts/team.yaml}}}
          edges: [{from: First, to: Team}]
    """)
    inner = "graph: {nodes: [{id: In, type: literal, config: {content: WORD}}], edges: []}"
    file = lives.put(inner.replace("WORD", "before"), "parts/team.yaml")
    await lives.begin(until=entered("First"), answers={})
    file.write_text(inner.replace("WORD", "after"))
    outcome = await lives.go_on(answers={"First": "go"})
    assert (outcome.output, outcome.order) == ("before", ["First", "Team", "In"])


async def test_it_goes_on_with_the_files_that_it_came_with(lives: Lives) -> None:
    lives.put("""
        graph:
          start: [First]
          nodes:
            - {id: First, type: human, config: {}}
            - {id: Read, type: python, config: {code: "print(open('attachments/note.txt').read())"}}
          edges: [{from: First, to: Read}]
    """)
    note = lives.put("a note", "note.txt")
    await lives.begin(until=entered("First"), answers={}, attach=[str(note)])
    note.unlink()
    outcome = await lives.go_on(answers={"First": "go"})
    assert (outcome.output, [path.name for path in lives.beside()]) == ("a note\n", ["note.txt"])


async def test_a_run_that_is_saved_goes_on_in_its_directory(lives: Lives, tmp_path: Path) -> None:
    lives.put("""
        graph:
          start: [Make]
          nodes:
            - {id: Make, type: python, config: {code: "open('made', 'w').write('x'); print(1)"}}
            - {id: Ask, type: human, config: {}}
            - {id: Read, type: python, config: {code: "print(open('made').read())"}}
          edges: [{from: Make, to: Ask}, {from: Ask, to: Read}]
    """)
    await lives.begin(until=entered("Ask"), answers={}, save=str(tmp_path / "saved"))
    outcome = await lives.go_on(answers={"Ask": "go"})
    saved = tmp_path / "saved" / "run-1"
    assert outcome.output == "x\n"
    assert json.loads((saved / "outputs.json").read_text()).keys() == {"Make", "Ask", "Read"}
    kinds = [json.loads(line)["kind"] for line in (saved / "log.jsonl").read_text().splitlines()]
    assert (kinds.count("run.started"), kinds.count("run.resumed"), kinds[-1]) == (2, 1, "run.finished")
    assert {path.name for path in (saved / "workspace").iterdir()} == {"Make.py", "Read.py", "made"}


async def test_a_store_of_memories_is_the_same_whatever_the_file_is_called_later(
    lives: Lives, fake_model: FakeModels
) -> None:
    lives.put("""
        graph:
          start: [Ask]
          memory: [{name: s, type: simple}]
          nodes:
            - {id: Ask, type: human, config: {}}
            - {id: A, type: agent, config: {provider: fake, name: m, memories: [{name: s, write: true}]}}
          edges: [{from: Ask, to: A}]
    """)
    fake_model.answer_with(lambda _: "an answer that is worth keeping")
    for run in ("run-1", "run-2"):
        await lives.begin(until=entered("Ask"), answers={}, id=run)
        await lives.go_on(answers={"Ask": "what is it that you know of this?"})
    assert len(list((lives.config / "memory").iterdir())) == 1


# --- what was under way -----------------------------------------------------------------------------------

CODE = """
    graph:
      start: [Code]
      nodes:
        - {id: Code, type: python, config: {code: "print(input() if False else 'ran')"}, on_error: ON_ERROR}
        - {id: After, type: passthrough, config: {}}
      edges: [{from: Code, to: After}]
"""


@pytest.mark.parametrize(("on_error", "status"), [("fail", "failed"), ("continue", "done")])
async def test_code_that_was_under_way_fails_its_node_if_nobody_is_there_to_ask(
    lives: Lives, on_error: str, status: str
) -> None:
    lives.put(CODE.replace("ON_ERROR", on_error))
    await lives.begin(until=lambda event: event.kind == "tool.call.started")
    assert [row.what for _, row in lives.rows() if isinstance(row, Intends)] == ["the code of 'Code'"]
    outcome = await lives.go_on()
    assert outcome.status == status
    if outcome.error is not None:
        assert (outcome.error.code, outcome.error.node) == ("unknown_outcome", "Code")
    else:
        assert outcome.output.startswith("'Code' failed: the code of 'Code' was running when the program ended")


@pytest.mark.parametrize(("answer", "output"), [("again", "ran\n"), ("skip", "")])
async def test_a_person_says_what_becomes_of_code_that_was_under_way(lives: Lives, answer: str, output: str) -> None:
    lives.put(CODE.replace("ON_ERROR", "fail"))
    await lives.begin(until=lambda event: event.kind == "tool.call.started")
    outcome = await lives.go_on(answers={"Code": answer})
    assert (outcome.status, outcome.output, lives.questions) == ("done", output, [("q-1-1", "Code")])
    assert lives.beside() == []


async def test_a_node_of_a_type_of_others_is_asked_about_and_not_done_twice(lives: Lives, plugin: type[Plugin]) -> None:
    lives.put("""
        graph:
          start: [A]
          nodes:
            - {id: A, type: plugin, config: {waits: true}}
            - {id: B, type: plugin, config: {}}
            - {id: Ask, type: human, config: {}}
          edges: [{from: A, to: B}, {from: B, to: Ask}]
    """)
    await lives.begin(answers={})
    await lives.go_on(until=entered("Ask"), answers={"A": "again"})
    outcome = await lives.go_on(answers={"Ask": "well"})
    assert (outcome.output, plugin.ran) == ("well", ["A", "A", "B"])


async def test_a_question_of_a_function_stays_open_and_its_answer_reaches_the_model(
    lives: Lives, fake_model: FakeModels
) -> None:
    lives.put("""
        graph:
          nodes:
            - id: A
              type: agent
              config: {provider: fake, name: m, tooling: [{type: function, config: {tools: [{name: ask}]}}]}
          edges: []
    """)
    ask = "def ask(_context):\n    return _context['human_prompt'].request('Boss', 'Tea?').text\n"
    lives.put(ask, "functions/function_calling/ours.py")
    fake_model.answer_with(
        lambda request: Reply(text=str(request.results[-1])) if request.results else Reply(calls=[("ask", {})])
    )
    await lives.begin(until=lambda event: event.kind == "question.asked", answers={}, yes=True)
    (id,) = [row.question.id for _, row in lives.rows() if isinstance(row, Asked)]
    outcome = await lives.go_on(answers={"Boss": "yes please"})
    assert lives.questions == [(id, "Boss")]
    assert '"status":"unknown"' in outcome.output
    assert '"asked":[{"question":"Tea?","answer":"yes please"}]' in outcome.output


async def test_a_nested_workflow_finds_its_own_directory_again(lives: Lives) -> None:
    lives.put("""
        graph:
          nodes:
            - {id: Other, type: agent, config: {provider: callboard, name: other.yaml}}
            - {id: Here, type: python, config: {code: "import os; print(os.listdir())"}}
          start: [Other]
          edges: [{from: Other, to: Here}]
    """)
    lives.put(
        """
        graph:
          start: [Make]
          nodes:
            - {id: Make, type: python, config: {code: "open('made', 'w').write('x')"}}
            - {id: Ask, type: human, config: {}}
            - {id: Read, type: python, config: {code: "print(open('made').read())"}}
          edges: [{from: Make, to: Ask}, {from: Ask, to: Read}]
        """,
        "other.yaml",
    )
    await lives.begin(until=entered("Ask"), answers={})
    assert {path.name for path in lives.beside()} == {"Make.py", "made"}
    await lives.go_on(until=entered("Here"), answers={"Ask": "go"})
    assert lives.beside() == []
    outcome = await lives.go_on(answers={"Here": "again"})
    assert outcome.output == "['Here.py']\n"


# --- what is no data --------------------------------------------------------------------------------------


async def test_a_python_object_in_what_a_node_says_is_told_by_node_and_place(
    lives: Lives, plugin: type[Plugin]
) -> None:
    lives.put("""
        graph:
          start: [Greet]
          nodes:
            - {id: Greet, type: plugin, config: {object: true}}
            - {id: Ask, type: human, config: {}}
          edges: [{from: Greet, to: Ask}]
    """)
    await lives.begin(until=entered("Ask"), answers={})
    why = "node 'Greet' has a type at `outputs.0.metadata.thing`, which can't be stored in the journal"
    assert lives.spoilt == [f"{why} (Encoding objects of type type is unsupported)"]
    assert await trio.to_thread.run_sync(interrupted, os.environ) == [], "it was cancelled, and is not left to the next"


SHARING = """
    graph:
      start: [A]
      nodes:
        - {id: A, type: human, config: {}}
        - {id: B, type: human, config: {}}
        - {id: C, type: passthrough, config: {}}
      edges:
        - {from: A, to: B, process: {type: function, config: {name: put}}}
        - {from: B, to: C, process: {type: function, config: {name: put}}}
"""


async def test_what_processors_share_is_there_again_also_what_they_have_made_of_the_variables(lives: Lives) -> None:
    lives.put("vars: {n: 1}\n" + SHARING.replace("\n    ", "\n"))
    code = """
        def put(text, context):
            context.setdefault("seen", []).append(text)
            context["vars"]["n"] += 1
            return f"{context['seen']} {context['vars']['n']}"
    """
    lives.put(code, "functions/edge_processor/ours.py")
    await lives.begin(until=entered("B"), answers={"A": "a"})
    assert (await lives.go_on(answers={"B": "b"})).output == "['a', 'b'] 3"


@pytest.mark.parametrize(
    ("value", "kind"), [("{1}", "set"), ("(1, 2)", "tuple"), ("abs", "builtin_function_or_method")]
)
async def test_an_object_that_processors_share_is_told_by_function_and_key(lives: Lives, value: str, kind: str) -> None:
    lives.put(SHARING)
    code = f"def put(text, context):\n    context['kept'] = {value}\n    return text\n"
    file = lives.put(code, "functions/edge_processor/ours.py")
    await lives.begin(until=entered("B"), answers={"A": "a"})
    assert lives.spoilt == [
        (
            f"processor 'put' of {file} stored a {kind} under 'kept' in the data that processors share, "
            "which is not JSON data"
        )
    ]


# --- what it leaves ---------------------------------------------------------------------------------------

UNITS = """
    graph:
      start: [S]
      nodes:
        - {id: S, type: literal, config: {content: "1\\n2\\n3"}}
        - id: T
          type: subgraph
          config:
            type: config
            config:
              start: [In]
              nodes:
                - {id: In, type: passthrough, config: {}}
                - {id: Ask, type: human, config: {}}
                - id: Deep
                  type: subgraph
                  config: {type: config, config: {nodes: [{id: Low, type: passthrough, config: {}}], edges: []}}
              edges: [{from: In, to: Ask}, {from: Ask, to: Deep}]
        - {id: Last, type: human, config: {}}
        - {id: E, type: passthrough, config: {only_last_message: false}}
      edges:
        - {from: S, to: T, dynamic: {type: TYPE, config: {split_type: lines, max_parallel: 1, group_size: 2}}}
        - {from: T, to: Last}
        - {from: Last, to: E}
"""


@pytest.mark.parametrize("type", ["map", "tree"])
@pytest.mark.parametrize("stops", [[exited("T", 0)], [exited("T", 0), entered("Last")], [entered("Last")]])
@pytest.mark.sample(3)
async def test_what_units_of_subgraphs_have_left_is_the_same_as_of_an_unbroken_run(
    lives: Lives, type: str, stops: list[Any]
) -> None:
    flow = UNITS.replace("TYPE", type)
    if type == "map":
        flow = flow.replace(", group_size: 2", "")
    lives.put(flow)
    answers = {"Ask": "well", "Last": "done"}
    whole = await lives.begin(answers=answers, id="run-2")
    first, *more = stops
    await lives.begin(until=first, answers=answers if first is stops[0] else {})
    for stop in more:
        await lives.go_on(until=stop, answers={"Ask": "well"})
    again = await lives.go_on(answers=answers)
    for left in ("output", "order", "final_messages", "leftover"):
        assert getattr(again, left) == getattr(whole, left), left
    assert again.nodes.keys() == whole.nodes.keys()


async def test_what_was_said_before_a_failure_is_kept_in_each_life(lives: Lives, tmp_path: Path) -> None:
    lives.put("""
        graph:
          start: [S]
          end: [Ask]
          nodes:
            - {id: S, type: literal, config: {content: "a\\nb"}}
            - {id: M, type: human, config: {}}
            - {id: Ask, type: human, config: {}}
          edges:
            - {from: S, to: M, dynamic: {type: map, config: {split_type: lines, max_parallel: 1}}}
            - {from: S, to: Ask}
    """)
    await lives.begin(until=exited("M", 0), answers={"M": "x"}, save=str(tmp_path / "saved"))
    outcome = await lives.go_on()
    assert outcome.status == "failed"
    outputs = json.loads((tmp_path / "saved" / "run-1" / "outputs.json").read_text())
    assert [said["content"] for said in outputs["M"]] == ["x"]


async def test_what_a_workflow_has_is_removed_with_it_and_not_before(lives: Lives) -> None:
    lives.put("""
        graph:
          start: [Make]
          memory: [{name: b, type: blackboard}]
          nodes:
            - {id: Make, type: python, config: {code: "open('made', 'w').write('x')"}}
            - {id: Ask, type: human, config: {memories: [{name: b, read: true, write: true}]}}
            - {id: Again, type: human, config: {memories: [{name: b, read: true}]}}
          edges: [{from: Make, to: Ask}, {from: Ask, to: Again}]
    """)
    await lives.begin(until=entered("Ask"), answers={})
    assert {path.name for path in lives.beside() if path.suffix != ".memory"} == {"Make.py", "made"}
    await lives.go_on(until=entered("Again"), answers={"Ask": "remember this"})
    assert [path.suffix for path in lives.beside() if path.parent.parent.name == "memory"] == [".memory"]
    outcome = await lives.go_on(answers={"Again": "well"})
    assert (outcome.output, lives.beside()) == ("well", [])
    assert lives.texts == ["=== INPUT FROM Ask (user) ===\n\nremember this\n\n--- b ---\n1. remember this"]


async def test_rows_say_once_what_goes_over_many_edges(lives: Lives) -> None:
    nodes = "\n".join(f"        - {{id: N{i}, type: passthrough, config: {{}}}}" for i in range(9))
    edges = "\n".join(f"        - {{from: A, to: N{i}}}" for i in range(9))
    lives.put(
        "    graph:\n      start: [A]\n      end: [N0]\n      nodes:\n        - {id: A, type: human, config: {}}\n"
        f"{nodes}\n      edges:\n{edges}\n"
    )
    outcome = await lives.begin(answers={"A": "x" * 1_000})
    assert outcome.output == "x" * 1_000
    (fired,) = [
        row.message for _, row in lives.rows() if isinstance(row, MessageRow) and isinstance(row.message, Fired)
    ]
    assert [crossing.arrives for crossing in fired.crossings] == [0] * 9


# --- prepared answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("prepared", [["two"], {"Second": "two"}])
async def test_answers_that_are_prepared_for_the_next_life_replace_those_of_the_first(
    lives: Lives, prepared: Any
) -> None:
    lives.put("""
        graph:
          start: [First]
          nodes:
            - {id: First, type: human, config: {}}
            - {id: Second, type: human, config: {}}
          edges: [{from: First, to: Second}]
    """)
    flow = str(lives.home / "flow.yaml")

    async def until_the_second(root: Any, heard: Any) -> Any:
        return await callboard.run(
            flow, "TASK", durable=True, id="run-1", root=root, on_event=heard, answers={"First": "one", "Secnd": "x"}
        )

    await lives.live(until_the_second, entered("Second"), {})

    async def with_answers(root: Any, heard: Any) -> Any:
        return await resume(root, "run-1", on_event=heard, answers=prepared)

    outcome = await lives.live(with_answers, None, None)
    assert (outcome.status, outcome.output) == ("done", "two")
    assert not [event for event in lives.events if getattr(event.data, "code", "") == "answers_left"]
