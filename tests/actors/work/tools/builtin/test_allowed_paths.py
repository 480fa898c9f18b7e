"""No path leads out of the allowed roots, whatever a model writes and whatever is done to the files meanwhile."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.messages import says

from callboard.actors.work.tools.builtin.allowed_paths import AllowedPaths, regular
from callboard.protocol.errors import ToolFailed

if TYPE_CHECKING:
    from .conftest import Bench

SECRET = "the secret"

READERS = ("fs_cat", "fs_read")


@pytest.fixture
def outside(call: Bench, tmp_path: Path) -> Path:
    """A directory beside the project, with a secret in it."""
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "secret").write_text(SECRET)
    return directory.resolve()


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret",
        "a/../../outside/secret",
        "./.././outside//secret",
        "{outside}/secret",
        "{project}/../outside/secret",
        "/etc/passwd",
        "/",
        "..",
        "{project}2/x",
    ],
)
@pytest.mark.parametrize("tool", ["fs_cat", "fs_read", "fs_ls", "fs_mkdir", "fs_rm"])
async def test_what_lies_outside_is_refused(call: Bench, outside: Path, tool: str, path: str) -> None:
    call.file("a/b")
    text = path.format(outside=outside, project=call.project)
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.allowed_paths.AllowedPaths.find.5")):
        await call(tool, path=text)
    assert (outside / "secret").read_text() == SECRET


@pytest.mark.parametrize("path", ["~", "~/x", "~root/x"])
async def test_a_tilde_is_refused_and_the_way_out_is_said(call: Bench, path: str) -> None:
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.allowed_paths.AllowedPaths.find.2")):
        await call("fs_write", path=path, contents="x")
    assert list(call.project.iterdir()) == []


async def test_a_nul_is_refused(call: Bench) -> None:
    with pytest.raises(ToolFailed, match="NUL"):
        await call("fs_cat", path="a\0b")


async def test_a_lone_surrogate_is_refused(call: Bench) -> None:
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.allowed_paths.AllowedPaths.find.3")):
        await call("fs_cat", path="a\ud800")


async def test_links_are_followed_inside_and_refused_outwards(call: Bench, outside: Path) -> None:
    call.file("real/x", "inside")
    (call.project / "in").symlink_to("real")
    (call.project / "out").symlink_to(outside)
    (call.project / "file").symlink_to(outside / "secret")
    (call.project / "dangling").symlink_to(outside / "new")
    assert await call("fs_cat", path="in/x") == "inside"
    for path in ("out/secret", "file", "in/../out/secret"):
        with pytest.raises(ToolFailed, match=says("work.tools.builtin.allowed_paths.AllowedPaths.find.5")):
            await call("fs_cat", path=path)
    for path in ("out/new", "file", "dangling"):
        with pytest.raises(ToolFailed, match=says("work.tools.builtin.allowed_paths.AllowedPaths.find.5")):
            await call("fs_write", path=path, contents="x")
    assert list(outside.iterdir()) == [outside / "secret"]
    assert (outside / "secret").read_text() == SECRET


async def test_a_loop_of_links_is_an_error_not_a_hang(call: Bench) -> None:
    (call.project / "a").symlink_to("b")
    (call.project / "b").symlink_to("a")
    with pytest.raises(ToolFailed):
        await call("fs_cat", path="a/x")


async def test_pipes_and_sockets_are_refused_without_waiting_on_them(call: Bench) -> None:
    os.mkfifo(call.project / "pipe")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(call.project / "sock"))
        for tool in READERS:
            with pytest.raises(ToolFailed, match="named pipe"):
                await call(tool, path="pipe")
            with pytest.raises(ToolFailed, match=says("work.tools.builtin.allowed_paths._words.4")):
                await call(tool, path="sock")
        with pytest.raises(ToolFailed, match=says("work.tools.builtin.writing.status_of.2")):
            await call("fs_write", path="pipe", contents="x")


@pytest.mark.parametrize("path", ["/proc/self/environ", "/dev/null", "/sys/kernel", "/proc"])
async def test_the_kernels_directories_are_refused_even_if_all_is_allowed(call: Bench, path: str) -> None:
    call.roots = [Path("/")]
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.allowed_paths.AllowedPaths.find.6")):
        await call("fs_cat", path=path)


async def test_a_relative_path_is_seen_from_the_working_directory(call: Bench, outside: Path) -> None:
    call.roots = [outside, call.project]
    call.file("x", "mine")
    assert await call("fs_cat", path="x") == "mine"
    assert await call("fs_cat", path=str(outside / "secret")) == SECRET


async def test_a_root_given_through_a_link_is_the_directory_it_leads_to(call: Bench, outside: Path) -> None:
    (call.project / "link").symlink_to(outside)
    call.roots = [call.project / "link"]
    assert await call("fs_cat", path="link/secret") == SECRET
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.allowed_paths.AllowedPaths.find.5")):
        await call("fs_cat", path="other")


@pytest.mark.parametrize("swap", ["directory", "file"])
def test_a_link_put_in_the_way_after_the_check_is_not_followed(tmp_path: Path, swap: str) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    for directory in (project / "a", outside):
        directory.mkdir(parents=True)
        (directory / "secret").write_text(SECRET if directory == outside else "mine")
    place = AllowedPaths([project], project).find("a/secret")
    if swap == "directory":
        (project / "a").rename(project / "old")
        (project / "a").symlink_to(outside)
    else:
        (project / "a" / "secret").unlink()
        (project / "a" / "secret").symlink_to(outside / "secret")
    with pytest.raises(ToolFailed, match=r"a moment ago|during the call"), place.opened():
        pass


def test_a_race_of_swapped_links_never_reads_outside(tmp_path: Path) -> None:
    """Somebody swaps a directory and a link to the outside as fast as they can; a thousand looks never get there."""
    project, outside = tmp_path / "project", tmp_path / "outside"
    for directory in (project / "real", outside):
        directory.mkdir(parents=True)
        (directory / "x").write_text(SECRET if directory == outside else "mine")
    (project / "a").symlink_to("real")
    over = threading.Event()

    def swapping() -> None:
        targets = [str(outside), "real"]
        turn = 0
        while not over.is_set():
            (project / "new").symlink_to(targets[turn % 2])
            (project / "new").rename(project / "a")
            turn += 1

    thread = threading.Thread(target=swapping)
    thread.start()
    read = set()
    try:
        paths = AllowedPaths([project], project)
        for _ in range(1000):
            try:
                with paths.find("a/x").opened() as descriptor:
                    read.add(os.read(descriptor, 100).decode())
            except ToolFailed:
                pass
    finally:
        over.set()
        thread.join()
    assert read == {"mine"}


async def test_a_missing_file_is_told_with_where_it_ends_and_what_looks_like_it(call: Bench) -> None:
    call.file("src/reading.py")
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.allowed_paths._near", part="readin.py")):
        await call("fs_cat", path="src/readin.py")
    with pytest.raises(
        ToolFailed, match=says("work.tools.builtin.allowed_paths._near", part="scr", hint="…; similar: src")
    ):
        await call("fs_cat", path="scr/reading.py")


async def test_a_file_in_the_place_of_a_directory_is_told(call: Bench) -> None:
    call.file("a")
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.allowed_paths._words.2")):
        await call("fs_cat", path="a/b")


_parts = st.sampled_from(["..", ".", "", "a", "link", "out", "file", "secret", "~", "project", "outside", "x" * 300])


@given(st.lists(_parts, max_size=8), st.booleans(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_no_mixture_of_tricks_gets_out(hostile: Path, parts: list[str], rooted: bool, follow: bool) -> None:
    project = hostile
    text = "/".join(parts)
    text = f"{project}/{text}" if rooted else text
    try:
        place = AllowedPaths([project], project).find(text, follow=follow)
    except ToolFailed:
        return
    assert place.path.is_relative_to(project)
    try:
        with place.opened() as descriptor:
            regular(place, descriptor)
            assert os.read(descriptor, 100) != SECRET.encode()
    except ToolFailed:
        pass


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project full of links."""
    base = tmp_path_factory.mktemp("hostile").resolve()
    project = base / "project"
    (project / "a" / "project").mkdir(parents=True)
    (base / "outside").mkdir()
    (base / "outside" / "secret").write_text(SECRET)
    for directory in (project, project / "a"):
        (directory / "link").symlink_to(project / "a")
        (directory / "out").symlink_to(base / "outside")
        (directory / "file").symlink_to(base / "outside" / "secret")
    (project / "secret").write_text("mine")
    return project
