"""A failing model in every command: exit code, status and last line tell the first cause."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from support.control_server import ControlServer, open_control_server
from support.fake_models import FakeModels, Reply
from support.messages import has_message

from callboard.actors.front.control.logs.files import StoredRun, read_summary, write_summary
from callboard.protocol.control.caller import LOCAL

Callboard = Callable[..., "tuple[int, str, str]"]

HAIKU = """
start: write
nodes:
  write: {type: llm, prompt: "{{initial_prompt}}", max_attempts: 1, state_updates: {poem: "{{output}}"}, next: done}
  done: {type: end, output: "{{poem}}"}
"""
FLOW = """
compat: devall
graph:
  start: [A]
  nodes: [{id: A, type: agent, config: {provider: fake, name: model, retry: {enabled: false}}}]
  edges: []
"""
DOWN = Reply(status=503, error="the model is down")
LONG = "the model is down because " + "of a very long reason " * 15 + "and that is all"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: FakeModels) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "haiku.yaml").write_text("name: haiku\n" + HAIKU)
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "t.csv").write_text("task\nfrogs\nponds\n")
    models.answer_with(lambda _: DOWN)
    return tmp_path


@pytest.mark.usefixtures("here")
def test_text_has_the_output_and_the_last_line_the_cause(callboard: Callboard) -> None:
    code, out, err = callboard("run", "haiku.yaml", "frogs", "-q")
    assert (code, out) == (6, "LLM node failed: fake:model: the model is down (HTTP 503)\n")
    assert err == "callboard: node 'write': fake:model: the model is down (HTTP 503)\n"
    assert callboard("run", "haiku.yaml", "frogs")[2].splitlines()[-1] == err.strip()


@pytest.mark.usefixtures("here")
def test_progress_does_not_call_the_graph_done(callboard: Callboard) -> None:
    assert "graph failed after" in callboard("run", "haiku.yaml", "frogs")[2]


@pytest.mark.usefixtures("here")
def test_json_has_status_output_failures_and_error(callboard: Callboard) -> None:
    code, out, _ = callboard("run", "haiku.yaml", "frogs", "-q", "-o", "json")
    told = json.loads(out)
    assert (code, told["status"], told["error"]["code"]) == (6, "failed", "upstream")
    assert told["output"].startswith("LLM node failed: ")
    assert told["failures"] == [told["error"]]


@pytest.mark.usefixtures("here")
def test_the_last_event_is_that_of_a_run_that_failed(callboard: Callboard) -> None:
    code, out, _ = callboard("run", "haiku.yaml", "frogs", "-q", "-o", "stream-json")
    last = json.loads(out.splitlines()[-1])
    assert (code, last["kind"], last["data"]["outcome"]["status"]) == (6, "run.failed", "failed")


@pytest.mark.usefixtures("here")
def test_a_workflow_in_devalls_dialect_fails_alike(callboard: Callboard) -> None:
    code, out, err = callboard("run", "flow.yaml", "frogs", "-q")
    assert code == 6
    assert "the model is down" in out
    assert err == "callboard: node 'A': fake:model: the model is down (HTTP 503)\n"


@pytest.mark.usefixtures("here")
def test_a_missing_key_is_told_before_anything_runs(callboard: Callboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    code, out, err = callboard("run", "haiku.yaml", "frogs", "-m", "openai:gpt-4o", "-q")
    assert (code, out) == (3, "")
    assert has_message(err, "work.models.catalog.ModelCatalog._vertex_access.2")


@pytest.mark.usefixtures("here")
def test_an_agent_whose_model_fails_ends_so_too(callboard: Callboard, models: FakeModels) -> None:
    models.answer_with(lambda _: Reply(status=404, error="no such model"))
    assert callboard("ask", "-q", "hello") == (1, "", "callboard: fake:model: no such model (HTTP 404)\n")


def test_a_batch_counts_the_tasks_as_failed_and_keeps_their_outputs(callboard: Callboard, here: Path) -> None:
    code, out, err = callboard("batch", "haiku.yaml", "t.csv")
    assert code == 1
    assert out == "0 tasks done: t.results.jsonl\n2 tasks failed: t.results.failures.jsonl\n"
    assert err.count("failed: node 'write': fake:model: the model is down (HTTP 503)") == 2
    kept = [json.loads(line) for line in (here / "t.results.failures.jsonl").read_text().splitlines()]
    assert [(line["status"], line["error"]["code"]) for line in kept] == [("failed", "upstream")] * 2
    assert all(line["output"].startswith("LLM node failed: ") for line in kept)
    assert (here / "t.results.jsonl").read_text() == ""


# --- of a server -------------------------------------------------------------------------------------------


def failed(control_server: ControlServer, error: str = "the model is down", target: str = "haiku") -> str:
    """A run that went on over its failure: its id."""
    control_server.agent("haiku", HAIKU)
    control_server.models.answer_with(lambda _: Reply(status=503, error=error))
    return control_server.ended(control_server.start(target, "frogs").run).run


def test_a_server_lists_the_run_as_failed(callboard: Callboard, control_server: ControlServer) -> None:
    run = failed(control_server)
    info = control_server.get(run)
    assert (info.status, info.exit_code) == ("failed", 6)
    assert info.output.startswith("LLM node failed: ")
    (line,) = [line for line in callboard("ps", "-a")[1].splitlines() if run in line]
    assert "failed" in line


def test_attach_ends_as_the_run_did(callboard: Callboard, control_server: ControlServer) -> None:
    code, out, err = callboard("attach", failed(control_server))
    assert code == 6
    assert out.startswith("LLM node failed: ")
    assert err.splitlines()[-1] == "callboard: node 'write': fake:model: the model is down (HTTP 503)"


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """A run that failed and one that was stopped; their server has ended, so their logs are complete."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with open_control_server(tmp_path) as control_server:
        control_server.agent(
            "gate", "start: gate\nnodes:\n  gate: {type: input, question: Go, next: e}\n  e: {type: end}\n"
        )
        stopped = control_server.start("gate").run
        control_server.asked(stopped)
        control_server.call(control_server.hub.cancel, LOCAL, stopped)
        control_server.ended(stopped)
        return failed(control_server, LONG), stopped


def test_logs_end_with_status_reason_and_error_whole_as_runs_show_has_them(
    callboard: Callboard, ended: tuple[str, str]
) -> None:
    run, _ = ended
    out, shown = callboard("logs", run)[1], callboard("runs", "show", run)[1]
    error = f"upstream: node 'write': fake:model: {LONG} (HTTP 503)"
    assert out.splitlines()[-2:] == [f"{run}: failed (exit code 6)", error]
    assert "failed (exit code 6)" in shown
    assert error in shown.splitlines()
    assert "…" not in out
    (told,) = [line for line in out.splitlines() if "FAILED in" in line]
    assert told.endswith(f"fake:model: {LONG} (HTTP 503)")


def test_its_record_is_listed_as_failed(callboard: Callboard, ended: tuple[str, str]) -> None:
    for status, runs in {"failed": [ended[0]], "done": []}.items():
        kept = json.loads(callboard("runs", "list", "--status", status, "-o", "json")[1])["runs"]
        assert [run["run"] for run in kept] == runs


def test_a_server_tells_the_same_ending(callboard: Callboard, control_server: ControlServer) -> None:
    run = failed(control_server, LONG)
    for more in ([], ["-f"]):
        out = callboard("logs", run, "--url", control_server.url, *more)[1]
        assert out.splitlines()[-1] == f"upstream: node 'write': fake:model: {LONG} (HTTP 503)"


def test_logs_of_a_run_that_was_stopped_say_so(callboard: Callboard, ended: tuple[str, str]) -> None:
    _, run = ended
    ending = callboard("logs", run)[1].splitlines()[-2:]
    assert ending[0] == f"{run}: cancelled (exit code 130)"
    assert ending[1].startswith("cancelled: the run was stopped")
    shown = callboard("runs", "show", run)[1]
    assert "cancelled (exit code 130)" in shown
    assert ending[1] in shown


def test_logs_of_a_run_whose_process_was_killed_say_that_it_is_lost(
    callboard: Callboard, ended: tuple[str, str], tmp_path: Path
) -> None:
    (kept,) = (tmp_path / "state").rglob(f"{ended[0]}/events.jsonl")
    copy = kept.parent.with_name("run-10057")
    copy.mkdir()
    begun = b"".join(kept.read_bytes().splitlines(keepends=True)[:3])
    (copy / "events.jsonl").write_bytes(begun.replace(ended[0].encode(), b"run-10057"))
    found = read_summary(kept.parent)
    assert found is not None
    begun_only = msgspec.structs.replace(found.info, run="run-10057", status="running", error=None, exit_code=None)
    write_summary(copy, StoredRun(process="of before", info=begun_only))
    ending = callboard("logs", "run-10057")[1].splitlines()[-2:]
    assert ending == ["run-10057: lost", "lost: the process of the run ended before the run did"]
    assert ending[1] in callboard("runs", "show", "run-10057")[1]


def test_a_run_that_is_done_has_no_such_lines(callboard: Callboard, control_server: ControlServer) -> None:
    control_server.agent("haiku", HAIKU)
    run = control_server.ended(control_server.start("haiku", "frogs").run).run
    assert callboard("logs", run)[1].splitlines()[-1].startswith("▸ graph done in")
