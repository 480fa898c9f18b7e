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
from support.graph_scripts import Json, played, printed

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


def commands(project: Path) -> tuple[list[str], list[str]]:
    """What would be run to build and to test; of a check that can't be run, why."""
    module = runpy.run_path(str(SCRIPTS / "project.py"))
    build, test = ([each.missing or each.command for each in module[kind](project)] for kind in ("builds", "tests"))
    return build, test


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "BUILD_CMD",
        "TEST_CMD",
        "CODER_AUTOAPPROVE",
        "LLM_AGENT_VAR_PROJECT_DIR",
        "LLM_AGENT_VAR_TESTS_MAY_CHANGE",
        "GRAPH_STATE_FILE",
    ):
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
    [(6, "", "measure"), (7, "", "gate_approval"), (9, "1", "measure"), (9, "0", "gate_approval")],
)
def test_large_plans_are_shown_to_a_person(score: int, approve: str, target: str) -> None:
    assert run("route_complexity", {"complexity_score": score}, CODER_AUTOAPPROVE=approve) == {"_next": target}


def test_a_large_state_comes_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text(json.dumps({"complexity_score": 9}))
    assert run("route_complexity", GRAPH_STATE_FILE=str(file)) == {"_next": "gate_approval"}


# --- what is run


def test_a_build_leads_on_or_to_the_fix_loop_with_its_log(project: Path) -> None:
    state = {"project_dir": str(project)}
    assert run("verify_build", state, BUILD_CMD="echo fine") == {
        "build_status": "passed",
        "build_output": "$ echo fine\nfine\n[exit 0]",
        "files_changed": [],
        "tests_weakened": [],
        "_next": "verify_tests",
    }
    log = f"$ pwd; echo broken >&2; exit 3\n{project}\nbroken\n[exit 3]"
    assert run("verify_build", state, BUILD_CMD="pwd; echo broken >&2; exit 3") == {
        "build_status": "failed",
        "build_output": log,
        "files_changed": [],
        "tests_weakened": [],
        "tests_status": "not run",
        "failure": "the build fails",
        "failure_log": log,
        "_next": "fix_loop_gate",
    }


def test_of_a_long_log_the_end_is_kept(project: Path) -> None:
    result = run("verify_build", {"project_dir": str(project)}, BUILD_CMD="seq 100000; exit 1")
    lines = result["build_output"].splitlines()
    assert lines[1] == "[the first 568894 bytes are left out]"
    assert lines[-2:] == ["100000", "[exit 1]"]
    assert len(result["build_output"]) < 21_000


def test_a_check_sees_neither_the_state_nor_a_wish_for_colours(project: Path) -> None:
    show = 'echo "<$GRAPH_STATE$FORCE_COLOR$CLICOLOR_FORCE>$NO_COLOR"'
    result = run("verify_build", {"project_dir": str(project)}, BUILD_CMD=show, FORCE_COLOR="1", CLICOLOR_FORCE="1")
    assert "\n<>1\n" in result["build_output"]


def test_a_process_that_a_check_leaves_behind_does_not_hold_it_up(project: Path) -> None:
    left = "sleep 60 & echo $! > pid"
    assert run("verify_build", {"project_dir": str(project)}, BUILD_CMD=left)["build_status"] == "passed"
    os.kill(int((project / "pid").read_text()), 9)


def test_a_check_that_hangs_is_ended_and_its_log_kept(project: Path) -> None:
    code = (
        "import json; from pathlib import Path; import checks, project\n"
        f"top = Path({str(project)!r})\n"
        "check = project.Check('TEST_CMD', 'echo begun; exec sleep 60', top)\n"
        "print(json.dumps(checks.run([check], top, 3, of_tests=True)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.PIPE, timeout=60)
    (report,) = json.loads(done.stdout)
    assert (report["state"], report["why"]) == ("failed", "it did not come to an end")
    assert report["log"] == "$ echo begun; exec sleep 60\nbegun\n[ended after 3 s, it was still running]"


CASE = "import unittest\n\nclass T(unittest.TestCase):\n    def test_a(self): pass\n"
FUNCTION = "def test_a(): pass\n"
NODE = '{"scripts": {"test": "vitest"}}'


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"notes.txt": ""}, ([], [])),
        ({"Cargo.toml": "", "Makefile": "test:\n"}, (["cargo build --all-targets"], ["cargo test --no-fail-fast"])),
        ({"go.mod": ""}, (["go build ./... && go vet ./..."], ["go test -v ./..."])),
        ({"a.py": ""}, (["BUILD"], [])),
        ({"pyproject.toml": "", "src/a.py": ""}, (["BUILD"], [])),
        ({"test_a.py": CASE}, (["BUILD"], ["python3 -m unittest discover -v"])),
        ({"tests/test_a.py": CASE}, (["BUILD"], ["python3 -m unittest discover -v -s tests"])),
        (
            {"tests/__init__.py": "", "tests/test_a.py": CASE},
            (["BUILD"], ["python3 -m unittest discover -v -s tests -t ."]),
        ),
        ({"tests/test_a.py": FUNCTION}, (["BUILD"], ["python3 -m pytest -q"])),
        ({"tests/test_a.py": f"import pytest\n{CASE}"}, (["BUILD"], ["python3 -m pytest -q"])),
        ({"tests/test_a.py": "class TestA:\n    def test(self): pass\n"}, (["BUILD"], ["python3 -m pytest -q"])),
        ({"src/p/tests/test_a.py": CASE}, (["BUILD"], ["python3 -m pytest -q"])),  # unittest would find nothing
        ({"a_test.py": CASE}, (["BUILD"], ["python3 -m pytest -q"])),
        ({"tests/test_a.py": CASE, "tests/conftest.py": ""}, (["BUILD"], ["python3 -m pytest -q"])),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n", "tests/t.py": ""}, (["BUILD"], ["python3 -m pytest -q"])),
        ({"a.py": "", ".venv/lib/test_a.py": CASE, "node_modules/test_b.py": CASE}, (["BUILD"], [])),
        ({"package.json": '{"scripts": {"build": "tsc", "test": "vitest"}}'}, (["npm run build"], ["npm run test"])),
        ({"package.json": NODE, "pnpm-lock.yaml": ""}, ([], ["pnpm run test"])),
        ({"package.json": NODE, "yarn.lock": ""}, ([], ["yarn run test"])),
        ({"package.json": NODE, "bun.lock": ""}, ([], ["bun run test"])),
        ({"package.json": '{"packageManager": "pnpm@9.1.0", "scripts": {"test": "jest"}}'}, ([], ["pnpm run test"])),
        ({"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'}, ([], [])),
        ({"package.json": "{}", "a.test.js": ""}, ([], ["node --test"])),
        ({"test/a.mjs": ""}, ([], ["node --test"])),
        ({"package.json": "[not json"}, ([], [])),
        ({"package.json": "[1]"}, ([], [])),
        ({"package.json": NODE, "test_a.py": FUNCTION}, (["BUILD"], ["npm run test", "python3 -m pytest -q"])),
        ({"api/test_a.py": FUNCTION, "web/package.json": NODE}, (["BUILD"], ["python3 -m pytest -q", "npm run test"])),
        ({"Makefile": "all: a\n\ntest: all\n\ttrue\n"}, (["make"], ["make test"])),
        ({"Makefile": "check := 1\nall:\n"}, (["make"], [])),
        ({"a.py": "", "Makefile": "check:\n\ttrue\n"}, (["BUILD", "make"], ["make check"])),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
@pytest.mark.sample(12)
def test_how_to_check_a_project_is_told_by_its_files(
    project: Path,
    files: dict[str, str],
    expected: tuple[list[str], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("cargo", "go", "npm", "pnpm", "yarn", "bun", "node", "make"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}/usr/bin:/bin")
    write(project, files)
    build = "python3 -m compileall -q -x '/[.]' ."
    assert commands(project) == ([each.replace("BUILD", build) for each in expected[0]], expected[1])
    monkeypatch.setenv("BUILD_CMD", "b")
    monkeypatch.setenv("TEST_CMD", "")
    assert commands(project) == (["b"], [])  # the user knows better, even that there is nothing


def write(project: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"Cargo.toml": ""}, "cargo is not installed"),
        ({"go.mod": ""}, "go is not installed"),
        ({"package.json": NODE}, "npm is not installed"),
        ({"package.json": NODE, "yarn.lock": ""}, "yarn is not installed"),
        ({"a.test.js": ""}, "node is not installed"),
        ({"Makefile": "test:\n"}, "make is not installed"),
        ({"test_a.py": FUNCTION}, "python3 is not installed"),
    ],
)
@pytest.mark.sample(3)
def test_a_runner_that_the_machine_lacks_is_reported(
    project: Path, files: dict[str, str], reason: str, tmp_path: Path
) -> None:
    write(project, files)
    result = run("verify_tests", {"project_dir": str(project), "baseline": {"suites": []}}, PATH=str(tmp_path))
    assert (result["_next"], result["tests_status"]) == ("end_unverified", f"could not run: {reason}")


def own_python(project: Path) -> Path:
    """A Python of the project's own, without pytest."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(project / ".venv")], check=True, timeout=120)
    return project / ".venv" / "bin" / "python"


def test_tests_that_only_pytest_can_run_are_not_given_to_unittest(project: Path) -> None:
    own = own_python(project)
    write(project, {"tests/test_a.py": FUNCTION})
    result = run("verify_tests", {"project_dir": str(project), "baseline": {"suites": []}})
    assert result["_next"] == "end_unverified"
    assert result["tests_status"] == f"could not run: pytest is not installed for {own}: tests/test_a.py needs it"
    write(project, {"tests/test_a.py": CASE, "tests/conftest.py": ""})  # unittest can do it as well
    result = run("verify_tests", {"project_dir": str(project), "baseline": {"suites": []}})
    assert (result["_next"], result["tests_status"]) == ("end_success", "passed: unittest: 1 passed")
    assert f"$ {own} -m unittest discover -v -s tests" in result["tests_output"]


# --- what the tests prove


def measured(project: Path) -> Json:
    """The state after the tests were run for the first time."""
    result = run("measure", {"project_dir": str(project)})
    assert result.pop("_next") == "implement"
    return {"project_dir": str(project), **result}


def judged(project: Path, state: Json, **variables: str) -> tuple[str, str]:
    """Where it goes after the change, and the status of the tests."""
    built = run("verify_build", state)
    if built["_next"] != "verify_tests":
        return built["_next"], built["failure"]
    result = run("verify_tests", {**state, **built}, **variables)
    return result["_next"], result["tests_status"]


TWO = "def test_one(): assert True\n\ndef test_two(): assert True\n"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"test_a.py": TWO}, {}, ("fix_loop_gate", "no file was changed")),
        (
            {"test_a.py": TWO},
            {"a.py": "x = 1"},
            ("end_success", "passed: pytest: 2 passed, as before the change: none of them shows it"),
        ),
        (
            {"test_a.py": TWO},
            {"test_b.py": "def test_new(): pass\n"},
            ("end_success", "passed: pytest: 3 passed (1 new)"),
        ),
        (
            {"test_a.py": TWO},
            {"test_a.py": "def test_one(): assert True\n"},
            ("fix_loop_gate", "failed: pytest: tests that ran before the change are gone: test_a::test_two"),
        ),
        (
            {"test_a.py": TWO},
            {"test_a.py": None, "test_b.py": "def test_new(): pass\n\ndef test_newer(): pass\n"},
            (
                "fix_loop_gate",
                "failed: pytest: tests that ran before the change are gone: test_a::test_one, test_a::test_two",
            ),
        ),
        (
            {"test_a.py": TWO},
            {"conftest.py": "import pytest\ndef pytest_itemcollected(item): item.add_marker(pytest.mark.skip)\n"},
            (
                "fix_loop_gate",
                (
                    "failed: pytest: 2 tests ran before the change, and none runs now: "
                    "`python3 -m pytest -q` skipped all 2 tests"
                ),
            ),
        ),
        (
            {"test_a.py": TWO},
            {"test_a.py": None},
            ("fix_loop_gate", "failed: pytest: the 2 tests that ran before the change are gone"),
        ),
        (
            {"test_a.py": TWO.replace("True", "False")},
            {"test_a.py": TWO},
            (
                "end_unverified",
                (
                    "not proven: lines of existing tests were changed or removed in test_a.py; "
                    "passed: pytest: 2 passed (2 failed before the change)"
                ),
            ),
        ),
        (
            {"test_a.py": TWO, "b.py": "def f(): return 1\n"},
            {"test_a.py": f"from b import f\n{TWO}\ndef test_f(): assert f()\n", "b.py": "def f(): return 2\n"},
            ("end_success", "passed: pytest: 3 passed (1 new)"),
        ),
        (
            {"test_a.py": TWO},
            {"test_a.py": TWO.replace("True", "False", 1)},
            ("fix_loop_gate", "failed: pytest: 1 of 2 tests fail"),
        ),
        ({"a.py": ""}, {"a.py": "x = 1"}, ("end_unverified", "not tested: no tests were found")),
        (
            {"tests/__init__.py": "", "tests/test_a.py": "import unittest\n"},
            {"a.py": ""},
            ("end_unverified", "not tested: `python3 -m unittest discover -v -s tests -t .` ran 0 tests"),
        ),
        (
            {"test_a.py": f"import nowhere\n{TWO}"},
            {"a.py": ""},
            (
                "end_unverified",
                "could not run: `python3 -m pytest -q` ended with exit 2 before any test ran, as before the change",
            ),
        ),
        (
            {"Makefile": "test:\n\t@echo fine\n"},
            {"a.c": ""},
            ("end_unverified", "not tested: `make test` does not show that any test ran"),
        ),
        (
            {
                "package.json": '{"scripts": {"test": "node --test"}}',
                "a.test.js": "require('node:test')('a', () => {})",
            },
            {"package.json": '{"scripts": {"test": "echo 5 passing"}}'},
            ("fix_loop_gate", "failed: npm: the tests that ran before the change are not listed any more"),
        ),
        (
            {"Makefile": "test:\n\t@echo 5 passing\n"},
            {"Makefile": "test:\n\t@echo 6 passing\n"},
            ("end_unverified", "not proven: what `make test` runs was changed; passed: make: 6 passed"),
        ),
        (
            {"test_a.py": "import pytest, time\n@pytest.mark.parametrize('x', [time.time_ns()])\ndef test(x): pass\n"},
            {"a.py": ""},
            ("end_success", "passed: pytest: 1 passed (1 new)"),
        ),
        (
            {"package.json": '{"scripts": {"test": "nowhere-to-be-found"}}'},
            {"a.js": ""},
            ("end_unverified", "could not run: the shell could not start `npm run test` (exit 127)"),
        ),
    ],
)
def test_a_status_is_what_the_tests_prove(
    project: Path, before: dict[str, str], after: dict[str, str | None], expected: tuple[str, str]
) -> None:
    if "package.json" in before and shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    write(project, before)
    state = measured(project)
    for name, text in after.items():
        (project / name).unlink() if text is None else write(project, {name: text})
    assert judged(project, state) == expected


@pytest.mark.full
def test_existing_tests_may_change_if_the_user_says_so(project: Path) -> None:
    write(project, {"test_a.py": TWO})
    state = measured(project)
    write(project, {"test_a.py": "def test_one(): assert 1\n"})
    assert judged(project, state)[0] == "fix_loop_gate"
    allowed = judged(project, state, LLM_AGENT_VAR_TESTS_MAY_CHANGE="yes")
    assert allowed[0] == "end_success"


def test_without_tests_from_before_nothing_is_proven(project: Path) -> None:
    write(project, {"test_a.py": TWO})
    result = run("verify_tests", {"project_dir": str(project)})
    assert result["_next"] == "end_unverified"
    assert result["tests_status"].startswith("not compared: ")


def test_a_command_of_the_users_own_counts_by_its_exit_status_and_its_numbers(project: Path) -> None:
    state = {"project_dir": str(project), "baseline": {"suites": []}}
    assert run("verify_tests", state, TEST_CMD="true")["_next"] == "end_success"
    assert run("verify_tests", state, TEST_CMD="false")["_next"] == "fix_loop_gate"
    assert run("verify_tests", state, TEST_CMD="echo 'Ran 0 tests in 0.1s'")["_next"] == "end_unverified"


@pytest.mark.parametrize(
    ("output", "numbers"),
    [
        ("===== 1 failed, 2 passed, 1 skipped in 0.12s =====", (2, 1, 1)),
        ("no tests ran in 0.01s", (0, 0, 0)),
        ("Ran 5 tests in 0.001s\n\nFAILED (failures=1, errors=1, skipped=1, expected failures=1)", (2, 2, 1)),
        ("Ran 0 tests in 0.000s\n\nOK", (0, 0, 0)),
        ("test a::b ... ok\ntest c ... FAILED\ntest d ... ignored", (1, 1, 1)),
        ("=== RUN TestA\n--- PASS: TestA (0.00s)\n--- FAIL: TestB (0.00s)\nFAIL\tx/y\t0.1s", (1, 1, 0)),
        ("ok  \tx/y\t0.003s\n?   \tx/z\t[no test files]", (1, 0, 0)),
        ("Tests:       1 failed, 1 skipped, 3 passed, 5 total", (3, 1, 1)),
        (" Test Files  1 passed (1)\n      Tests  1 failed | 4 passed (5)", (4, 1, 0)),
        ("  5 passing (4ms)\n  1 pending\n  2 failing", (5, 2, 1)),
        (" 5 pass\n 1 fail\nRan 6 tests across 1 files.", (5, 1, 0)),
        ("  3 tests passed\n  1 test failed", (3, 1, 0)),
        ("ok | 5 passed | 0 failed | 1 ignored (3ms)", (5, 0, 1)),
        ("[INFO] Tests run: 5, Failures: 1, Errors: 1, Skipped: 1", (2, 2, 1)),
        ("100% tests passed, 0 tests failed out of 3", (3, 0, 0)),
        ("5 tests, 1 failure", (4, 1, 0)),
        ("5 examples, 1 failure, 1 pending", (3, 1, 1)),
        ("OK (5 tests, 9 assertions)", (5, 0, 0)),
        ("[  PASSED  ] 5 tests.", (5, 0, 0)),
        ("1..3\nok 1 - a\nnot ok 2 - b\nok 3 # SKIP", (1, 1, 1)),
        ("everything is fine", None),
    ],
)
@pytest.mark.sample(7)
def test_numbers_are_read_from_what_runners_print(output: str, numbers: tuple[int, int, int] | None) -> None:
    code = f"import json, results; print(json.dumps(results.read({output!r})))"
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.PIPE, timeout=60)
    found = json.loads(done.stdout)
    assert (found and tuple(found[outcome] for outcome in ("passed", "failed", "skipped"))) == numbers


def test_the_broken_shop_builds_and_fails_its_tests(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    shutil.copytree(SHOP, shop, ignore=shutil.ignore_patterns("__pycache__"))
    (shop / ".venv").mkdir()
    (shop / ".venv" / "broken.py").write_text("def")  # other people's code is not looked at
    state = measured(shop)
    (shop / "new.py").write_text("")
    built = run("verify_build", state)
    assert (built["_next"], built["files_changed"]) == ("verify_tests", ["new.py"])
    tests = run("verify_tests", {**state, **built})
    assert tests["_next"] == "fix_loop_gate"
    assert tests["tests_status"] == "failed: unittest: 2 of 3 tests fail (2 of them failed before the change)"
    assert "FAILED (failures=2)" in tests["tests_output"]
    (shop / "shop" / "basket.py").write_text("def")
    build = run("verify_build", state)
    assert build["_next"] == "fix_loop_gate"
    assert "SyntaxError" in build["build_output"]
    assert not list(shop.rglob("__pycache__"))


# --- again, or not


def test_the_fix_loop_hands_over_the_log_until_its_tries_are_used_up() -> None:
    state = {"fix_attempts": 1, "max_fix_attempts": 3, "failure": "tests failed", "failure_log": "3 failed"}
    result = run("fix_loop_gate", state)
    assert (result["_next"], result["fix_attempts"]) == ("implement", 2)
    assert result["fix_instructions"] == "Try 2 of 3: tests failed. Mend only this:\n\n3 failed"
    assert run("fix_loop_gate", {**state, "fix_attempts": 3}) == {"_next": "end_failure"}


def test_a_budget_of_no_tries_is_none() -> None:
    assert run("fix_loop_gate", {"max_fix_attempts": 0}) == {"_next": "end_failure"}
