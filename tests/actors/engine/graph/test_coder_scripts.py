"""The scripts of the coder fixture, run as a graph runs them: bash, the state in a variable, JSON on stdout."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[3] / "fixtures" / "agents" / "coder" / "scripts"


def run(script: str, state: dict[str, Any] | None = None, cwd: Path | None = None, **variables: str) -> dict[str, Any]:
    environment = {**os.environ, "GRAPH_STATE": json.dumps(state or {}), **variables}
    done = subprocess.run(
        ["bash", str(SCRIPTS / script)], env=environment, cwd=cwd, stdout=subprocess.PIPE, check=True, timeout=60
    )
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


def test_the_project_directory_becomes_absolute(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    result = run("resolve_paths.sh", cwd=tmp_path, LLM_AGENT_VAR_PROJECT_DIR="p")
    assert result == {"project_dir": str(tmp_path / "p"), "_next": "analyze_request"}


def test_a_project_directory_that_is_none_fails(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        run("resolve_paths.sh", cwd=tmp_path, LLM_AGENT_VAR_PROJECT_DIR="gone")


@pytest.mark.parametrize(
    ("score", "approve", "target"), [(6, "", "implement"), (7, "", "gate_approval"), (9, "1", "implement")]
)
def test_large_plans_are_shown_to_a_person(score: int, approve: str, target: str) -> None:
    assert run("route_complexity.sh", {"complexity_score": score}, CODER_AUTOAPPROVE=approve) == {"_next": target}


@pytest.mark.parametrize(
    ("script", "variable", "good"),
    [("verify_build.sh", "BUILD_CMD", "verify_tests"), ("verify_tests.sh", "TEST_CMD", "end_success")],
)
def test_a_check_leads_on_or_to_the_fix_loop(tmp_path: Path, script: str, variable: str, good: str) -> None:
    name = script.removeprefix("verify_").removesuffix(".sh")
    state = {"project_dir": str(tmp_path)}
    passed = run(script, state, **{variable: "echo fine"})
    assert (passed[f"{name}_ok"], passed["_next"]) == (True, good)
    assert "fine" in passed[f"{name}_output"]
    failed = run(script, state, **{variable: "echo broken >&2; exit 3"})
    assert (failed[f"{name}_ok"], failed["_next"]) == (False, "fix_loop_gate")
    assert "broken" in failed[f"{name}_output"]
    assert "[exit 3]" in failed[f"{name}_output"]


@pytest.mark.parametrize(
    ("file", "content", "good"),
    [("Makefile", "all:\n\ttrue\n", True), ("Makefile", "all:\n\tfalse\n", False), ("notes.txt", "", True)],
)
def test_how_to_build_is_told_by_the_projects_files(tmp_path: Path, file: str, content: str, good: bool) -> None:
    (tmp_path / file).write_text(content)
    assert run("verify_build.sh", {"project_dir": str(tmp_path)})["build_ok"] is good


def test_the_fix_loop_hands_over_the_log_until_its_tries_are_used_up() -> None:
    state = {"fix_attempts": 1, "max_fix_attempts": 3, "build_ok": True, "tests_ok": False, "tests_output": "3 failed"}
    result = run("fix_loop_gate.sh", state)
    assert (result["_next"], result["fix_attempts"]) == ("implement", 2)
    assert "The test run failed (try 2 of 3)" in result["fix_instructions"]
    assert "3 failed" in result["fix_instructions"]
    assert run("fix_loop_gate.sh", {**state, "fix_attempts": 3}) == {"_next": "end_failure"}


def test_a_large_state_comes_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text(json.dumps({"complexity_score": 9}))
    assert run("route_complexity.sh", GRAPH_STATE_FILE=str(file)) == {"_next": "gate_approval"}
