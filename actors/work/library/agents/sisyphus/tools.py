"""The tests of the project, run and counted as the agent `coder` does."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

SECONDS = 110
CODER = Path(__file__).resolve().parent.parent / "coder" / "scripts"


def run_tests(directory: str = ".") -> dict[str, Any]:
    """Run the project's tests with the test runner that it uses. `status` is passed, failed, not tested (no test ran)
    or could not run; only passed is a success.

    Args:
        directory: Directory of the project.
    """
    if not CODER.is_dir():
        sys.exit(f"the agent 'coder', which knows how to run tests, is not in {CODER.parent}")
    sys.path.insert(0, str(CODER))
    checks, project = importlib.import_module("checks"), importlib.import_module("project")
    top = Path(directory).resolve()
    if not top.is_dir():
        sys.exit(f"'{directory}' is not a directory")
    reports = checks.run(project.tests(top), top, SECONDS, of_tests=True)
    if not reports:
        return {"status": "not tested", "reasons": ["no tests were found"]}
    states = {report["state"] for report in reports}
    status = next(words for state, words in STATUS.items() if state in states)
    return {
        "status": status,
        "reasons": [report["why"] for report in reports if report["why"]],
        "tests": {report["command"]: _numbers(report["results"]) for report in reports},
        "log": "\n".join(report["log"] for report in reports),
    }


STATUS = {"failed": "failed", "unable": "could not run", "nothing": "not tested", "passed": "passed"}


def _numbers(results: dict[str, Any] | None) -> dict[str, int] | str:
    if results is None:
        return "not counted"
    return {outcome: results[outcome] for outcome in ("passed", "failed", "skipped")}
