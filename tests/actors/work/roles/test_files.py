"""Where roles are found, and how they are kept."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support.messages import says

from callboard.actors.io.named_files import MOST_BYTES, is_name
from callboard.actors.work.roles import FILES, find, locate, save
from callboard.protocol.errors import Conflict, InvalidFile, NotFound, NotKept, UsageError

BUILT_IN = [
    "atlassian",
    "code",
    "create-prompt",
    "create-title",
    "explain-shell",
    "functions",
    "github",
    "mcp-servers",
    "repo-analyzer",
    "shell",
    "slack",
]


def put(base: Path, name: str, data: str | bytes) -> Path:
    file = base / "roles" / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    return file


def test_the_built_in_roles_are_those_of_loki_and_have_no_problems(tmp_path: Path) -> None:
    found = FILES.places(tmp_path)
    assert [place.name for place in found] == BUILT_IN
    for place in found:
        role = FILES.load(place)
        assert role.problems == ()
        assert role.description
        assert place.built_in
        assert all(len(line) <= 125 for line in place.file.read_text().splitlines())


def test_a_role_of_the_user_hides_the_built_in_one_until_it_is_deleted(tmp_path: Path) -> None:
    put(tmp_path, "code.md", "Mine.")
    put(tmp_path, ".hidden.md", "x")
    put(tmp_path, "notes.txt", "x")
    (tmp_path / "roles" / "folder.md").mkdir()
    assert [place.name for place in FILES.places(tmp_path)] == BUILT_IN
    assert find("code", tmp_path).system == "Mine."
    assert FILES.delete("code", tmp_path) == tmp_path / "roles" / "code.md"
    assert re.fullmatch(says("protocol.role.Role.kind"), find("code", tmp_path).kind)
    with pytest.raises(UsageError, match=says("io.named_files.NamedFiles.delete", kind="role", name="code")):
        FILES.delete("code", tmp_path)


def test_arguments_stand_behind_the_name(tmp_path: Path) -> None:
    put(tmp_path, "tr.md", "Translate into __ARG1__.")
    assert find("tr#it", tmp_path).system == "Translate into it."
    assert locate("tr#it", tmp_path).name == "tr"


@pytest.mark.parametrize("name", ["", "nope", "../config", "a/b", ".hidden", "~", "code.md/", "\0", "x" * 5000, "#a"])
def test_a_name_that_is_none_is_no_path(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.md").write_text("secret")
    with pytest.raises(NotFound, match="Unknown role"):
        find(name, tmp_path)


def test_a_near_name_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="Unknown role `explain-shel`; did you mean 'explain-shell'"):
        find("explain-shel", tmp_path)


def test_hostile_files_are_refused_in_words(tmp_path: Path) -> None:
    put(tmp_path, "binary.md", b"\x89PNG\r\n\x1a\n\x00")
    put(tmp_path, "latin.md", "schön".encode("latin-1"))
    put(tmp_path, "list.md", "---\n- a\n---\n")
    huge = put(tmp_path, "huge.md", b"")
    os.truncate(huge, MOST_BYTES + 1)
    os.mkfifo(tmp_path / "roles" / "pipe.md")
    (tmp_path / "roles" / "folder.md").mkdir()
    for name, words in {
        "binary": "not UTF-8 text",
        "latin": "not UTF-8 text",
        "list": r"1 error in .*list\.md:\n  .*list\.md:2:1: error",
        "huge": says("io.named_files.NamedFiles.text_of.2"),
        "pipe": "it is not a regular file",
        "folder": "it is not a regular file",
    }.items():
        with pytest.raises(InvalidFile, match=words):
            find(name, tmp_path)


def test_a_role_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    role, new = save("mine", "Answer in one word.", tmp_path)
    assert (new, role.system) == (True, "Answer in one word.")
    file = tmp_path / "roles" / "mine.md"
    assert file.read_text() == "Answer in one word.\n"
    with pytest.raises(InvalidFile, match="`top_p` is the text 'x'"):
        save("mine", "---\ntop_p: x\n---\n", tmp_path)
    with pytest.raises(Conflict, match=says("io.named_files.NamedFiles.write", kind="role", name="mine")):
        save("mine", "Other.", tmp_path, replace=False)
    assert file.read_text() == "Answer in one word.\n"
    assert save("mine", "Other.\n", tmp_path)[1] is False
    assert file.read_text() == "Other.\n"


@pytest.mark.parametrize("name", ["a#b", "", "../x", ".x", "x/y", "x ", "x.", "a\nb", "-r", "ä" * 200])
def test_a_name_that_no_role_can_have_is_refused(tmp_path: Path, name: str) -> None:
    assert not is_name(name)
    with pytest.raises(UsageError, match=r"Unable to save the role with arguments|can't be the name of a role"):
        save(name, "x", tmp_path)
    assert not (tmp_path / "roles").exists()


def test_a_disk_that_refuses_is_told(tmp_path: Path) -> None:
    (tmp_path / "roles").write_text("no directory")
    with pytest.raises(NotKept, match=says("io.named_files.NamedFiles.write.2", file="…mine.md")):
        save("mine", "x", tmp_path)
