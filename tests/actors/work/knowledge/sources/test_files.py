"""Files, directories and globs; and everything on a disk that is no file."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.messages import has_message

from callboard.actors.work.knowledge.reading.limits import Bounds
from callboard.actors.work.knowledge.sources import walk
from callboard.protocol.errors import UsageError

if TYPE_CHECKING:
    from .conftest import Bench


def tree(bench: Bench, *names: str) -> None:
    for name in names:
        bench.file(name, f"I am {name}")


# --- case 97 of Loki: which files a glob names


async def test_case_97_globs_mean_what_loki_s_mean(bench: Bench) -> None:
    tree(
        bench,
        "test.md",
        "dir/test.md",
        "dir/a/test.md",
        "dir/b/test.md",
        "dir/a/deep/test.md",
        "dir/a/note.txt",
        "dir/c.py",
    )
    # Its documents say any depth; its program looks in `dir` and one directory below.
    assert await bench.names("dir/*/test.md") == ["dir/a/test.md", "dir/a/deep/test.md", "dir/b/test.md"]
    assert await bench.names("dir/*/*.md") == ["dir/a/test.md", "dir/b/test.md"]
    assert await bench.names("dir/**/*.{md,txt}") == [
        *("dir/test.md", "dir/a/test.md", "dir/a/deep/test.md", "dir/b/test.md", "dir/a/note.txt"),
    ]
    assert await bench.names("*.md") == ["test.md"]
    assert await bench.names("dir/*.md") == ["dir/test.md"]
    assert await bench.names("dir/**/test.md") == [
        *("dir/test.md", "dir/a/test.md", "dir/a/deep/test.md", "dir/b/test.md"),
    ]
    everything = ["dir/a/deep/test.md", "dir/a/note.txt", "dir/a/test.md", "dir/b/test.md", "dir/c.py", "dir/test.md"]
    assert await bench.names("dir/**") == everything
    assert await bench.names("dir") == everything
    assert await bench.names("./dir/") == everything


async def test_knowledge_bases_are_no_documents_of_the_directory_they_stand_in(bench: Bench) -> None:
    tree(bench, "agent/notes.md", "agent/documents.kb/current", "agent/documents.kb/gen-000001/meta.json")
    tree(bench, "agent/new.kb/builder.lock", "agent/new.kb/building/plan.json", "agent/mine.kb/notes.md")
    assert await bench.names("agent") == ["agent/mine.kb/notes.md", "agent/notes.md"]
    assert await bench.names("agent/**") == ["agent/mine.kb/notes.md", "agent/notes.md"]
    assert await bench.names("agent/**/*.{json,md}") == ["agent/notes.md", "agent/mine.kb/notes.md"]
    assert await bench.names("agent/*/*") == ["agent/mine.kb/notes.md"]
    assert await bench.names("agent/documents.kb/gen-000001") == ["agent/documents.kb/gen-000001/meta.json"]


async def test_case_97_a_site_as_a_file_of_a_prompt_is_refused(bench: Bench) -> None:
    bench.settings["crawls"] = False
    assert await bench.names("https://example.com/**") == []
    assert bench.problems["https://example.com/**"].startswith("Invalid website 'https://example.com/**'")


async def test_globs_know_questions_sets_and_braces_within_braces(bench: Bench) -> None:
    tree(bench, "a1.md", "a2.md", "b1.md", "c1.txt", "sub/a1.md")
    assert await bench.names("a?.md") == ["a1.md", "a2.md"]
    assert await bench.names("[ab]1.md") == ["a1.md", "b1.md"]
    assert await bench.names("{a{1,2},c1}.{md,txt}") == ["a1.md", "a2.md", "c1.txt"]
    assert await bench.names("{sub,.}/a1.md") == ["sub/a1.md", "a1.md"]
    assert await bench.names("*/../a1.md") == ["a1.md"]


async def test_a_name_that_looks_like_a_glob_is_itself_first(bench: Bench) -> None:
    tree(bench, "report[1].md", "report1.md")
    assert await bench.names("report[1].md") == ["report[1].md"]


async def test_several_paths_may_stand_in_one_line(bench: Bench) -> None:
    tree(bench, "a.md", "b/c.md", "odd;name.md")
    assert await bench.names("a.md;b; nowhere.md") == ["a.md", "b/c.md"]
    assert has_message(bench.problems["nowhere.md"], "work.knowledge.sources.walk.Walk.named")
    assert await bench.names("odd;name.md") == ["odd;name.md"]


async def test_many_doublestars_end_in_time(bench: Bench) -> None:
    tree(bench, *("/".join("abcdefgh"[:depth]) + "/x.md" for depth in range(1, 9)))
    found = await bench.names("**/**/*/**/*/**/**/*.md")
    assert sorted(found) == sorted({f"{'/'.join('abcdefgh'[:depth])}/x.md" for depth in range(2, 9)})


async def test_what_names_nothing_is_told(bench: Bench) -> None:
    (bench.base / "empty").mkdir()
    assert await bench.names("gone.md", "*.zip", "empty", "{a,b", "", "{0,1}" * 12) == []
    reasons = bench.problems
    assert has_message(reasons["gone.md"], "work.knowledge.sources.walk.Walk.named")
    assert has_message(reasons["*.zip"], "work.knowledge.sources.walk.Walk.named.2")
    assert has_message(reasons["empty"], "work.knowledge.sources.walk.Walk.named.3")
    assert has_message(reasons["{a,b"], "work.knowledge.sources.walk._group")
    assert has_message(reasons["{0,1}" * 12], "work.knowledge.sources.walk.alternatives", ALTERNATIVES=1000)
    assert has_message(reasons[""], "work.knowledge.sources.specs.parse")


# --- names and order


async def test_names_are_relative_to_the_base_or_absolute_beyond_it(bench: Bench, tmp_path: Path) -> None:
    tree(bench, "in.md", "~/no.md")
    (tmp_path / "out.md").write_text("out")
    assert await bench.names("../out.md") == ["../out.md"]
    assert await bench.names(str(tmp_path / "out.md")) == [str(tmp_path / "out.md")]
    assert await bench.names(str(bench.base / "in.md")) == ["in.md"]
    assert await bench.names("~/in.md") == ["in.md"]
    assert await bench.names("~/*.md") == ["in.md"]


async def test_a_source_comes_once_in_the_order_of_the_specs(bench: Bench) -> None:
    tree(bench, "b.md", "a.md", "sub/c.md")
    (bench.base / "link.md").symlink_to("a.md")
    assert await bench.names("sub", "b.md", ".", "*.md") == ["sub/c.md", "b.md", "a.md"]


async def test_a_name_that_is_no_utf_8_can_be_shown(bench: Bench) -> None:
    Path(os.fsdecode(os.fsencode(bench.base) + b"/caf\xe9.md")).write_text("x")
    assert await bench.read(".") == {"caf\\xe9.md": "x"}


async def test_hidden_files_are_left_out_unless_they_are_named(bench: Bench) -> None:
    tree(bench, ".env", ".git/config", "a.md", "CVS/Root", "__pycache__/a.pyc", ".notes/x.md", "sub/.hidden/y.md")
    assert await bench.names(".") == ["a.md"]
    assert await bench.names("**") == ["a.md"]
    assert await bench.names("**/*.md", "*/*.md") == ["a.md"]
    assert await bench.names(".env", ".notes", ".n*/*") == [".env", ".notes/x.md"]


# --- reading


async def test_a_file_is_read_when_somebody_wants_it(bench: Bench) -> None:
    path = bench.file("a.md", "# One")
    digest, document = await bench.one("a.md")
    assert digest == document.digest == hashlib.sha256(b"# One").hexdigest()
    assert (document.kind, document.text, document.source) == ("markdown", "# One", "a.md")
    assert (bench.found[0].size, bench.found[0].mtime) == (5, path.stat().st_mtime)


async def test_a_file_that_changes_after_it_was_found_is_read_as_it_is(bench: Bench) -> None:
    path = bench.file("a.md", "one")
    await bench.names("a.md")
    path.write_text("two")

    async def later(me: object) -> tuple[object, object]:
        return await bench.found[0].digest(), (await bench.found[0].documents())[0]

    digest, document = await bench.as_actor(later)
    assert digest == getattr(document, "digest", "") == hashlib.sha256(b"two").hexdigest()
    path.unlink()
    digest, document = await bench.as_actor(later)
    assert (
        getattr(digest, "reason", "")
        == getattr(document, "reason", "")
        == "the file can't be read: No such file or directory"
    )


# --- what is no file


async def test_links_into_circles_end(bench: Bench) -> None:
    tree(bench, "a/one.md", "a/b/two.md")
    (bench.base / "a/b/up").symlink_to("..")
    (bench.base / "a/self").symlink_to("self")
    (bench.base / "a/gone").symlink_to("nowhere")
    assert await bench.names("a") == ["a/b/two.md", "a/one.md"]
    assert bench.problems == {
        "a/b/up": "the path is a symbolic link to a directory that contains it",
        "a/self": "the symbolic link leads back to itself",
        "a/gone": "the target of the symbolic link does not exist",
    }
    assert await bench.names("a/**/*.md") == ["a/one.md", "a/b/two.md"]


async def test_a_directory_by_two_ways_is_read_once(bench: Bench) -> None:
    tree(bench, "real/one.md")
    (bench.base / "also").symlink_to("real")
    assert await bench.names(".") == ["also/one.md"]
    assert bench.problems == {}


async def test_pipes_sockets_and_devices_are_never_opened(bench: Bench) -> None:
    tree(bench, "a.md")
    os.mkfifo(bench.base / "pipe.md")
    (bench.base / "null.md").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(bench.base / "socket.md"))
        assert await bench.names(".") == ["a.md"]
    assert has_message(bench.problems["pipe.md"], "work.knowledge.sources.walk.Walk._file", st_mode="a named pipe")
    assert has_message(bench.problems["socket.md"], "work.knowledge.sources.walk.Walk._file", st_mode="a socket")
    assert has_message(bench.problems["null.md"], "work.knowledge.sources.walk.Walk._status.3")
    assert await bench.names("/proc/self/environ", "/sys/kernel", "/dev") == []
    assert len(bench.problems) == 3


async def test_a_pipe_put_in_a_file_s_place_is_not_waited_for(bench: Bench) -> None:
    path = bench.file("a.md")
    await bench.names("a.md")
    path.unlink()
    os.mkfifo(path)

    async def later(me: object) -> object:
        return await bench.found[0].documents()

    (told,) = await bench.as_actor(later)  # type: ignore[misc] - whatever it is, it has one item
    assert has_message(told.reason, "work.knowledge.sources.walk.DiskFile._pieces")


async def test_two_gigabytes_of_text_are_refused_without_being_read(bench: Bench) -> None:
    with (bench.base / "huge.txt").open("wb") as file:
        file.truncate(2 << 30)
    assert await bench.names(".") == []
    assert bench.problems == {"huge.txt": "the source is too large: 2048 MB, and at most 50 MB are read of one source"}


async def test_a_file_that_grows_without_end_is_given_up(bench: Bench) -> None:
    bench.settings["bounds"] = Bounds(text=1000, packed=1000)
    path = bench.file("a.md", "x" * 900)
    await bench.names("a.md")
    path.write_text("x" * 2000)
    digest = await bench.as_actor(lambda me: bench.found[0].digest())
    assert has_message(getattr(digest, "reason", ""), "work.knowledge.sources.walk.DiskFile._pieces.2")


async def test_what_may_not_be_read_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused by hand, for root may read everything."""
    tree(bench, "a.md", "closed/b.md", "c.md")
    listing, opening = os.scandir, os.open

    def scandir(path: str) -> object:
        if path.endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return listing(path)

    def opened(path: str, flags: int, *others: int, **named: int) -> int:
        if path.endswith("c.md"):
            raise PermissionError(13, "Permission denied")
        return opening(path, flags, *others, **named)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(walk.os, "open", opened)
    assert await bench.read(".") == {"a.md": "I am a.md"}
    assert has_message(
        bench.problems["closed"], "work.knowledge.sources.walk.Walk._listing", strerror="Permission denied"
    )
    assert has_message(bench.problems["c.md"], "work.knowledge.sources.found.explained", error="Permission denied")


async def test_more_files_than_are_wanted_are_cut_off_and_told(bench: Bench) -> None:
    bench.settings["files"] = 3
    tree(bench, *(f"{number}.md" for number in range(5)))
    assert await bench.names(".") == ["0.md", "1.md", "2.md"]
    assert list(bench.problems.values()) == [
        "the path stands for more than 3 files, which is the limit; the rest is left out"
    ]


async def test_what_is_deeper_than_a_path_can_be_long_is_told(bench: Bench) -> None:
    name = "d" * 100
    here = os.open(bench.base, os.O_RDONLY)
    for _ in range(50):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert await bench.names(".") == []
    assert list(bench.problems.values()) == ["File name too long"]


# --- braces


@given(st.lists(st.text("abc./*", max_size=4), min_size=1, max_size=5), st.text("xy/", max_size=3))
def test_braces_stand_for_each_of_theirs_in_order(inner: list[str], around: str) -> None:
    pattern = f"{around}{{{','.join(inner)}}}{around}"
    assert walk.alternatives(pattern) == list(dict.fromkeys(f"{around}{each}{around}" for each in inner))


@given(st.text("{},ab", max_size=12))
def test_braces_of_any_kind_end(pattern: str) -> None:
    try:
        found = walk.alternatives(pattern)
    except UsageError:
        return
    assert all("{" not in each for each in found)
