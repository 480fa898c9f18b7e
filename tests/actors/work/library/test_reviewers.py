"""The reviewers read a repository with git, and git runs nothing that the repository names."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from callboard.actors.work.library import AGENTS

PROGRAMS = {"fsmonitor", "hook", "textconv", "external", "clean=x"}


def tools_of(agent: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(agent.replace("-", "_"), AGENTS / agent / "tools.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True, capture_output=True)


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where each program leaves a mark that git was talked into running by the repository we are in."""
    marks, repository = tmp_path / "marks", tmp_path / "repository"
    for directory in (marks, repository):
        directory.mkdir()
    monkeypatch.chdir(repository)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    for name in PROGRAMS:
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\ntouch \'{marks / name}\'\n[ -z "$1" ] && cat || cat "$1" 2>/dev/null\n')
        program.chmod(0o755)
    git("init", "-q")
    git("config", "user.name", "Ada")
    git("config", "user.email", "ada@example.org")
    for name in ("a.text", "b.driven", "c.filtered"):
        Path(name).write_text("one\n")
    git("add", ".")
    git("commit", "-qm", "one")
    Path(".gitattributes").write_text("*.text diff=text\n*.driven diff=driven\n*.filtered filter=a=b\n")
    for name in ("a.text", "b.driven", "c.filtered"):
        Path(name).write_text("two\n")
    Path("new file").write_text("new\n")
    with Path(".git/config").open("a") as config:
        config.write(
            f"""[core]\n fsmonitor = {tmp_path}/fsmonitor\n hooksPath = {tmp_path}/hooks\n"""
            f"""[diff "text"]\n textconv = {tmp_path}/textconv\n"""
            f"""[diff "driven"]\n command = {tmp_path}/external\n"""
            f"""[filter "a=b"]\n clean = {tmp_path}/clean=x\n required = true\n"""
        )
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "post-index-change").symlink_to(tmp_path / "hook")
    return marks


def test_a_review_runs_nothing_of_the_repository(marks: Path) -> None:
    git("diff")
    git("status")
    assert {path.name for path in marks.iterdir()} == PROGRAMS  # so it would
    for path in marks.iterdir():
        path.unlink()
    changes = tools_of("code-reviewer").changed_files()["files"]
    assert [(file["path"], file["change"]) for file in changes] == [
        (".gitattributes", "untracked"),
        ("a.text", "modified"),
        ("b.driven", "modified"),
        ("c.filtered", "modified"),
        ("new file", "untracked"),
    ]
    file_diff = tools_of("file-reviewer").file_diff
    for name in ("a.text", "b.driven", "c.filtered"):
        assert "\n-one\n+two\n" in file_diff(name)
    assert "\n+new\n" in file_diff("new file")
    assert list(marks.iterdir()) == []


def test_settings_that_the_user_gives_git_by_the_environment_stay(marks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COUNT": "1", "KEY_0": "diff.noprefix", "VALUE_0": "true"}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    assert "\n--- a.text\n" in tools_of("file-reviewer").file_diff("a.text")
    assert list(marks.iterdir()) == []
