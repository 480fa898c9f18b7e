"""`callboard runs diff` and `callboard runs restore`: what the file tools of a run have changed, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fake_models import FakeModels, Reply
from support.messages import has_message

from callboard.cli.render.wrap import diff_lines

from .conftest import Ended

Callboard = Callable[..., Ended]


@pytest.fixture
def project(tmp_path: Path, models: FakeModels, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which a run has just changed one file and made another."""
    project = (tmp_path / "project").resolve()
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    agent = tmp_path / "config" / "agents" / "clerk"
    agent.mkdir(parents=True)
    (agent / "config.yaml").write_text("name: clerk\ninstructions: Write.\nglobal_tools: [fs]\n")
    (project / "a.txt").write_text("one\ntwo\x1b[2J\n")
    models.script(
        Reply(calls=[("fs_patch", {"path": "a.txt", "contents": "@@ -1 +1 @@\n-one\n+1\n"})]),
        Reply(calls=[("fs_write", {"path": "b/new.txt", "contents": "new\n"})]),
        "done",
    )
    return project


def test_a_run_without_a_server_is_shown_and_taken_back(callboard: Callboard, project: Path) -> None:
    assert callboard("run", "clerk", "go", "--yes", "-q")[0] == 0
    code, out, _err = callboard("runs", "diff")
    run, head = out.splitlines()[0].split(": ")
    assert (code, head) == (0, "3 files, +2 -1 lines")
    assert out.splitlines()[2:9] == [
        "changed a.txt +1 -1",
        "--- a/a.txt",
        "+++ b/a.txt",
        "@@ -1,2 +1,2 @@",
        "-one",
        "+1",
        " two\\x1b[2J",
    ]
    assert "created b/\n" in out
    assert "created b/new.txt +1 -0\n" in out
    assert [file["how"] for file in json.loads(callboard("runs", "diff", run, "-o", "json")[1])["files"]] == [
        "changed",
        "created",
        "created",
    ]
    code, _out, err = callboard("runs", "restore", run)
    assert (code, has_message(err, "cli.control.commands.changed._agreed")) == (5, True)
    (project / "b" / "mine").write_text("mine")
    code, out, _err = callboard("runs", "restore", run[4:], "--yes")
    *changed, left = out.splitlines()
    assert (code, changed) == (1, ["restored a.txt", "removed b/new.txt"])
    assert left.startswith("left b: ")
    assert has_message(left, "work.tools.changes.run_changes._words")
    assert (project / "a.txt").read_text() == "one\ntwo\x1b[2J\n"
    (project / "b" / "mine").unlink()
    assert callboard("runs", "restore", run, "--no-input", "--yes") == (0, "removed b\n", "")


def test_a_run_that_is_not_there_and_one_that_has_changed_nothing(callboard: Callboard, project: Path) -> None:
    code, _out, err = callboard("runs", "diff")
    assert (code, has_message(err, "cli.control.commands.changed._run_of")) == (2, True)
    assert callboard("runs", "diff", "run-nope")[0] == 2
    assert callboard("runs", "restore", "run-nope", "--yes")[0] == 2


def test_a_diff_is_coloured_line_by_line_and_no_line_breaks_out() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- sql\n+++ c\n \u2028+no\x1b[0m\n\\ 3 more lines are left out\n"
    assert diff_lines(diff, coloured=True) == [
        "\x1b[1m--- a/x\x1b[0m",
        "\x1b[1m+++ b/x\x1b[0m",
        "\x1b[36m@@ -1,2 +1,2 @@\x1b[0m",
        "\x1b[31m--- sql\x1b[0m",
        "\x1b[32m+++ c\x1b[0m",
        " \\u2028+no\\x1b[0m",
        "\x1b[2m\\ 3 more lines are left out\x1b[0m",
    ]
    assert not any("\x1b" in line for line in diff_lines(diff, coloured=False))
