"""`callboard batch`: workflows, graphs and agents; what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_models import FakeModels

from callboard.actors.runs.batch.batch import Ended
from callboard.actors.runs.batch.tasks import Task
from callboard.cli.render.batch import BatchBar
from callboard.protocol.outcome import ErrorReport, Outcome

Callboard = Callable[..., "tuple[int, str, str]"]

FLOW = """
graph:
  id: toned
  nodes:
    - {id: In, type: literal, config: {content: "fails: ${FAILS}"}}
    - {id: Person, type: human, config: {}}
    - {id: End, type: literal, config: {content: "${TONE}"}}
  start: In
  end: End
  edges:
    - {from: In, to: Person, condition: {type: keyword, config: {any: ["fails: 1"]}}}
    - {from: In, to: End}
"""
GRAPH = """
name: g
variables: [{name: who}]
start: done
nodes:
  done: {type: end, output: "got {{initial_prompt}}"}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(tmp_path / "config"))
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "g.yaml").write_text(GRAPH)
    return tmp_path


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_workflow_is_run_with_the_vars_of_each_task(callboard: Callboard, here: Path) -> None:
    (here / "t.csv").write_text('id,vars\na,"{""TONE"": ""dry""}"\nb,"{""TONE"": ""wet""}"\n')
    code, out, err = callboard("batch", "flow.yaml", "t.csv", "--var", "FAILS=0")
    assert (code, out) == (0, "2 tasks done: t.results.jsonl\n")
    assert "2 of 2: task" in err
    assert {line["id"]: line["output"] for line in lines(here / "t.results.jsonl")} == {"a": "dry", "b": "wet"}
    code, out, err = callboard("batch", "flow.yaml", "t.csv", "--var", "FAILS=0", "-o", "json")
    assert (code, json.loads(out)["earlier"], err) == (0, 2, "")


def test_failures_are_kept_apart_and_the_exit_code_tells(callboard: Callboard, here: Path) -> None:
    (here / "t.jsonl").write_text('{"id": "a", "vars": {"FAILS": 0}}\n{"id": "b", "vars": {"FAILS": 1}}\n')
    code, out, err = callboard("batch", "flow.yaml", "t.jsonl", "--var", "TONE=dry")
    assert (code, out) == (1, "1 task done: t.results.jsonl\n1 task failed: t.results.failures.jsonl\n")
    assert "task 'b' failed: " in err
    (failure,) = lines(here / "t.results.failures.jsonl")
    assert (failure["id"], failure["status"]) == ("b", "failed")


def test_vars_that_are_missing_or_unknown_are_refused_with_their_line(callboard: Callboard, here: Path) -> None:
    (here / "t.jsonl").write_text('{"id": "a", "vars": {"FAILS": 0, "TONE": "x"}}\n{"id": "b", "vars": {"FAILS": 1}}\n')
    code, _, err = callboard("batch", "flow.yaml", "t.jsonl")
    assert code == 2
    assert "t.jsonl:2:1: error: task 'b' can't be begun" in err
    assert "`${TONE}` stands for nothing" in err
    (here / "t.jsonl").write_text('{"vars": {"who": "x"}}\n{"vars": {"whom": "x"}}\n')
    code, _, err = callboard("batch", "g.yaml", "t.jsonl")
    assert code == 2
    assert "t.jsonl:2:1:" in err
    assert not (here / "t.results.jsonl").exists()


def test_a_graph_and_an_agent_have_batches_too(callboard: Callboard, models: FakeModels, tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(GRAPH)
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "config.yaml").write_text("name: agent\ninstructions: Answer.\n")
    (tmp_path / "t.csv").write_text("task\none\ntwo\n")
    tasks = str(tmp_path / "t.csv")
    code, _, _ = callboard("batch", str(tmp_path / "g.yaml"), tasks, "--var", "who=me")
    assert code == 0
    assert sorted(str(line["output"]) for line in lines(tmp_path / "t.results.jsonl")) == ["got one", "got two"]
    models.answer_with(lambda request: f"to {request.prompt}")
    other = tmp_path / "other.jsonl"
    code, _, _ = callboard("batch", str(tmp_path / "agent"), tasks, "--results", str(other))
    assert (code, sorted(str(line["output"]) for line in lines(other))) == (0, ["to one", "to two"])


def test_ctrl_c_keeps_what_is_done_and_the_next_call_goes_on(here: Path) -> None:
    code = "import pathlib, time; time.sleep(0 if pathlib.Path('${GO}').exists() else 600)"
    (here / "slow.yaml").write_text(f'graph: {{nodes: [{{id: A, type: python, config: {{code: "{code}"}}}}]}}\n')
    (here / "there").touch()
    rows = [{"id": "a", "vars": {"GO": str(here / "there")}}, {"id": "b", "vars": {"GO": str(here / "later")}}]
    (here / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "callboard.cli", "batch", "slow.yaml", "t.jsonl"]
    with subprocess.Popen(command, cwd=here, stderr=subprocess.PIPE, text=True, env=os.environ.copy()) as batch:
        assert batch.stderr is not None
        assert "task 'a' is done" in batch.stderr.readline()
        batch.send_signal(signal.SIGINT)
        told = batch.stderr.read()
        assert batch.wait(timeout=20) == 130
    assert "the same command goes on from there" in told
    assert [line["id"] for line in lines(here / "t.results.jsonl")] == ["a"]
    (here / "later").touch()
    again = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=30, check=True)
    assert again.stdout == "2 tasks done, 1 of them before: t.results.jsonl\n"


def test_a_bar_on_a_terminal_has_lines_for_what_failed(terminal: object) -> None:
    bar = BatchBar(terminal)  # type: ignore[arg-type]
    bar.begin(4, 1)
    error = ErrorReport(code="x", message="too dear")
    for outcome in (Outcome(run_id="", status="done"), Outcome(run_id="", status="failed", error=error)):
        bar.began(Task(id="a"))
        bar.ended(Ended(task=Task(id="a"), outcome=outcome, seconds=1.0))
    assert bar.picture().startswith("[===============>    ] 3 of 4 tasks, 1 failed, about ")
    assert "task 'a' failed: too dear\n" in terminal.getvalue()  # type: ignore[attr-defined]
    assert "is done" not in terminal.getvalue()  # type: ignore[attr-defined]
