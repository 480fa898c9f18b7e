"""`callboard test`: cases beside agents, as a user has them played, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import trio
from support.fake_models import FakeModels, Reply, Request
from support.messages import has_message
from support.starter import CALLBOARD

GRAPH = """
name: writer
start: plan
global_tools: [execute_command]
initial_state: {topic: dogs}
nodes:
  plan: {type: llm, prompt: "PLAN {{topic}} for {{initial_prompt}}", tools: [execute_command], next: ok}
  ok: {type: approval, question: "Send it?", options: ["yes", "no"], routes: {"yes": out, "no": done}, on_other: done}
  out: {type: script, script: out.sh, next: done}
  done: {type: end, output: '{"topic": "{{topic}}", "for": ["{{initial_prompt}}"]}'}
"""

CASES = """
defaults: {yes: true}
cases:
  - name: all as it should be
    prompt: Ann
    state: {topic: cats}
    answers: {ok: yes}
    expect:
      output: {contains: cats, matches: '^."topic"'}
      json: {topic: cats, "for[0]": Ann}
      schema: {type: object, required: [topic]}
      state: {topic: {one_of: [cats, dogs]}}
      nodes: [plan, out, done]
      visits: {plan: 1, never: 0}
      calls: [{tool: execute_command, arguments: {command: {contains: "echo called"}}, times: 1}]
      no_calls: [fs_rm]
      asks: [Send it?]
      at_most: {turns: 2, tokens: 100, tool_calls: 1}
      judge: [{rubric: It is about cats.}]
  - name: nobody is there
    prompt: Bob
    expect: {error: nobody_to_ask}
"""


class Project:
    """A directory with an agent and its cases."""

    def __init__(self, home: Path, models: FakeModels) -> None:
        self.home = home
        self.models = models
        self.config = models.config_dir(home / "config")
        self.agent = home / "agents" / "writer"
        self.agent.mkdir(parents=True)
        (self.agent / "graph.yaml").write_text(GRAPH)
        (self.agent / "out.sh").write_text(f"echo out >> {home}/world\necho '{{}}'\n")
        self.cases(CASES)

    def cases(self, text: str, name: str = "tests.yaml") -> None:
        (self.agent / name).parent.mkdir(exist_ok=True)
        (self.agent / name).write_text(text)

    @property
    def effects(self) -> int:
        world = self.home / "world"
        return len(world.read_text().split()) if world.exists() else 0

    async def test(self, *words: str) -> tuple[int, str, str]:
        program = [*CALLBOARD, "test", "--config-dir", str(self.config), *words]
        environ = {**os.environ, "XDG_STATE_HOME": str(self.home / "state")}
        done = await trio.run_process(
            program,
            cwd=self.home,
            env=environ,
            stdin=subprocess.DEVNULL,
            check=False,
            capture_stdout=True,
            capture_stderr=True,
        )
        return done.returncode, done.stdout.decode(), done.stderr.decode()


def _is_of_cats(request: Request) -> bool:
    return '"topic": "cats"' in request.prompt


def model(verdict: Callable[[Request], bool] = _is_of_cats) -> Callable[[Request], Reply]:
    """Calls a tool, and judges."""

    def say(request: Request) -> Reply:
        if "You judge" in request.system:
            return Reply(text=f'```json\n{{"pass": {str(verdict(request)).lower()}, "reason": "so it is"}}\n```')
        if not request.results:
            return Reply(calls=[("execute_command", {"command": "echo called"})])
        return Reply(text="a plan")

    return say


@pytest.fixture
def project(tmp_path: Path, fake_model: FakeModels) -> Project:
    fake_model.answer_with(model())
    return Project(tmp_path, fake_model)


async def test_cases_are_recorded_once_and_played_without_a_model_from_then_on(project: Project) -> None:
    code, out, _ = await project.test()
    assert code == 1
    assert has_message(out, "runs.rerun.cases._result")
    assert has_message(out, "runs.rerun.cases._result")
    code, out, err = await project.test("--update")
    assert (code, out.splitlines()[-1]) == (0, "2 cases passed"), out + err
    requests, effects = len(project.models.requests), project.effects
    assert (requests, effects) == (5, 1)
    (project.config / "config.yaml").unlink()
    code, out, err = await project.test("agents", "--junit", "out/junit.xml", "--json", "out/report.json")
    assert (code, out.splitlines()[-1]) == (0, "2 cases passed"), out + err
    assert (len(project.models.requests), project.effects) == (requests, effects)
    suites = ET.parse(project.home / "out" / "junit.xml").getroot()
    assert (suites.get("tests"), suites.get("failures")) == ("2", "0")
    names = [(case.get("name"), case.get("file"), case.get("line")) for case in suites.iter("testcase")]
    assert names[0] == ("all as it should be", "agents/writer/tests.yaml", "4")
    report = json.loads((project.home / "out" / "report.json").read_text())
    first = report["cases"][0]
    assert (first["status"], first["outcome"]["output"][:9]) == ("passed", '{"topic":')
    code, out, _ = await project.test("agents/writer/tests.yaml", "-k", "NOBODY", "-o", "json")
    assert code == 0
    assert [case["name"] for case in json.loads(out)["cases"]] == ["nobody is there"]


async def test_what_is_not_as_expected_is_said_case_by_case(project: Project) -> None:
    wrong = """
defaults: {yes: true}
cases:
  - {name: output, ..., expect: {output: {lacks: dogs}}}
  - {name: equal, ..., expect: {output: x}}
  - {name: json, ..., expect: {json: {topic: {at_least: 3}, no.way: 1}}}
  - {name: schema, ..., expect: {schema: {required: [x]}}}
  - {name: nodes, ..., expect: {nodes: [ok, plan], visits: {out: 1}}}
  - name: calls
    prompt: A
    answers: [no]
    cassette: one.jsonl
    expect:
      calls: [{tool: execute_command, arguments: {command: ls}}, {tool: fs_cat}]
      no_calls: [execute_command]
  - {name: asks, ..., expect: {asks: [Why?]}}
  - {name: use, ..., expect: {at_most: {turns: 1, tokens: 3, cost: 1}}}
  - {name: status, ..., expect: {error: {contains: nobody}}}
  - {name: judge, prompt: A, answers: [no], cassette: two.jsonl, expect: {judge: [{rubric: It is about cats.}]}}
""".replace("...", "prompt: A, answers: [no], cassette: one.jsonl")
    project.cases(wrong)
    assert (await project.test("--update", "-k", "output"))[0] == 1
    assert (await project.test("--update", "-k", "judge"))[0] == 1
    requests = len(project.models.requests)
    code, out, _ = await project.test("-q")
    assert code == 1
    assert len(project.models.requests) == requests
    output = r'"{\"topic\": \"dogs\", \"for\": [\"A\"]}"'
    for said in (
        f'the output is {output}, and has "dogs" in it',
        f'the output is {output}, not "x"',
        'topic of the output is "dogs", and no number',
        "no.way of the output does not exist: $ has no 'no'",
        "the output does not fit the schema: $: 'x' is a required property",
        "node 'plan' is not visited in this order: plan, ok, done",
        "node 'out' is visited 0 times, not 1",
        'execute_command with {"command":"ls"} was not called; the calls were: execute_command {"command":"echo',
        "fs_cat was not called; the calls were: execute_command",
        'execute_command was called, but `no_calls` forbids it: execute_command {"command":"echo called"}',
        '"Why?" was not asked, or not in this order; the questions were: ["Send it?"]',
        "the run has used 2 turns, more than 1",
        "the run has used 30 tokens, more than 3",
        "the cost of the run is unknown",
        "the run is done, not failed",
        "the output does not satisfy the rubric 'It is about cats.': so it is",
    ):
        assert said in out, said
    assert out.splitlines()[-1] == "0 cases passed, 10 failed"


async def test_a_changed_agent_fails_its_cases_with_the_difference(project: Project) -> None:
    await project.test("--update")
    file = project.agent / "graph.yaml"
    file.write_text(file.read_text().replace("PLAN", "OUTLINE"))
    code, out, _ = await project.test("-k", "all as")
    assert code == 1
    assert "-  PLAN cats for Ann" in out
    assert "+  OUTLINE cats for Ann" in out
    text = CASES.replace("yes: true}\ncases", "yes: true, loose: true}\ncases")
    project.cases(text)
    assert (await project.test("-k", "all as"))[0] == 0
    file.write_text("name: writer\nstart: nowhere\n")
    code, out, _ = await project.test("-k", "all as")
    assert (code, has_message(out, "runs.rerun.cases._result.2")) == (1, True)


async def test_without_cassettes_cases_are_played_live(project: Project) -> None:
    project.cases("cases: [{name: a, prompt: x, yes: true, answers: [no], cassette: false}]")
    for words in ((), ("--live",)):
        code, out, _ = await project.test(*words)
        assert code == 0, out
    assert len(project.models.requests) == 4
    assert not (project.agent / "cassettes").exists()


async def test_a_file_with_errors_is_told_by_line_and_key_and_nothing_is_played(project: Project) -> None:
    project.cases("cases:\n  - name: a\n    expect: {outptu: x}\n", "tests/one.yaml")
    code, out, err = await project.test()
    assert (code, out) == (2, "")
    assert "agents/writer/tests/one.yaml:3:14: error: unknown key `outptu`" in err
    assert has_message(err, "protocol.problems.suggestion", name="output")
    for words, said in {
        ("nowhere",): "there is no file, directory or agent 'nowhere'",
        ("config",): "there are no cases in 'config'",
        ("agents/writer/tests.yaml", "-k", "zzz"): "no test case has 'zzz' in its name or file",
    }.items():
        code, _, err = await project.test(*words)
        assert (code, said in err) == (2, True), err
    assert project.models.requests == []


async def test_the_schema_of_the_file_is_printed() -> None:
    program = [*CALLBOARD, "schema", "tests"]
    done = await trio.run_process(program, capture_stdout=True)
    assert has_message(json.loads(done.stdout)["title"], "protocol.cases.cases_schema")
