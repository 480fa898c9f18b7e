"""`callboard batch`: workflows, graphs and agents; what it prints, and how it ends."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from support.descendants import is_alive
from support.fake_models import FakeModels
from support.messages import has_message
from support.starter import CALLBOARD
from support.waiting import PATIENCE

from callboard.actors.runs.batch.batch import Ended
from callboard.actors.runs.batch.tasks import BatchTask
from callboard.actors.runs.files import Saved
from callboard.cli.render import batch as batch_bar
from callboard.cli.render.batch import BatchBar, roughly
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
    assert "t.jsonl:2:1: error: task 'b' can't be started" in err
    assert has_message(err, "protocol.workflow.variables.Resolver._from_environment", name="TONE")
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
    command = [*CALLBOARD, "batch", "slow.yaml", "t.jsonl"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, "-o", "json"], cwd=here, stdout=pipe, stderr=pipe, text=True) as batch:
        assert batch.stderr is not None
        assert batch.stdout is not None
        assert has_message(batch.stderr.readline(), "cli.render.batch.BatchLines._end_line", what="…task 'a'")
        batch.send_signal(signal.SIGINT)
        told = batch.stderr.read()
        summary = json.loads(batch.stdout.read())
        assert batch.wait(timeout=PATIENCE) == 130
    assert (summary["tasks"], summary["done"], summary["failed"], summary["left"]) == (2, 1, 0, 1)
    assert has_message(told, "cli.actions.batch.run_tasks")
    assert [line["id"] for line in lines(here / "t.results.jsonl")] == ["a"]
    (here / "later").touch()
    again = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert again.stdout == "2 tasks done, 1 of them earlier: t.results.jsonl\n"


def small_files() -> None:
    """Has the kernel refuse files of more than a few kilobytes: the nearest to a full disk that needs no rights."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))


def test_a_disk_that_takes_no_more_ends_it_with_one_line_and_loses_no_result(here: Path) -> None:
    (here / "t.csv").write_text("task\n" + "x\n" * 40)
    (here / "one.yaml").write_text("graph: {nodes: [{id: A, type: literal, config: {content: a}}]}\n")
    command = [*CALLBOARD, "batch", "one.yaml", "t.csv", "-q", "--ephemeral"]
    # Python 3.11 writes half a .pyc file under such a limit, and all later imports of that module fail.
    import_module("callboard.cli.actions.batch")
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    full = subprocess.run(
        command, cwd=here, env=environ, capture_output=True, text=True, timeout=PATIENCE, preexec_fn=small_files
    )
    assert (full.returncode, full.stdout) == (1, "")
    assert full.stderr == (
        "callboard: results can no longer be written to t.results.jsonl: File too large. "
        "Fix this, then run the same command again: it continues with the remaining tasks\n"
    )
    kept = len((here / "t.results.jsonl").read_bytes().split(b"\n")) - 1
    assert 0 < kept < 40
    again = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert again.stdout == f"40 tasks done, {kept} of them earlier: t.results.jsonl\n"
    assert sorted(int(str(line["id"])) for line in lines(here / "t.results.jsonl")) == list(range(1, 41))


def test_files_of_runs_that_cant_be_written_end_it_too_and_what_was_done_stays(
    callboard: Callboard, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(saved: Saved, _name: str, _value: object) -> None:
        saved.error = "the run could not be saved to runs: No space left on device"

    (here / "t.csv").write_text("task\n" + "x\n" * 20)
    (here / "one.yaml").write_text("graph: {nodes: [{id: A, type: literal, config: {content: a}}]}\n")
    monkeypatch.setattr(Saved, "_write", full)
    code, out, err = callboard("run", "one.yaml", "go", "--save", "runs", "-q")
    assert (code, out) == (1, "a\n")
    assert has_message(err, "runs.files.Saved._failed", directory="runs", error="No space left on device")
    code, out, err = callboard("batch", "one.yaml", "t.csv", "--save", "runs", "-q", "--max-parallel", "1")
    assert (code, out) == (1, "")
    assert err == (
        "callboard: the run could not be saved to runs: No space left on device. "
        "Fix this, then run the same command again: it continues with the remaining tasks\n"
    )
    assert len(lines(here / "t.results.jsonl")) == 1


def test_answers_given_beforehand_are_every_tasks(callboard: Callboard, here: Path) -> None:
    (here / "t.jsonl").write_text('{"id": "a"}\n{"id": "b"}\n')
    (here / "ask.yaml").write_text("graph: {nodes: [{id: Person, type: human, config: {}}]}\n")
    assert callboard("batch", "ask.yaml", "t.jsonl", "--answer", "yes")[0] == 0
    assert [line["output"] for line in lines(here / "t.results.jsonl")] == ["yes", "yes"]
    (here / "a.yaml").write_text("Person: no\n")
    assert callboard("batch", "ask.yaml", "t.jsonl", "--answers", "a.yaml", "--results", "r.jsonl")[0] == 0
    assert [line["output"] for line in lines(here / "r.jsonl")] == ["no", "no"]
    code, out, _ = callboard("batch", "ask.yaml", "t.jsonl", "--results", "s.jsonl", "-q")
    assert (code, out) == (1, "0 tasks done: s.jsonl\n2 tasks failed: s.failures.jsonl\n")


def test_a_key_that_is_missing_ends_the_batch_at_its_first_task(
    callboard: Callboard, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (here / "t.csv").write_text("task\n" + "x\n" * 50)
    (here / "agent.yaml").write_text(
        "graph: {nodes: [{id: A, type: agent, config: {provider: openai, name: gpt-4o}}]}\n"
    )
    code, out, err = callboard("batch", "agent.yaml", "t.csv", "--max-parallel", "1", "-q")
    assert (code, out) == (
        3,
        "0 tasks done: t.results.jsonl\n1 task failed: t.results.failures.jsonl\n49 tasks not begun\n",
    )
    assert "OPENAI_API_KEY" in err
    assert err.endswith("callboard: stopped, since every task would fail like this; 49 tasks not begun\n")
    code, out, _ = callboard("batch", "agent.yaml", "t.csv", "--max-parallel", "1", "-o", "json")
    told = json.loads(out)
    assert (code, told["done"], told["failed"], told["left"], told["error"]["code"]) == (3, 0, 1, 49, "credentials")


def test_so_many_failures_as_are_named_end_it(callboard: Callboard, here: Path) -> None:
    (here / "t.jsonl").write_text("".join(f'{{"id": "{i}", "vars": {{"FAILS": 1}}}}\n' for i in range(9)))
    args = ("batch", "flow.yaml", "t.jsonl", "--var", "TONE=dry", "--max-parallel", "1", "--max-failures", "2", "-q")
    code, out, err = callboard(*args)
    assert code == 1
    assert out.endswith("2 tasks failed: t.results.failures.jsonl\n7 tasks not begun\n")
    assert err.endswith(
        "callboard: stopped after 2 failures; 7 tasks not begun; the same command continues from there\n"
    )


CODE = """
import os, pathlib, subprocess, time
here = pathlib.Path('%s')
if '${HOLD}' == '1' and not (here / 'go').exists():
    helper = subprocess.Popen(['sleep', '600'], start_new_session=True)
    (here / f'held-{os.getpid()}-{helper.pid}').touch()
    time.sleep(600)
print('${HOLD}')
"""


def test_a_batch_that_is_killed_leaves_no_process_and_goes_on_with_what_is_not_done(here: Path) -> None:
    code = json.dumps(CODE % here)
    (here / "slow.yaml").write_text(f"graph: {{nodes: [{{id: A, type: python, config: {{code: {code}}}}}]}}\n")
    rows = [{"id": str(i), "vars": {"HOLD": str(int(i > 2))}} for i in range(6)]
    (here / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [*CALLBOARD, "batch", "slow.yaml", "t.jsonl", "-q", "--max-parallel", "3"]
    temporary = {**os.environ, "TMPDIR": str(here)}  # a killed process can't remove the workspaces of its runs
    with subprocess.Popen(command, cwd=here, env=temporary) as batch:
        until(lambda: len(list(here.glob("held-*"))) == 3)
        batch.send_signal(signal.SIGKILL)
    assert sorted(str(line["id"]) for line in lines(here / "t.results.jsonl")) == ["0", "1", "2"]
    pids = [int(pid) for path in here.glob("held-*") for pid in path.name.split("-")[1:]]
    until(lambda: not any(map(is_alive, pids)))
    (here / "go").touch()
    again = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert again.stdout == "6 tasks done, 3 of them earlier: t.results.jsonl\n"
    assert sorted(str(line["id"]) for line in lines(here / "t.results.jsonl")) == list("012345")


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that other processes do."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_bar_on_a_terminal_has_lines_for_what_failed(terminal: io.StringIO) -> None:
    bar = BatchBar(terminal)
    bar.begin(4, 1)
    error = ErrorReport(code="x", message="too dear")
    for outcome in (Outcome(run_id="", status="done"), Outcome(run_id="", status="failed", error=error)):
        bar.began(BatchTask(id="a"))
        bar.ended(Ended(task=BatchTask(id="a"), outcome=outcome, seconds=1.0))
    assert bar.picture().startswith("[===============>    ] 3 of 4 tasks, 1 failed, about 1s left")
    with bar:
        pass
    assert "task 'a' failed: too dear\n" in terminal.getvalue()
    assert "is done" not in terminal.getvalue()


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (20, "1 of 1,000 tasks,"),
        (45, "1 of 1,000 tasks, about 17m left"),
        (80, "[>                   ] 1 of 1,000 tasks, about 17m left"),
    ],
)
def test_the_bar_is_never_wider_than_the_terminal(
    columns: int, shown: str, terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    bar = BatchBar(terminal)
    now = 0.0
    monkeypatch.setattr(batch_bar, "monotonic", lambda: now)
    bar.begin(1000, 0)
    bar.began(BatchTask(id="a"))
    now = 1.0
    bar.ended(Ended(task=BatchTask(id="a"), outcome=Outcome(run_id="", status="done"), seconds=1.0))
    with bar:
        pass
    drawn = terminal.getvalue().split("\r\x1b[2K")
    assert max(map(len, drawn)) < columns
    assert f"> {shown}" in drawn


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.1, "1s"), (59.5, "60s"), (180, "3m"), (3599, "1h 0m"), (7800, "2h 10m")]
)
def test_the_time_that_is_left_is_told_as_people_say_it(seconds: float, told: str) -> None:
    assert roughly(seconds) == told


def test_what_the_models_of_a_batch_saw_is_kept_if_the_settings_say_so(
    callboard: Callboard, here: Path, models: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "state"))
    (here / "ask.yaml").write_text(
        "name: ask\nstart: say\nnodes:\n"
        '  say: {type: llm, prompt: "{{initial_prompt}}", next: end}\n  end: {type: end}\n'
    )
    (here / "t.csv").write_text("id,task\na,first\nb,second\n")
    assert callboard("batch", "ask.yaml", "t.csv", "-q")[0] == 0
    assert not (here / "state" / "callboard" / "runs").exists()
    monkeypatch.setenv("CALLBOARD_KEEP_REQUESTS", "true")
    assert callboard("batch", "ask.yaml", "t.csv", "-q", "--results", "again.jsonl")[0] == 0
    runs = [str(line["run_id"]) for line in lines(here / "again.jsonl")]
    assert sorted(path.name for path in (here / "state" / "callboard" / "runs").glob("[!.]*")) == sorted(runs)
    shown = [callboard("show", run, "last", "--request")[1] for run in runs]
    assert sorted(text.split("--- user ---\n")[1].split()[0] for text in shown) == ["first", "second"]
