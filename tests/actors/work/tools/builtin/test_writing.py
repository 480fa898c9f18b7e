"""fs_write, fs_patch, fs_mkdir and fs_rm: whole or not at all."""

from __future__ import annotations

import fcntl
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from support.messages import says

from callboard.actors.io.secret_redaction import handed_out
from callboard.actors.work.tools.builtin import writing
from callboard.protocol.errors import ToolFailed

if TYPE_CHECKING:
    from .conftest import Bench


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_write_makes_a_file_with_its_directories(call: Bench) -> None:
    assert await call("fs_write", path="a/b/c.txt", contents="1\n2") == "wrote a/b/c.txt: 2 lines, 3 bytes"
    assert (call.project / "a/b/c.txt").read_text() == "1\n2"
    assert names(call.project / "a/b") == ["c.txt"]


async def test_write_replaces_a_file_and_keeps_its_mode(call: Bench) -> None:
    path = call.file("run.sh", "old")
    path.chmod(0o751)
    assert await call("fs_write", path="run.sh", contents="new\n") == "replaced run.sh: 1 line, 4 bytes"
    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert names(call.project) == ["run.sh"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
async def test_a_replaced_file_keeps_its_owner(call: Bench) -> None:
    path = call.file("of_another", "old")
    try:
        os.chown(path, 1234, 5678)
    except OSError as error:
        pytest.skip(f"no files of others here, as in a user namespace: {error}")
    await call("fs_write", path="of_another", contents="new")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 5678)


async def test_what_is_written_is_exactly_what_was_given(call: Bench) -> None:
    for text in ("", "a\r\nb", "ü漢😀", "\0\x01", "$(rm -rf /)`'\"\\"):
        await call("fs_write", path="x", contents=text)
        assert (call.project / "x").read_bytes() == text.encode()


async def test_a_reader_sees_the_old_file_or_the_new_one(call: Bench) -> None:
    path = call.file("x", "old")
    with path.open() as held:
        await call("fs_write", path="x", contents="new")
        assert held.read() == "old"


async def test_write_goes_through_a_link_that_stays_inside(call: Bench) -> None:
    call.file("real", "old")
    (call.project / "link").symlink_to("real")
    await call("fs_write", path="link", contents="new")
    assert (call.project / "real").read_text() == "new"
    assert (call.project / "link").is_symlink()


async def test_a_read_only_file_is_left_alone(call: Bench) -> None:
    path = call.file("x", "old")
    path.chmod(0o444)
    for tool, contents in (("fs_write", "new"), ("fs_patch", "@@ -1 +1 @@\n-old\n+new\n")):
        with pytest.raises(ToolFailed, match=says("work.tools.builtin.writing.status_of.3", st_mode="0444")):
            await call(tool, path="x", contents=contents)
    assert path.read_text() == "old"


async def test_a_directory_is_not_written_over(call: Bench) -> None:
    call.file("a/x")
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.writing.status_of", shown="a")):
        await call("fs_write", path="a", contents="x")
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.allowed_paths.AllowedPath.above")):
        await call("fs_write", path=".", contents="x")


async def test_too_much_is_refused_before_anything_is_touched(call: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "LARGEST", 10)
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.writing.encoded.2", data=11, LARGEST=10)):
        await call("fs_write", path="a/x", contents="x" * 11)
    assert names(call.project) == []


async def test_a_failing_write_leaves_the_old_file_and_nothing_beside_it(
    call: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    call.file("x", "old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(ToolFailed, match="No space left"):
        await call("fs_write", path="x", contents="new")
    assert (call.project / "x").read_text() == "old"
    assert names(call.project) == ["x"]


async def test_patch_changes_a_file_and_keeps_its_mode(call: Bench) -> None:
    path = call.file("x", "a\nb\nc\n")
    path.chmod(0o755)
    said = await call("fs_patch", path="x", contents="@@ -1,3 +1,4 @@\n a\n-b\n+B\n+BB\n c\n")
    assert said == "patched x: 1 hunk, +2 -1 lines"
    assert path.read_text() == "a\nB\nBB\nc\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


async def test_patch_says_where_a_moved_hunk_stood(call: Bench) -> None:
    call.file("x", "0\n0\na\nb\n")
    said = await call("fs_patch", path="x", contents="@@ -1,2 +1,2 @@\n a\n-b\n+B\n")
    assert said == "patched x: 1 hunk, +1 -1 lines; hunk 1 was applied at line 3"


async def test_a_patch_that_does_not_fit_changes_nothing(call: Bench) -> None:
    path = call.file("x", "a\nb\n")
    before = path.stat().st_mtime_ns
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.writing.Rewrite.applied", shown="x")):
        await call("fs_patch", path="x", contents="@@ -1 +1 @@\n-a\n+A\n@@ -2 +2 @@\n-c\n+C\n")
    assert path.read_text() == "a\nb\n"
    assert path.stat().st_mtime_ns == before


async def test_patch_makes_a_new_file_only_if_it_only_adds(call: Bench) -> None:
    await call("fs_patch", path="d/x", contents="--- /dev/null\n+++ b/d/x\n@@ -0,0 +1 @@\n+new\n")
    assert (call.project / "d/x").read_text() == "new\n"
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.allowed_paths._words", shown="y")):
        await call("fs_patch", path="y", contents="@@ -1 +1 @@\n-a\n+b\n")


async def test_bytes_that_are_no_utf_8_survive_a_patch(call: Bench) -> None:
    path = call.file("x", b"caf\xe9\na\n")
    await call("fs_patch", path="x", contents="@@ -2 +2 @@\n-a\n+b\n")
    assert path.read_bytes() == b"caf\xe9\nb\n"


async def test_a_file_too_large_is_not_patched(call: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "LARGEST", 30)
    call.file("x", "aaaa\n" * 7)
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.writing._read", LARGEST=30)):
        await call("fs_patch", path="x", contents="@@ -1 +1 @@\n-aaaa\n+b\n")


async def test_patches_of_one_turn_do_not_undo_each_other(call: Bench) -> None:
    path = call.file("x", "".join(f"{number}\n" for number in range(20)))

    async def patch(number: int) -> None:
        diff = f"@@ -{number + 1} +{number + 1} @@\n-{number}\n+changed {number}\n"
        await call("fs_patch", path="x", contents=diff)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(patch, number)
    assert path.read_text() == "".join(f"changed {number}\n" for number in range(20))


async def test_a_lock_that_somebody_else_keeps_is_told(call: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "LOCKED_FOR", 0.02)
    descriptor = os.open(call.project, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(ToolFailed, match=says("work.tools.builtin.writing.locked")):
            await call("fs_write", path="x", contents="x")
    finally:
        os.close(descriptor)
    assert names(call.project) == []


async def test_mkdir_makes_what_is_missing_and_says_what_is_not(call: Bench) -> None:
    assert await call("fs_mkdir", path="a/b/c") == "made a/b/c"
    assert (call.project / "a/b/c").is_dir()
    assert await call("fs_mkdir", path="a/b") == "a/b exists already"
    call.file("f")
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.allowed_paths._words.2")):
        await call("fs_mkdir", path="f")


async def test_rm_removes_files_and_whole_directories(call: Bench) -> None:
    call.file("a/b/c")
    call.file("x")
    assert await call("fs_rm", path="x") == "removed x"
    assert re.fullmatch(says("work.tools.builtin.writing._remove.3", shown="a/"), await call("fs_rm", path="a/"))
    assert names(call.project) == []


async def test_rm_removes_a_link_and_never_what_it_leads_to(call: Bench, tmp_path: Path) -> None:
    keep = tmp_path / "keep"
    keep.mkdir()
    (keep / "x").touch()
    (call.project / "link").symlink_to(keep)
    call.file("d/x")
    (call.project / "d" / "link").symlink_to(keep)
    await call("fs_rm", path="link")
    await call("fs_rm", path="d")
    assert names(call.project) == []
    assert names(keep) == ["x"]


@pytest.mark.parametrize("path", [".", "", "a/..", "{project}", "./", "a", "a/b"])
async def test_rm_refuses_the_roots_and_what_holds_one(call: Bench, path: str) -> None:
    call.file("a/b/x")
    call.roots = [call.project, call.project / "a" / "b"]
    with pytest.raises(ToolFailed, match=r"was not removed|nothing was removed"):
        await call("fs_rm", path=path.format(project=call.project))
    assert (call.project / "a/b/x").exists()


async def test_rm_of_nothing_is_told(call: Bench) -> None:
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.allowed_paths._words", shown="x")):
        await call("fs_rm", path="x")


async def test_what_stands_for_a_secret_is_not_written_over_it(call: Bench) -> None:
    handed_out("s3cret-of-the-vault")
    path = call.file("settings", "key: s3cret-of-the-vault\nsize: 1\n")
    before = path.read_bytes()
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.writing._keep_secrets")):
        await call("fs_write", path="settings", contents="key: [redacted]\nsize: 2\n")
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.writing._keep_secrets")):
        await call("fs_patch", path="settings", contents="@@\n-size: 1\n+size: [redacted]\n")
    assert path.read_bytes() == before
    await call("fs_patch", path="settings", contents="@@\n-size: 1\n+size: 2\n")
    assert path.read_text() == "key: s3cret-of-the-vault\nsize: 2\n"
    await call("fs_write", path="words", contents="no secret: [redacted]\n")
    await call("fs_write", path="words", contents="still none: [redacted]\n[redacted]\n")
