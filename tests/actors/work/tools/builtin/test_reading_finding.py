"""fs_glob and fs_grep: what they find, what they skip, and that nothing keeps them busy for ever."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import says

from callboard.actors.work.tools.builtin import reading
from callboard.actors.work.tools.builtin.workers.search import Glob, Mistake
from callboard.protocol.errors import ToolFailed

if TYPE_CHECKING:
    from .conftest import Bench


@pytest.fixture
def tree(call: Bench) -> Bench:
    """A small project."""
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/deep/c.ts", "README.md", ".github/x.yml"):
        call.file(name, f"this is {name}\n")
    for name in (".git/z.py", "node_modules/m/z.py", "__pycache__/z.py", "cache/z.py", "cache/CACHEDIR.TAG"):
        call.file(name, "this is skipped\n")
    return call


def lines(text: str) -> set[str]:
    return set(text.split("\n"))


async def test_glob_finds_by_name_at_any_depth_or_by_path(tree: Bench) -> None:
    assert lines(await tree("fs_glob", pattern="*.py")) == {"a.py", "src/b.py", "src/deep/c.py"}
    assert lines(await tree("fs_glob", pattern="src/**/*.{py,ts}")) == {"src/b.py", "src/deep/c.py", "src/deep/c.ts"}
    assert await tree("fs_glob", pattern="*.rs") == "(no file matches *.rs)"


async def test_glob_writes_paths_as_the_model_wrote_the_directory(tree: Bench) -> None:
    assert await tree("fs_glob", pattern="b.py", path="src/") == "src/b.py"
    assert await tree("fs_glob", pattern="b.py", path=str(tree.project)) == f"{tree.project}/src/b.py"


async def test_glob_puts_the_last_changed_first_and_keeps_those_when_cut(
    call: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_NAMES", 2)
    for age, name in enumerate(["new", "middle", "old"]):
        os.utime(call.file(name), (1000 - age, 1000 - age))
    assert await call("fs_glob", pattern="*") == "new\nmiddle\n[cut: 1 more files match, all of them older]"


async def test_what_is_skipped_is_searched_if_it_is_named(tree: Bench) -> None:
    assert await tree("fs_glob", pattern="*.py", path=".git") == ".git/z.py"
    assert await tree("fs_glob", pattern="*.py", path="cache") == "cache/z.py"


async def test_a_pattern_does_not_lead_out(tree: Bench) -> None:
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.workers.search.Glob.__init__")):
        await tree("fs_glob", pattern="../*")
    for pattern in ("/etc/*", "a/../../*"):
        with pytest.raises(Mistake, match=says("work.tools.builtin.workers.search.Glob.__init__")):
            Glob(pattern)


async def test_links_are_not_walked_through(call: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.py").write_text("secret")
    (call.project / "out").symlink_to(outside)
    (call.project / "y.py").symlink_to(outside / "x.py")
    assert await call("fs_glob", pattern="x.py") == "(no file matches x.py)"
    assert await call("fs_grep", pattern="secret") == "(nothing found)"


async def test_grep_tells_path_line_and_text(tree: Bench) -> None:
    tree.file("src/b.py", "one\ntwo\nthree\n")
    assert await tree("fs_grep", pattern="^t") == (
        ".github/x.yml:1:this is .github/x.yml\nREADME.md:1:this is README.md\na.py:1:this is a.py\n"
        "src/b.py:2:two\nsrc/b.py:3:three\nsrc/deep/c.py:1:this is src/deep/c.py\nsrc/deep/c.ts:1:this is src/deep/c.ts"
    )
    assert await tree("fs_grep", pattern="two", path="src/b.py") == "src/b.py:2:two"
    assert await tree("fs_grep", pattern="(?i)TWO", path="src") == "src/b.py:2:two"


async def test_grep_looks_only_into_files_that_are_included(tree: Bench) -> None:
    assert await tree("fs_grep", pattern="this", include="*.ts") == "src/deep/c.ts:1:this is src/deep/c.ts"
    assert len(lines(await tree("fs_grep", pattern="this", include="*.{ts,md}"))) == 2
    assert len(lines(await tree("fs_grep", pattern="this", include="src/*.py"))) == 1


@pytest.mark.parametrize("where", [{}, {"path": "x"}])
async def test_grep_is_cut_after_enough_hits(call: Bench, where: dict[str, str]) -> None:
    call.file("x", "hit\n" * 1000)
    found = (await call("fs_grep", pattern="hit", **where)).split("\n")
    assert len(found) == reading.MOST_HITS + 1
    assert found[-1].startswith(f"[cut after {reading.MOST_HITS} hits")


async def test_grep_shows_the_part_of_a_long_line_around_the_hit(call: Bench) -> None:
    call.file("x", "a" * 10_000 + "needle" + "b" * 10_000)
    found = await call("fs_grep", pattern="needle")
    assert "needle" in found
    assert len(found) < reading.WIDTH + 20


async def test_grep_skips_binary_files_and_reads_what_is_no_utf_8(call: Bench) -> None:
    call.file("binary", b"needle\0")
    call.file("latin", b"caf\xe9 needle\n")
    assert await call("fs_grep", pattern="needle") == "latin:1:caf\ufffd needle"


async def test_a_pattern_that_is_none_is_told(call: Bench) -> None:
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.workers.search.find_lines")):
        await call("fs_grep", pattern="[a")


async def test_a_pattern_that_backtracks_for_ever_is_broken_off_with_what_was_found(
    call: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SEARCH_SECONDS", 0.2)
    call.file("a", "aab\n")
    call.file("b", "a" * 60 + "\n")
    found = await call("fs_grep", pattern="(a+)+b")
    assert found == "a:1:aab\n[cut: the search took more than 0.2 s; narrow the pattern or the path]"


async def test_a_file_that_is_no_file_does_not_hold_a_search_up(call: Bench) -> None:
    os.mkfifo(call.project / "pipe")
    call.file("x", "needle\n")
    assert await call("fs_grep", pattern="needle") == "x:1:needle"


async def test_a_missing_directory_is_told(call: Bench) -> None:
    for tool in ("fs_grep", "fs_glob"):
        with pytest.raises(ToolFailed, match=says("work.tools.builtin.allowed_paths._words", shown="nope")):
            await call(tool, pattern="x", path="nope")


# --- the matcher


FILES = ("a.py", "src/b.py", "src/deep/c.py", "src/deep/c.ts", "README.md", ".github/x.yml")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", "a.py src/b.py src/deep/c.py"),
        ("**/*.py", "a.py src/b.py src/deep/c.py"),
        ("src/*.py", "src/b.py"),
        ("src/**/*.py", "src/b.py src/deep/c.py"),
        ("src/**", "src/b.py src/deep/c.py src/deep/c.ts"),
        ("**/deep/*.{py,ts}", "src/deep/c.py src/deep/c.ts"),
        ("./a.py", "a.py"),
        ("[ab].py", "a.py src/b.py"),
        ("*.yml", ".github/x.yml"),
        ("{a,src/{b,deep/c}}.py", "a.py src/b.py src/deep/c.py"),
    ],
)
def test_patterns_mean_what_they_mean_in_a_shell(pattern: str, found: str) -> None:
    assert " ".join(file for file in FILES if Glob(pattern).matches(file)) == found


_names = st.text("ab.*?[]{},!-", max_size=6).filter(lambda name: name not in (".", "..") and "/" not in name)


@given(_names.filter(lambda name: not re.search(r"\{[^{}]*,[^{}]*\}", name) and name), _names.filter(bool))
def test_a_pattern_without_slashes_matches_names_as_the_shell_does(pattern: str, name: str) -> None:
    if pattern != "**":
        assert Glob(pattern).matches(f"some/where/{name}") == fnmatchcase(name, pattern)


@given(st.lists(st.sampled_from(["**", "*", "a", "b"]), max_size=6), st.lists(st.sampled_from(["a", "b"]), min_size=1))
def test_stars_over_directories_match_as_their_definition_says(pattern: list[str], path: list[str]) -> None:
    text = "x/" + "/".join(pattern)
    expression = "".join(
        "(?:[^/]+/)*" if part == "**" else ("[^/]+/" if part == "*" else part + "/") for part in ["x", *pattern]
    )
    if pattern and pattern[-1] == "**":
        expression += "[^/]+/"
    expected = re.fullmatch(expression, "/".join(["x", *path]) + "/") is not None
    assert Glob(text).matches("/".join(["x", *path])) == expected


def test_many_stars_cost_no_more_than_few() -> None:
    assert not Glob("/".join(["**", "a"] * 30 + ["b"]).removeprefix("/")).matches("/".join(["a"] * 200))


def test_too_many_alternatives_are_a_mistake() -> None:
    with pytest.raises(Mistake, match=says("work.tools.builtin.workers.search._alternatives")):
        Glob("{a,b}" * 10)


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbfone\r\ntwo\r\n",
        b"\xef\xbb\xbfone\ntwo",
        "one\r\ntwo\r\n".encode("utf-16"),
        b"\xfe\xff" + "one\ntwo\n".encode("utf-16-be"),
    ],
    ids=["utf-8 with a mark", "no last line end", "utf-16", "utf-16, big end first"],
)
async def test_grep_reads_files_as_windows_writes_them(call: Bench, data: bytes) -> None:
    (call.project / "a.txt").write_bytes(data)
    assert await call("fs_grep", pattern="^one$") == "a.txt:1:one"
    assert await call("fs_grep", pattern="^two$", path="a.txt") == "a.txt:2:two"
