"""DevAll's guide, example by example: each is read as it stands there, and run."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml
from support.fake_models import Reply
from support.workflow_agents import Agents
from support.workflow_driver import Delivered, Notice, WorkflowDriver, structure, workflow
from support.workflow_guide import EXAMPLES, example

from callboard.protocol.workflow import read_workflow

TWO = '[{"name": "Ann"}, {"name": "Bob"}]'


@dataclass
class Run:
    """How an example is run, and what comes of it.

    Attributes:
        output: of the run.
        order: who ran.
        says: what the model says, reply by reply; then `TWO`.
        answers: of the people in it.
        more: keys of the graph that the example leaves out.
    """

    output: str
    order: list[str]
    task: str = "TASK"
    says: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)


RUNS = {
    "3 human": Run("well", ["N"], answers=["well"]),
    "3 state memory": Run("go", ["environment", "HumanControl"], answers=["go"], more={"end": ["HumanControl"]}),
    "3 feedback memory": Run("fine", ["processor", "reviewer"], answers=["fine"], more={"end": ["reviewer"]}),
    "3 loop_counter": Run("", ["N"]),
    "3 loop_timer": Run("", ["N"]),
    "3 passthrough": Run("TASK", ["N"]),
    "3 literal": Run("Static content text", ["N"]),
    "3 python_runner": Run("42\n", ["N"], task="```python\nprint(6 * 7)\n```"),
    "4.1 soft reset": Run("TASK", ["UserInput", "Agent"]),
    "4.1 hard reset": Run("TASK", ["LoopControl", "StartNode"]),
    "4.1 preserve system instructions": Run("TASK", ["SystemSetup", "UserInput", "Agent"]),
    "4.1 recursive workflows with isolation": Run("TASK", ["HumanControl", "StartNode"]),
    "4.1 accumulate important context": Run("TASK", ["CriticalNode", "TemporaryNode", "Aggregator"]),
    "4.2 keyword condition": Run("SUCCESS: READY, VERIFIED", ["A", "B"], task="SUCCESS: READY, VERIFIED"),
    "4.2 regex condition": Run("result: 5", ["A", "B"], task="result: 5"),
    "5.2 attachment": Run(TWO, ["PatientGenerator"]),
    "5.2 uniqueness across rounds": Run(TWO, ["N"]),
    "5.2 recent context": Run(TWO, ["N"]),
    "5.2 memory of people": Run("good", ["HumanFeedback"], answers=["good"]),
    "6.1 reflection": Run("refined", ["environment"], says=["draft", "refined"]),
    "6.2 thinking with memory": Run("refined", ["PatientGenerator"], says=["draft", "refined"]),
    "7.1 map": Run('{"name": "Bob"}', ["PatientGenerator", "NurseIntake"], task=TWO),
    "7.3 hospital": Run(TWO, ["PatientGenerator", "NurseIntake"]),
    "8.1 template": Run(
        "USER INPUT: TASK\nINSTRUCTION: Update the environment based on user input.\n", ["HumanControl", "environment"]
    ),
    "8.2 regex extract": Run("42", ["Analyzer", "Processor"], task="so, RESULT: 42"),
    "10 recursive hospital": Run(
        "Simulation complete.",
        [*["environment", "PatientGenerator", "NurseIntake", "HumanControl"] * 2, "SimulationEnd"],
        answers=["continue", "SIMULATION ENDED."],
    ),
    "13 recursive workflow": Run("TASK", ["HumanControl", "StartNode"]),
    "13 memory-based uniqueness": Run("refined", ["Generator"], says=["draft", "refined"]),
    "13 parallel processing with aggregation": Run(
        '{"name": "Bob"}', ["Generator", "Processor", "Aggregator"], task=TWO
    ),
    "13 conditional branching": Run("I APPROVE", ["Decision", "PathA"], task="I APPROVE"),
}

ALONE = {"1 whole file", "3 node", "3 agent", "3 separate memory", "4 edge", "5.1 store"}
"""Examples with a test of their own below."""

MORE_OF_THE_HOSPITAL = [
    {"from": "environment", "to": "PatientGenerator"},
    {"from": "NurseIntake", "to": "HumanControl"},
]


def errors_of(text: str, **options: Any) -> list[str]:
    _, problems = read_workflow(text, "wf.yaml", **options)
    return [problem.code for problem in problems if problem.severity == "error"]


def test_every_example_is_looked_at() -> None:
    assert len(EXAMPLES) == 36
    assert RUNS.keys() | ALONE == EXAMPLES.keys()


@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize("name", RUNS)
async def test_an_example_runs_as_it_stands_in_the_guide(name: str, agents: Agents) -> None:
    run = RUNS[name]
    agents.models.script(*run.says)
    agents.models.answer_with(lambda _: TWO)
    result = await agents.run(completed(name), run.task, answers=run.answers)
    assert result.error is None
    assert (result.output, result.order) == (run.output, run.order)


def completed(name: str) -> str:
    """An example with what it leaves out, in the words of this page's table."""
    more = RUNS[name].more
    if name == "10 recursive hospital":
        edges = yaml.safe_load(EXAMPLES[name])["graph"]["edges"]
        more = {"start": ["environment"], "edges": [*MORE_OF_THE_HOSPITAL, *edges]}
    return example(name, **more)


# --- skeletons --------------------------------------------------------------------------------------------


def test_the_whole_file_lacks_only_its_nodes() -> None:
    environ = {"API_KEY": "k", "BASE_URL": "http://127.0.0.1:9/v1"}
    text = EXAMPLES["1 whole file"]
    assert errors_of(text, environ=environ) == ["no_nodes"]
    assert errors_of(text, environ={}).count("unknown_variable") == 2
    filled = text.replace("nodes: []", "nodes: [{id: A, type: human, config: {}}]")
    found, problems = read_workflow(filled, "wf.yaml", environ=environ)
    assert found is not None
    assert problems == []
    assert found.vars == environ


def test_the_other_skeletons_lack_what_they_say_is_missing() -> None:
    nodes = "graph:\n  nodes:\n" + textwrap.indent(EXAMPLES["3 node"], "  ")
    assert errors_of(nodes) == ["wrong_type"]  # it is three dots
    assert errors_of(nodes.replace("    ...", "    {provider: openai, name: m}")) == []
    edge = "graph:\n  nodes:\n"
    edge += "".join(f"  - {{id: {end}NodeID, type: passthrough, config: {{}}}}\n" for end in ("Source", "Target"))
    edge += "  edges:\n" + textwrap.indent(EXAMPLES["4 edge"], "  ")
    assert errors_of(edge) == ["missing_key"]  # the pattern of `split_type: regex`
    assert errors_of(edge.replace("split_type: regex", "split_type: regex\n        pattern: ','")) == []


def test_memories_beside_config_are_told_where_they_belong() -> None:
    text = "graph:\n  nodes:\n" + textwrap.indent(EXAMPLES["3 separate memory"], "  ")
    _, problems = read_workflow(text, "wf.yaml")
    assert [problem.line for problem in problems if "`config`" in f"{problem.hint}"] == [4, 7]
    rest = "  memory: [{name: agent_a_memory, type: simple}, {name: human_b_memory, type: simple}]\n  edges:\n"
    rest += "    - {from: agent_a, to: human_b}\n"
    assert errors_of(text.replace("    memories:", "    type: human\n    config:\n     memories:") + rest) == []


def test_a_store_may_say_what_makes_its_vectors() -> None:
    text = textwrap.dedent(EXAMPLES["5.1 store"]) + "  nodes:\n    - {id: A, type: human, config: {}}\n"
    found, _ = read_workflow(text, "wf.yaml", environ={"BASE_URL": "http://127.0.0.1:9/v1", "API_KEY": "k"})
    assert found is not None
    embedding = found.graph.memory[0].config.embedding
    assert embedding is not None
    assert (embedding.provider, embedding.model) == ("openai", "text-embedding-bge-reranker-v2-m3")
    assert (embedding.base_url, embedding.api_key) == ("http://127.0.0.1:9/v1", "k")


async def test_the_agent_of_the_guide_calls_its_tool(agents: Agents) -> None:
    functions = agents.home / "functions" / "function_calling"
    functions.mkdir(parents=True)
    (functions / "files.py").write_text('def read_file(path: str) -> str:\n    """Reads."""\n    return "in " + path\n')
    agents.models.script(Reply(calls=[("read_file", {"path": "a.txt"})]), "it says so")
    variables = {"BASE_URL": agents.models.openai_base, "API_KEY": "sk-guide"}
    result = await agents.run(example("3 agent"), variables=variables)
    assert (result.error, result.output) == (None, "it says so")
    first, second = agents.models.requests
    assert (first.json["model"], first.json["temperature"], first.offered) == ("gpt-4o", 0.7, ["read_file"])
    assert first.headers["authorization"] == "Bearer sk-guide"
    assert second.results == ["in a.txt"]


# --- what the guide tells of contexts ---------------------------------------------------------------------


def test_the_demo_of_resets_leaves_in_the_queue_what_the_guide_says() -> None:
    nodes = "".join(
        f"    - {{id: {id}, type: literal, config: {{content: {id}}}}}\n"
        for id in ("entry_normal", "entry_keep", "soft_reset", "hard_reset")
    )
    found = workflow(
        f"""
graph:
  start: [entry_normal, entry_keep, soft_reset, hard_reset]
  nodes:
{nodes}
    - {{id: collector, type: passthrough, config: {{only_last_message: false}}}}
  edges:
    - {{from: entry_normal, to: collector, keep_message: false}}
    - {{from: entry_keep, to: collector, keep_message: true}}
    - {{from: soft_reset, to: collector, clear_context: true}}
    - {{from: hard_reset, to: collector, clear_context: true, clear_kept_context: true}}
"""
    )
    queue: list[str] = []
    states: list[list[str]] = []

    def hear(notice: Notice) -> None:
        if getattr(notice, "target", "") != "collector":
            return
        if isinstance(notice, Delivered):
            queue.append(notice.message.text)
            states.append(list(queue))
        else:
            for message in notice.messages:
                queue.remove(message.text)

    result = WorkflowDriver(tell=hear).run(structure(found))
    assert states == [
        ["entry_normal"],
        ["entry_normal", "entry_keep"],
        ["entry_keep", "soft_reset"],
        ["hard_reset"],
    ]
    assert [message.text for message in result.final_messages] == ["hard_reset"]


def test_kept_instructions_survive_what_the_user_clears() -> None:
    text = example("4.1 preserve system instructions").replace("type: passthrough", "type: human")
    workflow_driver = WorkflowDriver(answers=["Be kind.", "Hello.", "done"])
    workflow_driver.run(structure(workflow(text)))
    assert [message.text for message in workflow_driver.inputs[-1][1]] == ["Be kind.", "Hello."]
