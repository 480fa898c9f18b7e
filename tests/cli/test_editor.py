"""Which program edits a file: the one of the settings, then those of the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.cli.desktop import edit_file, edit_new
from callboard.protocol.errors import UsageError


def says(word: str) -> str:
    return f"sh -c 'echo {word} > \"$0\"'"


@pytest.mark.parametrize(
    ("settings", "visual", "editor", "written"),
    [("one", "two", "three", "one"), ("", "two", "three", "two"), ("", "", "three", "three")],
)
def test_the_settings_go_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, visual: str, editor: str, written: str
) -> None:
    for name, word in (("VISUAL", visual), ("EDITOR", editor)):
        monkeypatch.setenv(name, says(word) if word else "")
    edit_file(tmp_path / "text", says(settings) if settings else None)
    assert (tmp_path / "text").read_text() == f"{written}\n"


def test_a_new_file_that_is_left_as_it_was_goes_away(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("begun")
    assert not edit_new(tmp_path / "text", "true")
    assert not (tmp_path / "text").exists()
    with pytest.raises(UsageError, match="can't be started"):
        edit_file(tmp_path / "text", "no-such-editor-at-all")
