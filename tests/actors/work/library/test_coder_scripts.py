"""The scripts of the built-in coder, run as a graph runs them: the state in a variable, one JSON object on stdout."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from graph_scripts import Json, played, printed

from callboard.actors.work.library import AGENTS

SCRIPTS = AGENTS / "coder" / "scripts"
SHOP = Path(__file__).parents[3] / "fixtures" / "repos" / "shop"


def run(script: str, state: Json | None = None, cwd: Path | None = None, **variables: str) -> Json:
    return printed(SCRIPTS / f"{script}.py", state, cwd, **variables)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


def commands(project: Path) -> tuple[str, str]:
    """What would be run to build and to test."""
    module = runpy.run_path(str(SCRIPTS / "project.py"))
    build, test = module["commands"](project)
    return build, test


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BUILD_CMD", "TEST_CMD", "CODER_AUTOAPPROVE", "LLM_AGENT_VAR_PROJECT_DIR", "GRAPH_STATE_FILE"):
        monkeypatch.delenv(name, raising=False)


# --- where


def test_the_project_directory_becomes_absolute(project: Path) -> None:
    result = run("resolve_paths", cwd=project.parent, LLM_AGENT_VAR_PROJECT_DIR="project")
    assert result == {"project_dir": str(project.resolve()), "_next": "analyze_request"}


def test_without_a_project_directory_it_is_where_the_run_was_started(project: Path) -> None:
    assert run("resolve_paths", cwd=project)["project_dir"] == str(project.resolve())


def test_a_project_directory_that_is_none_fails_and_says_so(tmp_path: Path) -> None:
    status, stdout, stderr = played(SCRIPTS / "resolve_paths.py", cwd=tmp_path, LLM_AGENT_VAR_PROJECT_DIR="gone")
    assert (status, stdout) == (1, "")
    assert stderr == f"project_dir 'gone' is not a directory ({tmp_path.resolve() / 'gone'})\n"


# --- who is asked


@pytest.mark.parametrize(
    ("score", "approve", "target"),
    [(6, "", "implement"), (7, "", "gate_approval"), (9, "1", "implement"), (9, "0", "gate_approval")],
)
def test_large_plans_are_shown_to_a_person(score: int, approve: str, target: str) -> None:
    assert run("route_complexity", {"complexity_score": score}, CODER_AUTOAPPROVE=approve) == {"_next": target}


def test_a_large_state_comes_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text(json.dumps({"complexity_score": 9}))
    assert run("route_complexity", GRAPH_STATE_FILE=str(file)) == {"_next": "gate_approval"}


# --- what is run


@pytest.mark.parametrize(
    ("script", "variable", "good"),
    [("verify_build", "BUILD_CMD", "verify_tests"), ("verify_tests", "TEST_CMD", "end_success")],
)
def test_a_check_leads_on_or_to_the_fix_loop_with_its_log(project: Path, script: str, variable: str, good: str) -> None:
    name, state = script.removeprefix("verify_"), {"project_dir": str(project)}
    assert run(script, state, **{variable: "echo fine"}) == {
        f"{name}_ok": True,
        f"{name}_status": "passed",
        f"{name}_output": "$ echo fine\nfine\n[exit 0]",
        "_next": good,
    }
    assert run(script, state, **{variable: "pwd; echo broken >&2; exit 3"}) == {
        f"{name}_ok": False,
        f"{name}_status": "failed",
        f"{name}_output": f"$ pwd; echo broken >&2; exit 3\n{project}\nbroken\n[exit 3]",
        "_next": "fix_loop_gate",
    }


def test_of_a_long_log_the_end_is_kept(project: Path) -> None:
    result = run("verify_build", {"project_dir": str(project)}, BUILD_CMD="seq 100000; exit 1")
    lines = result["build_output"].splitlines()
    assert lines[1] == "[the first 568895 bytes are left out]"
    assert lines[-2:] == ["100000", "[exit 1]"]
    assert len(result["build_output"]) < 21_000


def test_a_check_sees_neither_the_state_nor_a_wish_for_colours(project: Path) -> None:
    show = 'echo "<$GRAPH_STATE$FORCE_COLOR$CLICOLOR_FORCE>$NO_COLOR"'
    result = run("verify_build", {"project_dir": str(project)}, BUILD_CMD=show, FORCE_COLOR="1", CLICOLOR_FORCE="1")
    assert "\n<>1\n" in result["build_output"]


def test_a_process_that_a_check_leaves_behind_does_not_hold_it_up(project: Path) -> None:
    left = "sleep 60 & echo $! > pid"
    assert run("verify_build", {"project_dir": str(project)}, BUILD_CMD=left)["build_ok"] is True
    os.kill(int((project / "pid").read_text()), 9)


def test_a_check_that_hangs_is_ended_and_its_log_kept(project: Path) -> None:
    code = (
        "from pathlib import Path; from verify import verify\n"
        f"verify('tests', 'echo begun; exec sleep 60', Path({str(project)!r}), good='end_success', seconds=3)"
    )
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.PIPE, timeout=60)
    assert json.loads(done.stdout) == {
        "tests_ok": False,
        "tests_status": "failed",
        "tests_output": "$ echo begun; exec sleep 60\nbegun\n[ended after 3 s, it was still running]",
        "_next": "fix_loop_gate",
    }


PYTHON_BUILD = "python3 -m compileall -q -x '/[.]' ."


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"notes.txt": ""}, ("", "")),
        ({"Cargo.toml": "", "Makefile": "all:\n"}, ("cargo build --all-targets", "cargo test")),
        ({"go.mod": ""}, ("go build ./... && go vet ./...", "go test ./...")),
        ({"a.py": ""}, (PYTHON_BUILD, "")),
        ({"pyproject.toml": "", "src/a.py": ""}, (PYTHON_BUILD, "")),
        ({"a.py": "", "test_a.py": ""}, (PYTHON_BUILD, "python3 -m unittest discover")),
        ({"a.py": "", "tests/test_a.py": ""}, (PYTHON_BUILD, "python3 -m unittest discover -s tests")),
        (
            {"a.py": "", "tests/__init__.py": "", "tests/test_a.py": ""},
            (PYTHON_BUILD, "python3 -m unittest discover -s tests -t ."),
        ),
        ({"a.py": "", "tests/test_a.py": "", "tests/conftest.py": ""}, (PYTHON_BUILD, "python3 -m pytest -q")),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n", "tests/t.py": ""}, (PYTHON_BUILD, "python3 -m pytest -q")),
        ({"package.json": '{"scripts": {"build": "tsc", "test": "vitest"}}'}, ("npm run build", "npm run test")),
        ({"package.json": '{"scripts": {"test": "vitest"}}', "pnpm-lock.yaml": ""}, ("", "pnpm run test")),
        ({"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'}, ("", "")),
        ({"package.json": "[not json"}, ("", "")),
        ({"package.json": "[1]"}, ("", "")),
        ({"Makefile": "all: a\n\ntest: all\n\ttrue\n"}, ("make", "make test")),
        ({"Makefile": "check := 1\nall:\n"}, ("make", "")),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_how_to_check_a_project_is_told_by_its_files(
    project: Path, files: dict[str, str], expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        file = project / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert commands(project) == expected
    monkeypatch.setenv("BUILD_CMD", "b")
    monkeypatch.setenv("TEST_CMD", "")
    assert commands(project) == ("b", "")  # the user knows better, even that there is nothing


def test_a_project_with_its_own_python_is_checked_with_that(project: Path) -> None:
    own = project / ".venv" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.touch()
    (project / "test_a.py").touch()
    assert commands(project) == (f"{own} -m compileall -q -x '/[.]' .", f"{own} -m unittest discover")


def test_a_project_with_nothing_to_run_passes_and_says_so(project: Path) -> None:
    result = run("verify_tests", {"project_dir": str(project)})
    assert (result["tests_ok"], result["_next"]) == (True, "end_success")
    assert result["tests_status"] == "nothing to run for this kind of project"


def test_the_broken_shop_builds_and_fails_its_tests(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    shutil.copytree(SHOP, shop)
    (shop / ".venv").mkdir()
    (shop / ".venv" / "broken.py").write_text("def")  # other people's code is not looked at
    state = {"project_dir": str(shop)}
    assert run("verify_build", state)["_next"] == "verify_tests"
    tests = run("verify_tests", state)
    assert tests["_next"] == "fix_loop_gate"
    assert "FAILED (failures=2)" in tests["tests_output"]
    (shop / "shop" / "basket.py").write_text("def")
    build = run("verify_build", state)
    assert build["_next"] == "fix_loop_gate"
    assert "SyntaxError" in build["build_output"]


# --- again, or not


def test_the_fix_loop_hands_over_the_log_until_its_tries_are_used_up() -> None:
    state = {"fix_attempts": 1, "max_fix_attempts": 3, "build_ok": True, "tests_ok": False, "tests_output": "3 failed"}
    result = run("fix_loop_gate", state)
    assert (result["_next"], result["fix_attempts"]) == ("implement", 2)
    assert result["fix_instructions"] == "The test run failed (try 2 of 3). Mend only this:\n\n3 failed"
    assert run("fix_loop_gate", {**state, "fix_attempts": 3}) == {"_next": "end_failure"}


def test_a_build_that_fails_is_told_before_the_tests_that_failed_earlier() -> None:
    state = {"build_ok": False, "build_output": "no such file", "tests_ok": False, "tests_output": "old"}
    told = run("fix_loop_gate", state)["fix_instructions"]
    assert told == "The build failed (try 1 of 3). Mend only this:\n\nno such file"


def test_a_budget_of_no_tries_is_none() -> None:
    assert run("fix_loop_gate", {"build_ok": False, "max_fix_attempts": 0}) == {"_next": "end_failure"}
