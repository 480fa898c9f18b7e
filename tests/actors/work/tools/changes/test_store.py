"""The store: bounded, private, and never in the way of the tool."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.messages import has_message, says

from callboard.actors.work.tools.changes import snapshot, store
from callboard.actors.work.tools.changes.store import (
    ChangeStore,
    PathChange,
    PathState,
    changes_in,
    decoded,
    encoded,
    line_of,
    sha_of,
)

from .conftest import ToolCaller

A, B = "run-aaaa", "run-bbbb"


def change(path: str = "x", **more: Any) -> PathChange:
    return PathChange(at=time.time_ns(), actor=f"/{A}/clerk", tool="fs_write", root="/tmp", path=path, **more)


def kept(store: ChangeStore, run: str, *contents: bytes) -> None:
    """Contents of before, each with a line in the record."""
    for content in contents:
        with store.writing():
            store.keep(content)
            store.note(run, [change(before=PathState(sha=sha_of(content), size=len(content)))])


def test_all_of_it_is_private_and_each_content_is_there_once(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        kept(ChangeStore(tmp_path / "state" / "changes"), A, b"one", b"two", b"one")
    finally:
        os.umask(before)
    directory = tmp_path / "state" / "changes"
    found = {path.relative_to(directory): stat.S_IMODE(path.stat().st_mode) for path in directory.rglob("*")}
    assert {mode for path, mode in found.items() if path.suffix or path.parent.name == "blobs"} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (directory, *directory.iterdir())} == {0o700}
    assert len(list((directory / "blobs").iterdir())) == 2


def test_a_directory_that_others_may_enter_is_closed(tmp_path: Path) -> None:
    (tmp_path / "changes" / "blobs").mkdir(parents=True, mode=0o755)
    kept(ChangeStore(tmp_path / "changes"), A, b"one")
    assert stat.S_IMODE((tmp_path / "changes").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "changes" / "blobs").stat().st_mode) == 0o700


def test_the_oldest_make_room_contents_as_well_as_records(tmp_path: Path) -> None:
    small = ChangeStore(tmp_path, most=64 * 1024)
    for number in range(40):
        kept(small, f"run-{number}", b"%04d" % number * 1024)
        for path in tmp_path.rglob("*"):  # as if each were a minute later
            if path.is_file():
                os.utime(path, (path.stat().st_atime - 60, path.stat().st_mtime - 60))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(max(path.stat().st_size, 4096) for path in files) <= 64 * 1024 + 16 * 1024
    assert small.content(sha_of(b"0039" * 1024)) is not None
    assert small.content(sha_of(b"0000" * 1024)) is None
    assert small.changes("run-39")
    assert not small.changes("run-0")
    assert not list(tmp_path.rglob("*.part"))


def test_many_small_ones_make_room_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST_FILES", 5)
    small = ChangeStore(tmp_path, most=16 * 4096)  # it looks at each of them
    for number in range(8):
        kept(small, A, b"%d" % number)
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 5
    assert len(small.changes(A)) == 8


def test_a_content_that_is_not_what_it_was_is_none(tmp_path: Path) -> None:
    there = ChangeStore(tmp_path)
    kept(there, A, b"one")
    (tmp_path / "blobs" / sha_of(b"one")).write_bytes(b"another")
    assert there.content(sha_of(b"one")) is None
    assert there.content("") is None


def test_a_record_is_read_but_for_lines_that_can_not_be(tmp_path: Path) -> None:
    whole = line_of(change("a")) + b'{"torn": ' + b"\n" + b"\xff\n" + line_of(change("b")) + line_of(change("c"))[:-9]
    assert [each.path for each in changes_in(whole)] == ["a", "b"]
    for name in (os.fsdecode(b"caf\xe9\n%41 \xf0\x9f\x8e\xad"), "a b/c", "100%"):
        assert decoded(encoded(name)) == name
        (read,) = changes_in(line_of(change(encoded(name))))
        assert "/".join(read.parts) == name


def test_a_record_that_is_full_says_so_and_one_that_tears_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = ChangeStore(tmp_path)
    kept(there, A, b"one")
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:7]))
        with pytest.raises(OSError, match="No space"), there.writing():
            there.note(A, [change("b")])
    assert len(there.changes(A)) == 1
    assert (tmp_path / "runs" / f"{A}.jsonl").read_bytes().endswith(b"\n")
    monkeypatch.setattr(store, "MOST_OF_RECORD", 300)
    with pytest.raises(OSError, match=says("work.tools.changes.store.ChangeStore.note")), there.writing():
        there.note(A, [change("b" * 300)])


@pytest.mark.parametrize("name", ["../x", "run-A", "", "run-a/b"])
def test_what_is_no_id_of_a_run_comes_near_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=says("work.tools.changes.store.ChangeStore._record")):
        ChangeStore(tmp_path).changes(name)


def test_contents_go_with_the_last_run_that_has_them(tmp_path: Path) -> None:
    there = ChangeStore(tmp_path)
    kept(there, A, b"both", b"only a")
    kept(there, B, b"both")
    there.remove([A, "run-nope"])
    assert there.runs() == [B]
    assert there.content(sha_of(b"both")) == b"both"
    assert there.content(sha_of(b"only a")) is None
    there.remove([B])
    assert list((tmp_path / "blobs").iterdir()) == []


async def test_a_disk_that_takes_nothing_does_not_keep_a_file_from_being_written(
    tool_caller: ToolCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tool_caller.project / "x").write_text("0")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(store, "write_whole", full)
        await tool_caller(A, "fs_write", path="x", contents="1")
    assert (tool_caller.project / "x").read_text() == "1"
    (changed,) = tool_caller.changed(A)
    assert changed.note == "its earlier content is not stored: the content could not be stored: No space left on device"
    assert "No space left" in tool_caller.left(await tool_caller.restore(A))["x"]
    assert (tool_caller.project / "x").read_text() == "1"


async def test_a_state_directory_that_can_not_be_made_does_not_either(
    tool_caller: ToolCaller, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state").write_text("a file stands where the directory would be")
    await tool_caller(A, "fs_write", path="x", contents="1")
    await tool_caller(A, "fs_rm", path="x")
    assert not (tool_caller.project / "x").exists()
    assert (await tool_caller.restore(A)).restored == []
    assert f"file changes of {A} are not recorded" in caplog.text


async def test_another_process_that_holds_the_lock_does_not_either(
    tool_caller: ToolCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tool_caller(A, "fs_write", path="x", contents="1")
    monkeypatch.setattr(store, "LOCKED_FOR", 0.05)
    descriptor = os.open(tool_caller.store.directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        await tool_caller(A, "fs_write", path="y", contents="1")
    finally:
        os.close(descriptor)
    assert (tool_caller.project / "y").read_text() == "1"
    assert [Path(each.path).name for each in tool_caller.changed(A)] == ["x"]


async def test_what_is_too_large_is_not_kept_and_that_is_said(
    tool_caller: ToolCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tool_caller.project / "x").write_text("x" * 2000)
    (tool_caller.project / "dir").mkdir()
    (tool_caller.project / "dir" / "y").write_text("y" * 2000)
    (tool_caller.project / "dir" / "z").write_text("z" * 2000)
    monkeypatch.setattr(tool_caller.store, "most_of_one", 1000)
    monkeypatch.setattr(snapshot, "MOST_OF_TREE", 3000)
    await tool_caller(A, "fs_write", path="x", contents="1")
    await tool_caller(A, "fs_rm", path="dir")
    left = tool_caller.left(await tool_caller.restore(A))
    assert has_message(left["x"], "work.tools.changes.snapshot._lost.2", size=2000)
    assert has_message(left["dir"], "work.tools.changes.snapshot._too_much.2")
    assert not list(tool_caller.store.directory.rglob("blobs/*"))


KILLED = """
import os, signal, sys, trio
from callboard.actors.work.tools.builtin import writing
from callboard.actors.work.tools.builtin.table import builtin_tools
from callboard.supervisors import Root

renamed = os.rename

def rename(*given, **more):
    if sys.argv[2] == "after":
        renamed(*given, **more)
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    tools = builtin_tools(os.environ)
    async with Root() as root:
        async def body(me):
            os.rename = rename
            return await tools["fs_write"].run(me, {"path": "x", "contents": "new"})
        await root.spawn(body, name="run-aaaa", link=False).result()

os.chdir(sys.argv[1])
trio.run(main)
"""


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_process_that_is_killed_in_the_middle_leaves_a_file_that_can_be_taken_back(
    tool_caller: ToolCaller, when: str
) -> None:
    (tool_caller.project / "x").write_text("old")
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(tool_caller.project), when],
        env={**os.environ, **tool_caller.environ},
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    assert (tool_caller.project / "x").read_text() == ("old" if when == "before" else "new")
    assert (await tool_caller.restore(A)).left == []
    assert (tool_caller.project / "x").read_text() == "old"
