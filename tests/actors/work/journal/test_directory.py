"""What is removed of directories of runs that nobody goes on with, and what is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from callboard.actors.io.directories import durable_dir
from callboard.actors.work.journal import directory


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(directory, "_elsewhere", False)
    return durable_dir(os.environ)


def made(home: Path, run: str, age: float) -> Path:
    directory.make(home / run / "workspace" / "run")
    for each in (home / run, *(home / run).iterdir()):
        os.utime(each, (each.stat().st_mtime - age,) * 2)
    return home / run


def test_a_directory_of_a_run_that_no_journal_knows_goes_but_not_that_of_a_run_of_a_cluster(home: Path) -> None:
    young, left = made(home, "run-young", 0), made(home, "run-left", 2 * directory.LEFT_FOR)
    directory.use_remote_journal()
    elsewhere = made(home, "run-elsewhere", 2 * directory.LEFT_FOR)
    forgotten = made(home, "run-forgotten", 2 * directory.ELSEWHERE_FOR)
    directory.remove_abandoned()
    assert (young.exists(), left.exists(), elsewhere.exists(), forgotten.exists()) == (True, False, True, False)
