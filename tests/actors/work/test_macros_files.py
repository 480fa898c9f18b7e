"""Where macros are found, and how they are kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.messages import says

from callboard.actors.io.named_files import MOST_BYTES
from callboard.actors.work.macros import FILES, find
from callboard.protocol.errors import InvalidFile, NotFound


def test_the_built_in_macros_have_no_problems(tmp_path: Path) -> None:
    found = FILES.places(tmp_path)
    assert [place.name for place in found] == ["generate-commit-message"]
    assert FILES.load(found[0]).problems == ()


def test_a_macro_is_kept_found_and_deleted(tmp_path: Path) -> None:
    _, new = FILES.save("mine", "steps: [hi]", tmp_path)
    assert new
    assert find("mine", tmp_path).steps == ("hi",)
    with pytest.raises(InvalidFile, match=r"1 error in .*mine\.yaml:\n  .*no steps"):
        FILES.save("mine", "steps: []", tmp_path)
    assert FILES.delete("mine", tmp_path).name == "mine.yaml"
    with pytest.raises(NotFound, match="Unknown macro `mine`; there are: generate-commit-message"):
        find("mine", tmp_path)


def test_hostile_files_are_refused_in_words(tmp_path: Path) -> None:
    home = tmp_path / "macros"
    home.mkdir()
    (home / "binary.yaml").write_bytes(b"\x89PNG\x00\xff")
    (home / "huge.yaml").touch()
    os.truncate(home / "huge.yaml", MOST_BYTES + 1)
    (home / "laughs.yaml").write_text("a: &a [x, x]\nb: &b [*a, *a]\nsteps: [*b]\n")
    for name, words in {
        "binary": says("io.named_files.NamedFiles.text_of.3"),
        "huge": says("io.named_files.NamedFiles.text_of.2"),
        "laughs": "error",
    }.items():
        with pytest.raises(InvalidFile, match=words):
            find(name, tmp_path)
