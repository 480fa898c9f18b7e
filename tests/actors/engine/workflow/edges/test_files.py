"""Functions of files beside the workflow: conditions and processors that run in a process of the run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from support.messages import has_message, says
from support.waiting import PATIENCE, jump_when
from support.workflow_run import WorkflowRunner, written

from callboard.actors.engine.workflow import edge_functions
from callboard.actors.engine.workflow.plan import functions_directory, functions_in
from callboard.actors.work.call_clock import Clock
from callboard.protocol.errors import GraphMistake

EDGES = """
print("hello from the top")

def is_polite(text):
    return "please" in text

async def is_short(text):
    return len(text) < 10

def breaks(text):
    raise ValueError("no idea")

def hangs(text):
    import time
    time.sleep(60)

def leaves(text):
    import os
    os._exit(7)

def _hidden(text): ...
"""

PROCESSORS = """
import os

def shout(text):
    return text.upper()

def count(text, state):
    state["calls"] = state.get("calls", 0) + 1
    return f"{text} {state['calls']} {os.getpid()}"

def drop(text, state):
    return {"drop": True}

def tag(text):
    return {"content": text + "!", "metadata": {"tagged": True}}

def nothing(text):
    return None
"""


@pytest.fixture
def functions(tmp_path: Path) -> Path:
    """The directory of functions of the workflow runner."""
    for kind, text in (("edge", EDGES), ("edge_processor", PROCESSORS)):
        place = tmp_path / "functions" / kind
        place.mkdir(parents=True)
        (place / "ours.py").write_text(text)
        (place / "broken.py").write_text("def half(")
    return tmp_path


def plan(
    workflow_runner: WorkflowRunner, edge: str, compat: Any = None, environ: Mapping[str, str] | None = None
) -> Any:
    """A question of the task to one edge."""
    return written(
        workflow_runner.directory,
        f"""
        graph:
          start: [A]
          end: [B]
          nodes:
            - {{id: A, type: passthrough, config: {{}}}}
            - {{id: B, type: passthrough, config: {{}}}}
          edges:
            - {{from: A, to: B, {edge}}}
        """,
        compat,
        environ=environ,
    )


def condition(name: str) -> str:
    return f"condition: {{type: function, config: {{name: {name}}}}}"


def processor(name: str) -> str:
    return f"process: {{type: function, config: {{name: {name}}}}}"


def test_functions_are_known_without_running_their_file(functions: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = functions_in(functions / "functions" / "edge")
    assert set(found) == {"is_polite", "is_short", "breaks", "hangs", "leaves"}
    assert found["hangs"].name == "ours.py"
    assert "hello" not in capfd.readouterr().out
    assert functions_in(None) == {}


def test_functions_are_found_beside_the_workflow_and_beside_its_directory(functions: Path, tmp_path: Path) -> None:
    own = functions / "functions" / "edge"
    (functions / "yaml_instance").mkdir()
    assert functions_directory(functions, "edge", {}) == own
    assert functions_directory(functions / "yaml_instance", "edge", {}) == own
    assert functions_directory(functions / "yaml_instance" / "subgraphs", "edge", {}) == own
    assert functions_directory(functions, "edge", {"MAC_EDGE_FUNCTIONS_DIR": str(tmp_path)}) == tmp_path


@pytest.mark.parametrize(
    ("name", "task", "output"),
    [
        ("is_polite", "a tea, please", "a tea, please"),
        ("is_polite", "a tea", ""),
        ("is_short", "tea", "tea"),
    ],
)
async def test_a_condition_decides(
    name: str, task: str, output: str, workflow_runner: WorkflowRunner, functions: Path
) -> None:
    result = await workflow_runner.run(plan(workflow_runner, condition(name)), task)
    assert (result.error, result.output) == (None, output)


@pytest.mark.parametrize(("name", "output"), [("shout", "TEA"), ("drop", ""), ("tag", "tea!"), ("nothing", "")])
async def test_a_processor_changes_or_drops(
    name: str, output: str, workflow_runner: WorkflowRunner, functions: Path
) -> None:
    result = await workflow_runner.run(plan(workflow_runner, processor(name)), "tea")
    assert (result.error, result.output) == (None, output)


async def test_all_calls_of_a_run_share_one_process_and_what_they_leave_there(
    workflow_runner: WorkflowRunner, functions: Path
) -> None:
    text = """
        graph:
          start: [A]
          end: [B]
          max_iterations: 300
          nodes:
            - {id: A, type: passthrough, config: {}}
            - {id: B, type: passthrough, config: {}}
            - {id: Gate, type: loop_counter, config: {max_iterations: 200, message: enough}}
          edges:
            - {from: A, to: Gate}
            - {from: A, to: A, process: {type: function, config: {name: count}}}
            - {from: Gate, to: A, trigger: false, carry_data: false}
            - {from: Gate, to: B}
    """
    result = await workflow_runner.run(written(workflow_runner.directory, text), "tea")
    last = result.outputs["A"][-1].text.split()
    assert last[0] == "tea"
    assert [last[1 + 2 * i] for i in range(199)] == [str(i + 1) for i in range(199)]
    assert len(set(last[2::2])) == 1
    assert last[2] != str(os.getpid())


async def test_what_functions_print_is_told_and_is_no_answer(workflow_runner: WorkflowRunner, functions: Path) -> None:
    await workflow_runner.run(plan(workflow_runner, condition("is_short")), "tea")
    assert [data.text for data in workflow_runner.of("tool.call.delta")] == ["hello from the top"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("breaks", "failed: ValueError: no idea"),
        ("hangs", "did not answer within 0.5 s, so its process was ended"),
        ("leaves", "ended before it answered"),
    ],
)
async def test_a_condition_that_fails_counts_as_met_with_a_warning(
    name: str, told: str, workflow_runner: WorkflowRunner, functions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "hangs":
        monkeypatch.setattr(edge_functions, "ANSWERS_WITHIN", 0.5)
    result = await workflow_runner.run(plan(workflow_runner, condition(name)), "tea")
    assert result.output == "tea"
    (warning,) = workflow_runner.of("run.warning")
    assert told in warning.message
    assert f"'{name}'" in warning.message


async def test_after_one_that_hung_the_next_call_finds_another_process(
    workflow_runner: WorkflowRunner, functions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = iter([0.5])  # of the call that hangs; the other process may take as long as it needs to start
    monkeypatch.setattr(edge_functions, "Clock", lambda _: Clock(next(limits, PATIENCE)))
    result = await workflow_runner.run(plan(workflow_runner, f"{condition('hangs')}, {processor('shout')}"), "tea")
    assert result.output == "TEA"


async def test_functions_of_our_own_come_before_built_in_ones_of_their_name(
    workflow_runner: WorkflowRunner, tmp_path: Path
) -> None:
    place = tmp_path / "functions" / "edge"
    place.mkdir(parents=True)
    (place / "a.py").write_text("def code_pass(text): return False\n")
    assert (await workflow_runner.run(plan(workflow_runner, condition("code_pass")), "tea")).output == ""


async def test_a_function_that_nobody_knows_passes_in_devall_and_is_a_mistake_else(
    workflow_runner: WorkflowRunner, functions: Path
) -> None:
    assert (await workflow_runner.run(plan(workflow_runner, condition("is_kind"), "devall"), "tea")).output == "tea"
    with pytest.raises(
        GraphMistake,
        match=says("engine.workflow.edges.MissingFunction.__str__", kind="condition", name="is_kind"),
    ):
        plan(workflow_runner, condition("is_kind"))
    result = await workflow_runner.run(plan(workflow_runner, f"{condition('is_kind')}, {processor('shout')}"), "tea")
    assert isinstance(result.error, GraphMistake)


async def test_a_function_that_prints_without_end_is_ended(workflow_runner: WorkflowRunner, tmp_path: Path) -> None:
    place = tmp_path / "functions" / "edge"
    place.mkdir(parents=True)
    (place / "a.py").write_text("def floods(text):\n    while True:\n        print('x' * 8000)\n")
    result = await workflow_runner.run(plan(workflow_runner, condition("floods")), "tea")
    assert result.output == "tea"
    assert has_message(
        workflow_runner.of("run.warning")[0].message, "engine.workflow.edge_functions.EdgeFunctions._answer"
    )
    assert sum(len(data.text) for data in workflow_runner.of("tool.call.delta")) < 2_000_000


async def test_a_processor_finds_what_those_of_devall_find(workflow_runner: WorkflowRunner, tmp_path: Path) -> None:
    """Modules, the functions of agents, the workspace, and a person to ask."""
    (tmp_path / "functions" / "function_calling").mkdir(parents=True)
    (tmp_path / "functions" / "edge_processor").mkdir(parents=True)
    (tmp_path / "functions" / "function_calling" / "file.py").write_text("""
from utils.attachments import AttachmentStore

def of(context):
    assert isinstance(context["attachment_store"], AttachmentStore)
    return context["python_workspace_root"]
""")
    (tmp_path / "functions" / "edge_processor" / "deep").mkdir()
    (tmp_path / "functions" / "edge_processor" / "deep" / "own.py").write_text("""
from functions.function_calling.file import of

def keep(text, _context):
    (of(_context) / "kept.txt").write_text(text)
    answer = _context["human_prompt"].request("A", "May I?").text
    return f"{sorted(path.name for path in of(_context).iterdir())} {answer}"
""")
    result = await workflow_runner.run(plan(workflow_runner, processor("keep")), "hello", answers=["yes"])
    assert result.output == "['attachments', 'kept.txt'] yes"


async def test_a_processor_that_hangs_after_its_question_is_ended_with_a_warning(
    workflow_runner: WorkflowRunner, tmp_path: Path, nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    place = tmp_path / "functions" / "edge_processor"
    place.mkdir(parents=True)
    answered = tmp_path / "answered"
    (place / "own.py").write_text(f"""
def ask(text, _context):
    _context["human_prompt"].request("A", "May I?")
    open({str(answered)!r}, "w").close()
    import time
    time.sleep(600)
""")
    nursery.start_soon(jump_when, mock_clock, answered.exists, edge_functions.ANSWERS_WITHIN)
    result = await workflow_runner.run(plan(workflow_runner, processor("ask")), "hello", answers=["yes"])
    assert result.error is None
    (warning,) = workflow_runner.of("run.warning")
    assert has_message(warning.message, "engine.workflow.edge_functions.EdgeFunctions._call", ANSWERS_WITHIN=60)


async def test_conditions_and_processors_may_stand_in_one_file(workflow_runner: WorkflowRunner, tmp_path: Path) -> None:
    (tmp_path / "both.py").write_text("""
def is_tea(text):
    return text == "tea"

def where(text, _context):
    return _context["python_workspace_root"].name
""")
    environ = dict.fromkeys(("MAC_EDGE_FUNCTIONS_DIR", "MAC_EDGE_PROCESSOR_FUNCTIONS_DIR"), str(tmp_path))
    result = await workflow_runner.run(
        plan(workflow_runner, f"{condition('is_tea')}, {processor('where')}", environ=environ), "tea"
    )
    assert (result.error, workflow_runner.of("run.warning")) == (None, [])
    assert result.output not in ("", "tea")
