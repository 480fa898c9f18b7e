"""Small text files that people call by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.messages import says

from callboard.actors.io.named_files import NamedFiles, is_name
from callboard.protocol.errors import Conflict, NotFound, UsageError
from callboard.protocol.problems import Problem


def read(text: str, _file: str, _name: str) -> tuple[str, list[Problem]]:
    return text, []


@pytest.fixture
def files(tmp_path: Path) -> NamedFiles[str]:
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "first.txt").write_text("ours")
    return NamedFiles(kind="note", scope="read:notes", folder="notes", suffix=".txt", ours=tmp_path / "ours", read=read)


def test_the_users_files_come_before_ours(files: NamedFiles[str], tmp_path: Path) -> None:
    assert [(place.name, place.built_in) for place in files.places(tmp_path)] == [("first", True)]
    assert files.write(files.place_for("first", tmp_path), "mine", replace=False)
    assert files.text_of(files.locate("first", tmp_path).file) == "mine\n"
    assert [(place.name, place.built_in) for place in files.places(tmp_path)] == [("first", False)]
    with pytest.raises(Conflict, match=says("io.named_files.NamedFiles.write", kind="note", name="first")):
        files.write(files.place_for("first", tmp_path), "x", replace=False)
    files.delete("first", tmp_path)
    with pytest.raises(UsageError, match=says("io.named_files.NamedFiles.delete", kind="note", name="first")):
        files.delete("first", tmp_path)


def test_a_directory_that_can_not_be_read_is_empty(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("a file")
    files = NamedFiles(
        kind="note", scope="read:notes", folder="notes", suffix=".txt", ours=tmp_path / "nowhere", read=read
    )
    assert files.places(tmp_path) == []
    with pytest.raises(NotFound, match="Unknown note `x`; there are none"):
        files.locate("x", tmp_path)


@pytest.mark.parametrize("name", ["a", "my role", "v1.2", "tr-de_it", "über", "team:lead", "me@home", "c++"])
def test_names_that_people_give(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", ".a", "a/b", "a\\b", "a\0", "a.", "a ", "-a", "a\nb", "a" * 101])
def test_names_that_lead_elsewhere(name: str) -> None:
    assert not is_name(name)


def test_a_name_has_a_bound_in_bytes() -> None:
    assert is_name("語" * 66)
    assert not is_name("語" * 67)
