"""Large pastes, and their marks in the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.cli.chat.screen import field
from callboard.cli.chat.screen.field import LONGEST_STORED, DirectoryHistory, Pastes


def test_a_mark_of_another_process_is_no_mark_of_ours() -> None:
    mark = Pastes().folded("first " * 2000)
    ours = Pastes()
    assert ours.whole(mark) == mark
    ours.folded("other " * 3000)
    assert ours.whole(mark) == mark


def test_history_of_a_directory_has_the_text_itself(tmp_path: Path) -> None:
    history, pastes = DirectoryHistory(tmp_path / "a.jsonl"), Pastes()
    history.whole = pastes.whole
    text, long = "first " * 1000, "x" * LONGEST_STORED
    line = f"read {pastes.folded(text)} now"
    history.append_string(line)
    history.append_string(f"and {pastes.folded(long)}")
    assert history.get_strings()[0] == line
    assert [*DirectoryHistory(tmp_path / "a.jsonl").load_history_strings()] == [f"read {text} now"]


def test_pastes_are_kept_up_to_a_size_and_one_that_was_dropped_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field, "PASTES_STORED", 50_000)
    pastes = Pastes()
    marks = [pastes.folded(f"{number} " * 3000) for number in range(10)]
    assert "[pasted" not in pastes.whole(" ".join(marks))
    pastes.clear()
    assert pastes.lost(f"again {marks[0]}") == marks[0]
    assert pastes.lost(f"again {marks[9]}") is None
    assert pastes.whole(marks[9]) == "9 " * 3000
    huge = pastes.folded("x" * 100_000)
    pastes.clear()
    assert pastes.whole(huge) == "x" * 100_000
    assert pastes.lost("[pasted 1.0 kB #99]") is None  # nothing of ours
