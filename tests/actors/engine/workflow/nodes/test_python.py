"""python nodes: what code prints is the output, and no code gets out of hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
import trio.testing
from support.descendants import HELPERS, name_of
from support.messages import has_message
from support.waiting import jump_when, until
from support.workflow_run import WorkflowRunner, written

from callboard.actors.engine.workflow.nodes import python
from callboard.actors.engine.workflow.nodes.python import code_in, files_in
from callboard.actors.engine.workflow.run import WorkflowResult
from callboard.actors.work.tools.files.call_process import MIB, CallLimits

FAILED = "==CODE EXECUTION FAILED=="


def plan(workflow_runner: WorkflowRunner, config: str = "{}", compat: Any = None, edges: str = "") -> Any:
    """A literal's code, a python node, and whatever else."""
    return written(
        workflow_runner.directory,
        f"""
        graph:
          start: [P]
          nodes:
            - {{id: P, type: python, config: {config}}}
          edges: [{edges}]
        """,
        compat,
    )


async def ran(workflow_runner: WorkflowRunner, code: str, config: str = "{}", **options: Any) -> WorkflowResult:
    result = await workflow_runner.run(plan(workflow_runner, config, options.pop("compat", None)), code, **options)
    assert result.error is None
    return result


async def test_what_the_code_prints_is_the_output_of_the_node(workflow_runner: WorkflowRunner) -> None:
    result = await ran(workflow_runner, "Here you are:\n```python\n  print(6 * 7)\n```\nand\n```\nprint(0)\n```")
    assert result.output == "42\n"
    assert result.final_messages[0].role == "assistant"


def test_code_is_the_first_fenced_block_or_all_of_the_text() -> None:
    assert code_in("a\n```js\nb\n```\n```\nc\n```") == "b\n"
    assert code_in("print(1)") == "print(1)"


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("", f"{FAILED}\nNo executable code segment found"),
        ("raise SystemExit('boom')", f"{FAILED}\nScript execution failed\nexit_code=1\nstderr:\nboom\n"),
        ("raise SystemExit(3)", f"{FAILED}\nScript execution failed\nexit_code=3"),
    ],
)
async def test_code_that_fails_is_told_in_the_output(code: str, output: str, workflow_runner: WorkflowRunner) -> None:
    assert (await ran(workflow_runner, code)).output == output


async def test_code_that_takes_too_long_is_ended_and_what_it_has_printed_is_told(
    workflow_runner: WorkflowRunner, tmp_path: Path, nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    begun = tmp_path / "begun"
    nursery.start_soon(jump_when, mock_clock, begun.exists, 60)
    code = f"print('so far', flush=True)\nopen({str(begun)!r}, 'w').close()\nimport time; time.sleep(600)"
    result = await ran(workflow_runner, code, "{timeout_seconds: 60}")
    assert result.output == f"{FAILED}\nScript did not finish within 60s\nstderr:\nso far\n"


async def test_an_interpreter_that_is_not_there_is_told(workflow_runner: WorkflowRunner) -> None:
    result = await ran(workflow_runner, "print(1)", "{interpreter: python-of-the-future}")
    assert result.output == f"{FAILED}\nInterpreter python-of-the-future not found"


async def test_arguments_are_the_interpreters(workflow_runner: WorkflowRunner) -> None:
    code = "import sys; print(sys.flags.optimize, sys.argv[1:])"
    assert (await ran(workflow_runner, code, "{args: [-O]}")).output == "1 []\n"


async def test_code_of_the_nodes_own_is_run_whatever_it_is_given(workflow_runner: WorkflowRunner) -> None:
    assert (await ran(workflow_runner, "print('theirs')", "{code: \"print('mine')\"}")).output == "mine\n"


@pytest.mark.parametrize(("compat", "seen"), [("standard", "yes"), ("devall", "None")])
async def test_env_is_applied_but_by_the_program_of_devall(
    compat: str, seen: str, workflow_runner: WorkflowRunner
) -> None:
    code = "import os; print(os.environ.get('MOOD'), 'PATH' in os.environ)"
    assert (await ran(workflow_runner, code, "{env: {MOOD: 'yes'}}", compat=compat)).output == f"{seen} True\n"


TWICE = """
    graph:
      start: [A]
      nodes:
        - {id: A, type: python, config: {code: "open('note', 'w').write('hello')"}}
        - {id: B/2, type: python, config: {code: "import os; print(open('note').read(), sorted(os.listdir()))"}}
      edges: [{from: A, to: B/2}]
"""


async def test_python_nodes_share_a_directory_that_goes_with_the_run(
    workflow_runner: WorkflowRunner, tmp_path: Path
) -> None:
    result = await workflow_runner.run(written(workflow_runner.directory, TWICE))
    assert result.output == "hello ['A.py', 'B_2.py', 'note']\n"
    text = TWICE.replace("sorted(os.listdir())", "os.getcwd()")
    where = Path((await workflow_runner.run(written(workflow_runner.directory, text))).output.split()[1])
    assert not where.exists()
    kept = tmp_path / "kept"
    await workflow_runner.run(written(workflow_runner.directory, TWICE), workspace=kept)
    assert (kept / "note").read_text() == "hello"


async def test_code_of_a_later_visit_gets_a_file_of_its_own(workflow_runner: WorkflowRunner, tmp_path: Path) -> None:
    looped = """
        graph:
          start: [P]
          end: [P]
          nodes:
            - {id: P, type: python, config: {code: "import os; print(sorted(os.listdir()))"}}
          edges: [{from: P, to: P, condition: {type: keyword, config: {none: [run-3]}}}]
    """
    result = await workflow_runner.run(written(workflow_runner.directory, looped))
    assert result.output == "['P.py', 'P_run-2.py', 'P_run-3.py']\n"


async def test_code_of_units_that_run_together_gets_a_file_each(workflow_runner: WorkflowRunner) -> None:
    mapped = """
        graph:
          start: [S]
          nodes:
            - {id: S, type: literal, config: {content: "LINES"}}
            - {id: P, type: python, config: {}}
          edges:
            - {from: S, to: P, dynamic: {type: map, config: {split_type: lines}}}
    """.replace("LINES", "\\n".join(f"print({i})" for i in range(10)))
    result = await workflow_runner.run(written(workflow_runner.directory, mapped))
    assert [message.text for message in result.final_messages] == [f"{i}\n" for i in range(10)]


# --- out of hand ------------------------------------------------------------------------------------------


async def test_code_that_prints_without_end_is_ended(workflow_runner: WorkflowRunner) -> None:
    result = await ran(workflow_runner, "while True: print('x' * 100_000)")
    assert result.output.startswith(f"{FAILED}\nScript printed more than 8 MiB, and was ended")


async def test_code_that_writes_to_stderr_without_end_is_told_by_its_tail(workflow_runner: WorkflowRunner) -> None:
    result = await ran(
        workflow_runner, "import sys\nfor _ in range(1000): sys.stderr.write('x' * 1000 + '\\n')\nsys.exit(2)"
    )
    assert len(result.output) < 40_000


async def test_code_that_writes_a_gigabyte_to_stderr_is_ended_and_little_of_it_is_told(
    workflow_runner: WorkflowRunner,
) -> None:
    result = await ran(workflow_runner, "import sys\nfor _ in range(2**20): sys.stderr.write('x' * 1023 + '\\n')")
    assert result.output.startswith(f"{FAILED}\nScript wrote more than {64 * MIB} bytes or 250000 lines to stderr")
    assert sum(len(data.text) for data in workflow_runner.of("tool.call.delta")) < 2 * MIB


GREEDY = """
import resource, time
while resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY:  # it is set once we run
    time.sleep(0.01)
b'x' * (1024 * 1024 * 1024)
"""


async def test_code_that_eats_memory_fails_by_itself(
    workflow_runner: WorkflowRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python, "LIMITS", CallLimits(memory=256 * MIB))
    result = await ran(workflow_runner, GREEDY)
    assert result.output.startswith(f"{FAILED}\nScript execution failed\nexit_code=1")
    assert "MemoryError" in result.output


GREEDY_CHILDREN = """
import subprocess, sys, time
eat = "x = b'x' * 60_000_000; import time; time.sleep(60)"
children = [subprocess.Popen([sys.executable, "-c", eat]) for _ in range(6)]
time.sleep(60)
"""


async def test_code_whose_children_eat_memory_is_ended_with_them(
    workflow_runner: WorkflowRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python, "LIMITS", CallLimits(memory=256 * MIB))
    result = await ran(workflow_runner, GREEDY_CHILDREN)
    assert result.output.startswith(f"{FAILED}\nScript used more than 256 MiB of memory, and was ended")


FORKING = """
import os, time
for _ in range(200):
    if os.fork() == 0:
        time.sleep(60)
time.sleep(60)
"""


async def test_code_that_forks_without_end_is_ended_with_all_it_started(
    workflow_runner: WorkflowRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python, "LIMITS", CallLimits(processes=40))
    before = len(started())
    result = await ran(workflow_runner, FORKING)
    assert result.output.startswith(f"{FAILED}\nScript had ")
    assert has_message(result.output, "engine.workflow.nodes.python._Run._decoded_output")
    assert len(started()) <= before


def started() -> list[psutil.Process]:
    return [each for each in psutil.Process().children(recursive=True) if name_of(each) not in ("", *HELPERS)]


HANGING = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "60"], start_new_session=True)
open("pid", "w").write(str(os.getpid()))
time.sleep(60)
"""


def is_asleep(child: psutil.Process) -> bool:
    """Whether it is a `sleep` that lives; orphans of other tests that have ended wait for us to look."""
    return name_of(child) == "sleep"


async def test_code_that_hangs_ends_with_its_run(workflow_runner: WorkflowRunner, tmp_path: Path) -> None:
    ref = workflow_runner.start(plan(workflow_runner), HANGING, workspace=tmp_path / "w")
    pid = tmp_path / "w" / "pid"
    await until(lambda: pid.is_file() and pid.read_text())
    ref.cancel()
    with trio.fail_after(60):
        assert (await ref.wait()).reason == "cancelled"
    assert not psutil.pid_exists(int(pid.read_text()))
    assert not [child for child in psutil.Process().children(recursive=True) if is_asleep(child)]


# --- code_save_and_run ------------------------------------------------------------------------------------

PROJECT = """main.py
```python
from helper import answer
print(answer())
```

**helper.py**
```python
def answer():
    return 42
```
"""


def test_files_of_a_text_stay_inside_of_the_workspace() -> None:
    text = "".join(
        f"{name}\n```\nx\n```\n" for name in ("main.py", "a/b.py", "/etc/passwd", "../up.py", "attachments/a.txt")
    )
    assert list(files_in(text)) == ["main.py", "a/b.py"]


async def test_files_that_a_message_holds_are_saved_and_run(workflow_runner: WorkflowRunner, tmp_path: Path) -> None:
    saving = """
        graph:
          start: [A]
          nodes:
            - {id: A, type: passthrough, config: {}}
            - {id: B, type: passthrough, config: {}}
          edges: [{from: A, to: B, process: {type: function, config: {name: code_save_and_run}}}]
    """
    place = tmp_path / "w"
    (place / "attachments").mkdir(parents=True)
    (place / "old.py").write_text("")
    result = await workflow_runner.run(written(workflow_runner.directory, saving), PROJECT, workspace=place)
    assert result.output == f"{PROJECT}\n\n42"
    saved = {file.name for file in place.iterdir()} - {"__pycache__"}  # which Python may add
    assert saved == {"attachments", "helper.py", "main.py"}


async def test_a_script_runs_on_our_own_python_by_default(workflow_runner: WorkflowRunner) -> None:
    assert (await ran(workflow_runner, "import sys; print(sys.executable)")).output == f"{sys.executable}\n"
