"""DevAll workflows as targets: found, read with their variables, run, kept, and called by others."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
import trio
from support.agent_runs import AgentRunner
from support.messages import has_message, says

import callboard
from callboard.actors.runs import files
from callboard.protocol.errors import InvalidFile, UsageError

GREETING = """
    vars: {NAME: Ada}
    graph:
      id: greeting
      nodes:
        - {id: Hello, type: literal, config: {content: "hello ${NAME}"}}
        - {id: All, type: passthrough, config: {only_last_message: false}}
      edges: [{from: Hello, to: All}]
"""

ASKING = """
    graph:
      start: [First]
      nodes:
        - {id: First, type: literal, config: {content: first}}
        - {id: Boss, type: human, config: {description: "Well?"}}
      edges: [{from: First, to: Boss}]
"""


def put(directory: Path, text: str, name: str = "flow.yaml") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(textwrap.dedent(text))
    return directory / name


async def test_a_workflow_runs_and_its_outcome_has_its_messages(agent_runner: AgentRunner, tmp_path: Path) -> None:
    outcome = await agent_runner.run("task", put(tmp_path, GREETING))
    assert (outcome.status, outcome.output, outcome.order) == ("done", "hello Ada", ["Hello", "All"])
    wire = outcome.to_wire()
    assert wire["final_messages"] == [{"role": "user", "content": "hello Ada", "source": "Hello"}]
    assert wire["leftover"] == {}
    agent_runner.check_stream()
    assert agent_runner.of("run.started")[0].dialect == "workflow"


async def test_only_a_workflow_has_messages(agent_runner: AgentRunner) -> None:
    agent_runner.agent("start: e\nnodes:\n  e: {type: end, output: x}\n")
    assert not {"final_messages", "leftover"} & (await agent_runner.run()).to_wire().keys()


async def test_variables_come_from_the_caller_the_file_and_the_dotenv_beside_it(
    agent_runner: AgentRunner, tmp_path: Path
) -> None:
    file = put(tmp_path, GREETING)
    assert (await agent_runner.run("task", file, variables={"NAME": "Bob"})).output == "hello Bob"
    put(tmp_path, GREETING.replace("NAME: Ada", "X: 1"))
    with pytest.raises(InvalidFile, match="NAME"):
        await agent_runner.run("task", file)
    (tmp_path / ".env").write_text("NAME=Eve\n")
    assert (await agent_runner.run("task", file)).output == "hello Eve"


async def test_a_variable_that_nothing_refers_to_is_told(agent_runner: AgentRunner, tmp_path: Path) -> None:
    file = put(tmp_path, GREETING)
    known = {"NAME": "Zoe", "OTHER": "${DEEP}", "DEEP": "x"}
    await agent_runner.run("go", file, variables=known)
    assert [warned.message for warned in agent_runner.of("run.warning")] == [
        f"{file}: warning: the variable `OTHER` is set by the caller, and nothing refers to `${{OTHER}}`"
    ]
    found = callboard.validate(file, variables={"NAMES": "Zoe"})
    assert [(each.code, each.hint) for each in found] == [("unused_variable", "did you mean 'NAME'?")]


async def test_files_of_subgraphs_are_found_beside_who_names_them(agent_runner: AgentRunner, tmp_path: Path) -> None:
    inner = "{id: S, type: subgraph, config: {type: file, config: {path: PATH}}}"
    flow = "\ngraph:\n  nodes: [NODE]\n  edges: []\n"
    file = put(tmp_path, flow.replace("NODE", inner.replace("PATH", "parts/one.yaml")))
    put(tmp_path / "parts", flow.replace("NODE", inner.replace("PATH", "two.yaml")), "one.yaml")
    put(tmp_path / "parts", GREETING, "two.yaml")
    outcome = await agent_runner.run("task", file)
    assert (outcome.output, outcome.order) == ("hello Ada", ["S", "S", "Hello", "All"])
    (tmp_path / "parts" / "two.yaml").unlink()
    problems = callboard.validate(file)
    assert [(Path(problem.file).name, problem.code) for problem in problems] == [("one.yaml", "missing_file")]


async def test_all_that_is_wrong_with_a_workflow_is_told_before_it_runs(
    agent_runner: AgentRunner, tmp_path: Path
) -> None:
    file = put(tmp_path, GREETING.replace("type: literal", "type: literall").replace("to: All", "to: Al"))
    with pytest.raises(InvalidFile) as caught:
        await agent_runner.run("task", file)
    assert {problem.line for problem in caught.value.problems} == {6, 8}


async def test_a_dialect_from_outside_wins_over_the_file(agent_runner: AgentRunner, tmp_path: Path) -> None:
    file = put(tmp_path, GREETING)
    with pytest.raises(InvalidFile, match=says("protocol.workflow.read.with_ends.4")):
        await agent_runner.run("task", file, compat="devall")
    with pytest.raises(
        UsageError, match=says("protocol.requests.RunRequest.__post_init__", COMPAT="standard, loki, devall")
    ):
        await agent_runner.run("task", file, compat="langgraph")


async def test_a_cancelled_workflow_keeps_what_was_said(agent_runner: AgentRunner, tmp_path: Path) -> None:
    asked = trio.Event()
    with agent_runner.root.questions.attach(Silent(asked)):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agent_runner.run, "task", put(tmp_path, ASKING))
            await asked.wait()
            nursery.cancel_scope.cancel()
    outcome = agent_runner.of("run.cancelled")[0].outcome
    assert outcome["order"] == ["First", "Boss"]
    assert outcome["leftover"] == {"Boss": [{"role": "user", "content": "first", "source": "First"}]}


class Silent:
    """A front end whose person says nothing."""

    name = "silent"

    def __init__(self, asked: trio.Event) -> None:
        self._asked = asked

    def asked(self, question: object) -> None:
        self._asked.set()

    def closed(self, question_id: str, by: str) -> None:
        pass


async def test_attachments_reach_the_nodes_and_the_workspace(agent_runner: AgentRunner, tmp_path: Path) -> None:
    reading = """
        graph:
          start: [Look, Read]
          end: [Read]
          nodes:
            - {id: Look, type: human, config: {}}
            - {id: Read, type: python, config: {code: "print(open('attachments/note.txt').read())"}}
          edges: []
    """
    (tmp_path / "note.txt").write_text("hello")
    (tmp_path / "dot.png").write_bytes(b"\x89PNG")
    file = put(tmp_path, reading)
    given = [tmp_path / "note.txt", tmp_path / "dot.png"]
    outcome = await agent_runner.run("see", file, attach=given, answers=["seen"])
    assert outcome.output == "hello\n"
    (question,) = agent_runner.of("question.asked")
    assert question.question["text"].endswith("see\n[file: note.txt, 5 bytes]\n[image: image/png, 4 bytes]")
    with pytest.raises(UsageError, match=says("runs.files.attached", each="…gone.txt")):
        await agent_runner.run("see", file, attach=[tmp_path / "gone.txt"])
    agent_runner.agent("start: e\nnodes:\n  e: {type: end, output: x}\n")
    with pytest.raises(UsageError, match=says("runs.begin.check_fits.4", name="g")):
        await agent_runner.run("see", attach=given)


async def test_an_attachment_that_cant_be_read_or_grows_fails_the_run_and_says_why(
    agent_runner: AgentRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(tmp_path, GREETING)
    outcome = await agent_runner.run("task", file, attach=["/proc/self/mem"])
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.message) == (
        "usage",
        "/proc/self/mem can't be attached: Input/output error",
    )
    monkeypatch.setattr(files, "LARGEST", 3)
    outcome = await agent_runner.run("task", file, attach=["/proc/self/status"])  # which says that it is empty
    assert outcome.error is not None
    assert has_message(outcome.error.message, "runs.files._too_large", path="/proc/self/status")


async def test_a_run_that_is_saved_is_there_as_files(agent_runner: AgentRunner, tmp_path: Path) -> None:
    file = put(
        tmp_path,
        GREETING.replace("type: passthrough", "type: python").replace(
            "{only_last_message: false}", '{code: \'print(open("n", "w").write("x"))\'}'
        ),
    )
    outcome = await agent_runner.run("task", file, save=tmp_path / "runs")
    home = tmp_path / "runs" / outcome.run_id
    assert sorted(path.name for path in home.iterdir()) == [
        "log.jsonl",
        "outcome.json",
        "outputs.json",
        "usage.json",
        "workspace",
    ]
    assert home.stat().st_mode & 0o777 == 0o700
    assert json.loads((home / "outcome.json").read_text()) == json.loads(json.dumps(outcome.to_wire()))
    outputs = json.loads((home / "outputs.json").read_text())
    assert outputs["Hello"] == [{"role": "user", "content": "hello Ada", "source": "Hello"}]
    log = [json.loads(line) for line in (home / "log.jsonl").read_text().splitlines()]
    assert [event["seq"] for event in log] == list(range(1, len(agent_runner.events) + 1))
    assert (home / "workspace" / "n").read_text() == "x"
    with pytest.raises(UsageError, match=says("runs.files.Saved.__init__")):
        await agent_runner.run("task", file, save=file)


async def test_an_agent_node_of_a_graph_may_name_a_workflow(agent_runner: AgentRunner) -> None:
    graph = """
        start: ask
        nodes:
          ask:
            type: agent
            agent: flow.yaml
            prompt: go
            inputs: {NAME: Zoe}
            state_updates: {said: "{{output}}"}
            next: e
          e: {type: end, output: "{{said}}"}
    """
    put(agent_runner.agent(graph), GREETING)
    assert callboard.validate("g", config_dir=agent_runner.config_dir) == []
    assert (await agent_runner.run("x")).output == "hello Zoe"


async def test_people_are_asked_by_a_workflow_that_a_graph_has_called(agent_runner: AgentRunner) -> None:
    graph = """
        start: ask
        nodes:
          ask: {type: agent, agent: flow.yaml, prompt: go, state_updates: {said: "{{output}}"}, next: e}
          e: {type: end, output: "{{said}}"}
    """
    put(agent_runner.agent(graph), ASKING)
    outcome = await agent_runner.run("x", answers={"Boss": "well enough"})
    assert outcome.output == "well enough"
    (actor,) = [event.actor for event in agent_runner.events if event.kind == "question.asked"]
    assert actor.endswith("/g/ask/flow/Boss")


STRANGE = """
    graph:
      start: [A]
      memory: [{name: m, type: simple, config: {embedding: {provider: openai, model: e, base_url: "BASE"}}}]
      nodes:
        - id: A
          type: agent
          config: {provider: openai, name: m, base_url: "BASE", memories: [{name: m, read: true}], role: hi}
      edges: []
"""


def test_a_file_that_names_an_address_is_given_no_key_and_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    file = put(tmp_path, STRANGE.replace("BASE", "http://elsewhere.example/v1"))
    problems = callboard.validate(file)
    assert [(problem.code, problem.line) for problem in problems] == [("withheld_key", 4), ("withheld_key", 8)]
    assert has_message(problems[0].message, "protocol.workflow.parts._check_key", key="OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://elsewhere.example/v1")
    assert callboard.validate(file) == []


async def test_units_of_a_human_node_take_prepared_answers_in_their_order(
    agent_runner: AgentRunner, tmp_path: Path
) -> None:
    file = put(
        tmp_path,
        """
        graph:
          id: g
          nodes:
            - {id: A, type: literal, config: {content: '["first", "second", "third"]'}}
            - {id: H, type: human, config: {}}
          edges:
            - {from: A, to: H, dynamic: {type: map, config: {split_type: json_array}}}
        """,
    )
    for answers in (["a1", "a2", "a3"], {"H": ["a1", "a2", "a3"]}):
        asked = len(agent_runner.of("question.asked"))
        outcome = await agent_runner.run("x", file, answers=answers)
        assert outcome.status == "done"
        texts = [event.question["text"] for event in agent_runner.of("question.asked")][asked:]
        assert [text.split()[-1] for text in texts] == ["first", "second", "third"]
