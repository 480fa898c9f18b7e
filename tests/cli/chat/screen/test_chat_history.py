"""Lines that were sent before."""

from __future__ import annotations

from pathlib import Path

from callboard.cli.chat.screen.field import DirectoryHistory


def test_a_torn_line_takes_none_of_those_behind_it_along(tmp_path: Path) -> None:
    file = tmp_path / "history" / "a.jsonl"
    DirectoryHistory(file).store_string("one")
    with file.open("a") as stream:
        stream.write('"hal')
    DirectoryHistory(file).store_string("two")
    DirectoryHistory(file).store_string("three")
    assert [*DirectoryHistory(file).load_history_strings()] == ["three", "two", "one"]
    assert file.stat().st_mode & 0o777 == 0o600
