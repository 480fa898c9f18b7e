"""Execution of the project's checks: one command after another, each with its log and what it proves."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import results
from project import Check

MOST = 20_000
"""Bytes of a log that the model reads: its end, where the errors are."""

MOST_READ = 20_000_000
"""Bytes of a log in which results are looked for."""

CANNOT_START = (126, 127)
"""Exit statuses of a shell that could not start the command."""

if TYPE_CHECKING:
    Report = dict[str, Any]
    """What came of one check: `name`, `where`, `command`, `definition`, `state`, `why`, `log`, and `results`.

    `state` is `passed`, `failed`, `nothing` (no test was run) or `unable` (the check itself could not run).
    """


def run(checks: list[Check], top: Path, seconds: float, *, of_tests: bool) -> list[Report]:
    """Run all checks; together they may take so many seconds."""
    until = time.monotonic() + seconds
    return [_run(check, top, until - time.monotonic(), of_tests) for check in checks]


def _run(check: Check, top: Path, seconds: float, of_tests: bool) -> Report:
    where = os.path.relpath(check.directory, top)
    report: Report = {"name": check.name, "where": where, "command": check.command, "definition": check.definition}
    report.update(results=None, why="")
    if check.missing:
        return {**report, "state": "unable", "why": check.missing, "log": check.missing}
    if seconds < 1:
        why = "the checks before it took all the time"
        return {**report, "state": "unable", "why": why, "log": why}
    with tempfile.TemporaryDirectory() as scratch:
        junit = Path(scratch) / "junit.xml"
        command = check.command
        if check.name == "pytest":
            command = f"{command} --junitxml={shlex.quote(str(junit))}"
        began = time.time()
        status, text = _output(command, check.directory, seconds, Path(scratch), of_tests)
        if of_tests:
            report["results"] = results.read(text, junit)
            if report["results"] is None or not results.ran(report["results"]):
                report["results"] = results.reports(check.directory, began) or report["results"]
    end = f"[ended after {seconds:.0f} s, it was still running]" if status is None else f"[exit {status}]"
    report["log"] = "\n".join(line for line in (f"$ {check.command}", shortened(text), end) if line)
    return {**report, **_judged(check, status, report["results"], of_tests)}


def _judged(check: Check, status: int | None, found: results.Results | None, of_tests: bool) -> Report:
    """`state` and `why`."""
    if status is None:
        return {"state": "failed", "why": "it did not come to an end"}
    if status in CANNOT_START:
        return {"state": "unable", "why": f"the shell could not start `{check.command}` (exit {status})"}
    if not of_tests:
        return {"state": "passed"} if status == 0 else {"state": "failed", "why": f"exit {status}"}
    if found is not None and found[results.FAILED]:
        return {"state": "failed", "why": f"{found[results.FAILED]} of {results.ran(found)} tests fail"}
    if results.ran(found):
        why = f"all tests passed, and `{check.command}` ended with exit {status}"
        return {"state": "passed"} if status == 0 else {"state": "failed", "why": why}
    if status == 0 or (check.name == "pytest" and status == 5) or (check.name == "unittest" and status == 5):
        if found is None and check.name == "TEST_CMD":  # the user says that its exit status counts
            return {"state": "passed"}
        shown = "ran 0 tests" if found is not None else "does not show that any test ran"
        if found is not None and found[results.SKIPPED]:
            shown = f"skipped all {found[results.SKIPPED]} tests"
        return {"state": "nothing", "why": f"`{check.command}` {shown}"}
    return {"state": "failed", "why": f"`{check.command}` ended with exit {status} before any test ran"}


def _output(command: str, directory: Path, seconds: float, scratch: Path, of_tests: bool) -> tuple[int | None, str]:
    """The exit status, None if it was ended, and what it printed."""
    # A file, not a pipe: a process that the command leaves behind would keep a pipe open.
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            ["sh", "-c", command],
            cwd=directory,
            env=_environment(scratch, of_tests),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = None
        size = log.seek(0, os.SEEK_END)
        log.seek(max(0, size - MOST_READ))
        return status, log.read().decode(errors="replace").strip()


def shortened(text: str) -> str:
    """The end of a log."""
    data = text.encode()
    if len(data) <= MOST:
        return text
    return f"[the first {len(data) - MOST} bytes are left out]\n{data[-MOST:].decode(errors='ignore')}"


def _environment(scratch: Path, of_tests: bool) -> dict[str, str]:
    """Ours, without the graph's state and without the wish for colours, which only make a log harder to read."""
    mine = ("GRAPH_STATE", "GRAPH_STATE_FILE", "FORCE_COLOR", "CLICOLOR_FORCE", "NODE_TEST_CONTEXT")
    environment = {name: value for name, value in os.environ.items() if name not in mine}
    # Compiled Python is checked by size and whole seconds: a quick edit of the same size would not be seen.
    environment.update(NO_COLOR="1", PYTHONPYCACHEPREFIX=str(scratch / "compiled"))
    if of_tests:
        environment.setdefault("CI", "true")  # runners of JavaScript would watch for changes
    return environment
