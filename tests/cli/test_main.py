"""The program as a whole: every ending has its exit code, its text, and JSON when JSON was asked for."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.messages import has_message

from callboard.cli import main
from callboard.cli.failure import report, wanted_output
from callboard.protocol.errors import CredentialsError, InvalidFile, NodeFailed
from callboard.protocol.problems import Problem

Callboard = Callable[..., "tuple[int, str, str]"]


def test_a_command_that_does_not_exist_suggests_one(callboard: Callboard) -> None:
    code, out, err = callboard("validat", "x")
    assert (code, out) == (2, "")
    assert has_message(err, "cli.main._unknown.3", near="validate")


@pytest.mark.parametrize(
    "arguments", [["validat", "x"], ["run", "--nonsense"], ["run"], ["run", "x", "--timeout", "-1"], ["tools", "shw"]]
)
def test_wrong_usage_is_told_by_name_as_every_error_is(callboard: Callboard, arguments: list[str]) -> None:
    code, _out, err = callboard(*arguments)
    assert code == 2
    assert err.splitlines()[-1].startswith("callboard: ")
    assert "Error" not in err


def test_something_that_looks_like_a_target_is_pointed_to_run(callboard: Callboard) -> None:
    code, _out, err = callboard("my-agent")
    assert code == 2
    assert "callboard run my-agent" in err


def test_no_arguments_show_the_help_as_wrong_usage(callboard: Callboard) -> None:
    code, out, err = callboard()
    assert (code, out) == (2, "")
    assert "\nTalk\n  chat " in err


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["run", "x", "-o", "json"], "json"),
        (["run", "x", "-ojson"], "json"),
        (["run", "x", "-qo", "stream-json"], "stream-json"),
        (["run", "x", "--output=json", "-o", "text"], "text"),
        (["run", "x", "--output", "json"], "json"),
        (["run", "x", "--", "-o", "json"], ""),
        (["run", "x"], ""),
        (["run", "x", "-o"], ""),
    ],
)
def test_the_wanted_output_is_known_without_the_parser(arguments: list[str], wanted: str) -> None:
    assert wanted_output(arguments) == wanted


def test_a_usage_error_is_json_too_once_json_was_asked_for(callboard: Callboard) -> None:
    code, out, err = callboard("run", "-o", "json", "--nonsense")
    assert code == 2
    outcome = json.loads(out)
    assert (outcome["run_id"], outcome["status"], outcome["error"]["code"]) == ("", "failed", "usage")
    assert "--nonsense" in outcome["error"]["message"]
    assert "--nonsense" in err


def test_the_last_line_of_stream_json_carries_the_outcome_of_a_run_that_never_began(callboard: Callboard) -> None:
    code, out, _err = callboard("run", "nowhere.yaml", "-o", "stream-json", "--set", "a=b")
    (line,) = out.splitlines()
    event = json.loads(line)
    assert (code, event["kind"], event["schema_version"]) == (2, "run.failed", 1)
    assert event["data"]["outcome"]["error"]["code"] == "usage"


def test_other_commands_answer_in_json_with_an_error_object(callboard: Callboard, tmp_path: Path) -> None:
    code, out, _err = callboard("validate", str(tmp_path / "nowhere.yaml"), "-o", "json")
    assert code == 2
    assert json.loads(out)["error"]["code"] == "usage"


def test_an_invalid_file_shows_every_problem(capsys: pytest.CaptureFixture[str]) -> None:
    problems = [
        Problem(severity="error", file="g.yaml", line=3, column=5, code="x", message="bad \x1b[2J", hint="do this")
    ]
    error = InvalidFile(f"1 error:\n  {problems[0]}", problems)
    assert report(error, ["run", "g.yaml", "-o", "json"]) == 2
    out, err = capsys.readouterr()
    assert err == "g.yaml:3:5: error: bad \\x1b[2J\n    do this\ncallboard: 1 error\n"
    assert "g.yaml:3:5" in json.loads(out)["error"]["message"]


def test_an_error_has_its_exit_code_and_names_its_node(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(CredentialsError("no key"), []) == 3
    assert report(NodeFailed("exit status 1").at("build"), []) == 1
    assert capsys.readouterr().err == "callboard: no key\ncallboard: node 'build': exit status 1\n"


def test_a_lone_error_in_groups_is_told_as_itself(capsys: pytest.CaptureFixture[str]) -> None:
    group = ExceptionGroup("a", [ExceptionGroup("b", [CredentialsError("no key")])])
    assert report(group, []) == 3
    assert capsys.readouterr().err == "callboard: no key\n"


def test_no_traceback_reaches_the_user_unless_the_log_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CALLBOARD_LOG", raising=False)
    assert report(RuntimeError("odd"), []) == 1
    told = capsys.readouterr().err
    assert "RuntimeError: odd" in told
    assert "CALLBOARD_LOG=debug" in told
    assert "Traceback" not in told
    monkeypatch.setenv("CALLBOARD_LOG", "debug")
    report(RuntimeError("odd"), [])
    assert "RuntimeError: odd" in capsys.readouterr().err


def test_a_closed_pipe_ends_quietly_with_141() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "callboard.cli", "schema", "events"],
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize("about", ["graph", "agent", "settings", "events"])
def test_every_schema_is_a_valid_json_schema(callboard: Callboard, about: str) -> None:
    from jsonschema import Draft202012Validator

    code, out, err = callboard("schema", about)
    assert (code, err) == (0, "")
    Draft202012Validator.check_schema(json.loads(out))


def test_completion_offers_agents_directories_and_yaml_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config" / "agents" / "coder").mkdir(parents=True)
    (tmp_path / "cool").mkdir()
    (tmp_path / "cool" / "graph.yaml").touch()
    (tmp_path / "code.yaml").touch()
    (tmp_path / "cocoa.txt").touch()
    monkeypatch.chdir(tmp_path)
    environment = {
        "CALLBOARD_CONFIG_DIR": str(tmp_path / "config"),
        "_CALLBOARD_COMPLETE": "bash_complete",
        "COMP_WORDS": "callboard run co",
        "COMP_CWORD": "2",
    }
    result = CliRunner().invoke(main.cli, [], prog_name="callboard", env=environment)
    offered = [line.removeprefix("plain,") for line in result.output.split()]
    assert offered == ["code-reviewer", "code.yaml", "coder", "config/", "cool"]


def _shell(line: str, directory: Path) -> subprocess.CompletedProcess[str]:
    command = f"{sys.executable} -m callboard.cli {line}"
    return subprocess.run(["sh", "-c", command], cwd=directory, capture_output=True, text=True, check=False)


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    """A directory with `echo.yaml`, a graph that repeats its prompt."""
    text = 'name: echo\nstart: end\nnodes: {end: {type: end, output: "[{{initial_prompt}}]"}}\n'
    (tmp_path / "echo.yaml").write_text(text)
    return tmp_path


CLOSED = ["<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"]
"""How a shell closes each of the standard streams, and each combination of them."""

FAILS = (
    "name: fails\nstart: one\nnodes: {one: {type: script, script: fails.sh, next: end}, end: {type: end, output: x}}\n"
)


def with_dev_null(closed: str) -> str:
    """The same command line with /dev/null in place of what `closed` closes."""
    return closed.replace("<&-", "</dev/null").replace(">&-", ">/dev/null")


LINES = ["run -q echo.yaml hi", "run -q fails.yaml hi", "validate nothing.yaml", "run --nonsense"]
QUICK = {("run -q echo.yaml hi", "<&- 2>&-"), ("run -q fails.yaml hi", ">&-")}
"""Cases of `make test`; the others are for `make test-all`."""


@pytest.mark.parametrize(
    ("line", "closed"),
    [pytest.param(*case, marks=() if case in QUICK else pytest.mark.full) for case in itertools.product(LINES, CLOSED)],
)
def test_a_closed_standard_stream_is_dev_null(echo: Path, line: str, closed: str) -> None:
    (echo / "fails.yaml").write_text(FAILS)
    (echo / "fails.sh").write_text("cat; echo out; echo err >&2; exit 3\n")
    ended, same = (_shell(f"{line} {streams}", echo) for streams in (closed, with_dev_null(closed)))
    assert (ended.returncode, ended.stdout, ended.stderr) == (same.returncode, same.stdout, same.stderr)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("line", ["--help", "schema graph", "run -q echo.yaml hi", "run -q -o json echo.yaml hi"])
def test_a_full_disk_is_told_in_one_line(echo: Path, line: str) -> None:
    ended = _shell(f"{line} > /dev/full", echo)
    assert ended.returncode == 1
    assert has_message(ended.stderr, "cli.main._unwritable")


def test_validate_counts_the_problems_of_a_file_that_is_no_yaml(callboard: Callboard, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("name: x\n\tstart: a\n")
    code, out, err = callboard("validate", str(broken))
    assert (code, err) == (2, "")
    assert out.splitlines()[-1] == f"{broken}: 1 error, 0 warnings"
    found = json.loads(callboard("validate", str(broken), "-o", "json").out)
    assert (found["errors"], found["problems"][0]["line"]) == (1, 2)


COMMANDS = (
    ["ask", "hello"],
    ["tools", "list"],
    ["run", "agent", "-o", "json"],
    ["validate", "graph.yaml"],
    ["kb", "list"],
    ["trust", "--show"],
    ["init", "agent"],
    ["batch", "agent", "tasks.csv"],
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_working_directory_that_was_removed_is_one_clear_line_or_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    main.run(words)
    shown = capfd.readouterr().err
    assert "unexpected error" not in shown
    assert len(shown.splitlines()) <= 1 or "working directory" not in shown
