"""Runs the project's tests and compares them with those before the change."""

import os
from pathlib import Path

import checks
import project
from graph_state import go, graph_state
from verdict import judge

state = graph_state()
directory = Path(state.get("project_dir") or ".")
reports = checks.run(project.tests(directory), directory, 570, of_tests=True)
verdict, words = judge(
    state.get("baseline"),
    reports,
    state.get("tests_weakened") or [],
    state.get("build_status") or "",
    none="no tests were found" if os.environ.get("TEST_CMD") is None else "TEST_CMD is empty",
    may_change=os.environ.get("LLM_AGENT_VAR_TESTS_MAY_CHANGE", "").strip().lower() in ("yes", "true", "1"),
)
log = "\n".join(report["log"] for report in reports) or words
writes = {"tests_status": words, "tests_output": log}
if verdict == "passed":
    go("end_success", **writes)
elif verdict == "unverified":
    go("end_unverified", **writes)
else:
    go("fix_loop_gate", failure=f"tests {words}", failure_log=f"{words}\n\n{log}", **writes)
