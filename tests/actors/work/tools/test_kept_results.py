"""Whole results of calls whose conversation has only beginning and end of them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from callboard.actors.work.tools import stored_results
from callboard.actors.work.tools.stored_results import StoredResults


@pytest.fixture
def kept(tmp_path: Path) -> StoredResults:
    return StoredResults(tmp_path / "results" / "run-1", temporary=True)


def test_each_is_a_file_for_its_owner_alone(kept: StoredResults) -> None:
    first, second = kept.keep([("look", "a\r\nb\ud800"), ("../../mcp server", "c")])
    (third,) = kept.keep([("look", "d")])
    assert [Path(path).name for path in (first, second, third)] == [
        "0001-look.txt",
        "0002-.._.._mcp_server.txt",
        "0003-look.txt",
    ]
    assert Path(first).read_bytes() == b"a\r\nb?"
    assert {Path(path).stat().st_mode & 0o777 for path in (first, second, third)} == {0o600}
    assert kept.directory.stat().st_mode & 0o777 == 0o700


def test_the_oldest_make_room(kept: StoredResults, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_results, "MOST_FILES", 3)
    kept.keep([("look", str(number)) for number in range(5)])
    assert sorted(path.read_text() for path in kept.directory.iterdir()) == ["2", "3", "4"]
    monkeypatch.setattr(stored_results, "MOST_BYTES", 10)
    kept.keep([("look", "x" * 6), ("look", "y" * 6)])
    assert [path.read_text() for path in kept.directory.iterdir()] == ["y" * 6]


def test_those_of_a_run_go_with_it_and_those_of_a_session_stay(kept: StoredResults, tmp_path: Path) -> None:
    kept.keep([("look", "a")])
    kept.remove()
    assert not kept.directory.exists()
    of_session = StoredResults(tmp_path / "session" / "results", temporary=False)
    (path,) = of_session.keep([("look", "a")])
    of_session.remove()
    assert Path(path).read_text() == "a"


def test_what_a_killed_run_has_left_is_removed_later(kept: StoredResults) -> None:
    old, young = kept.directory.parent / "run-old", kept.directory.parent / "run-young"
    for directory in (old, young):
        StoredResults(directory, temporary=True).keep([("look", "a")])
    long_ago = time.time() - stored_results.LEFT_FOR - 1
    os.utime(old, (long_ago, long_ago))
    kept.keep([("look", "a")])
    assert (old.exists(), young.exists()) == (False, True)


def test_a_disk_that_takes_nothing_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")
    assert StoredResults(tmp_path / "results" / "run", temporary=True).keep([("look", "a")]) == [""]


def test_a_link_that_was_put_there_is_not_followed(kept: StoredResults, tmp_path: Path) -> None:
    kept.directory.mkdir(parents=True)
    (kept.directory / "0001-look.txt").symlink_to(tmp_path / "elsewhere")
    (path,) = kept.keep([("look", "a")])
    assert Path(path).name == "0002-look.txt"
    assert not (tmp_path / "elsewhere").exists()
