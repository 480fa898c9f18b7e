"""What runs have changed: shown, and taken back."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection
from pathlib import Path

import pytest
from support.messages import has_message

from callboard.actors.io import secret_redaction
from callboard.actors.work.tools.changes.run_changes import changes_of, mark
from callboard.protocol.errors import ToolFailed

from .conftest import ToolCaller

A, B = "run-aaaa", "run-bbbb"


async def test_a_changed_file_has_its_content_and_its_mode_again(tool_caller: ToolCaller) -> None:
    script = tool_caller.project / "x.sh"
    script.write_bytes(b"one\ntwo\n")
    script.chmod(0o750)
    await tool_caller(A, "fs_write", path="x.sh", contents="one\n2\n")
    (changed,) = tool_caller.changed(A)
    assert (changed.path, changed.how, changed.added, changed.removed) == (str(script), "changed", 1, 1)
    assert changed.diff == "--- a/x.sh\n+++ b/x.sh\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    assert tool_caller.back(await tool_caller.restore(A)) == {"x.sh": "content"}
    assert script.read_bytes() == b"one\ntwo\n"
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    assert tool_caller.changed(A) == []


async def test_a_file_that_was_made_goes_with_the_directories_that_were_made_for_it(tool_caller: ToolCaller) -> None:
    await tool_caller(A, "fs_write", path="a/b/c.txt", contents="new\n")
    (made, *_), file = [each for each in tool_caller.changed(A) if each.kind == "directory"], tool_caller.changed(A)[-1]
    assert (made.how, file.how, file.added, file.removed) == ("created", "created", 1, 0)
    assert file.diff.startswith("--- /dev/null\n+++ b/a/b/c.txt\n@@ -0,0 +1 @@\n+new\n")
    assert set(tool_caller.back(await tool_caller.restore(A))) == {"a", "a/b", "a/b/c.txt"}
    assert list(tool_caller.project.iterdir()) == []


async def test_a_directory_that_others_use_by_now_stays(tool_caller: ToolCaller) -> None:
    await tool_caller(A, "fs_mkdir", path="a/b")
    (tool_caller.project / "a" / "mine").write_text("mine")
    report = await tool_caller.restore(A)
    assert tool_caller.back(report) == {"a/b": "removed"}
    assert tool_caller.left(report) == {"a": "the directory contains other files now"}
    assert (tool_caller.project / "a" / "mine").read_text() == "mine"


async def test_a_removed_directory_comes_back_as_it_was(tool_caller: ToolCaller) -> None:
    below = tool_caller.project / "dir" / "below"
    below.mkdir(parents=True)
    (below / "x").write_bytes(b"\xff\xfe binary \0")
    (below / "x").chmod(0o640)
    (below / "link").symlink_to("../nowhere")
    (tool_caller.project / "dir" / "empty").mkdir(mode=0o711)
    name = os.fsdecode(b"caf\xe9 %41\n")
    (tool_caller.project / "dir" / name).write_text("odd name")
    below.chmod(0o555)
    if os.geteuid() != 0:
        below.chmod(0o755)
    await tool_caller(A, "fs_rm", path="dir")
    assert not (tool_caller.project / "dir").exists()
    report = await tool_caller.restore(A)
    assert report.left == []
    assert (below / "x").read_bytes() == b"\xff\xfe binary \0"
    assert stat.S_IMODE((below / "x").stat().st_mode) == 0o640
    assert stat.S_IMODE((tool_caller.project / "dir" / "empty").stat().st_mode) == 0o711
    assert stat.S_IMODE(below.stat().st_mode) == (0o755 if os.geteuid() else 0o555)
    assert (below / "link").readlink() == Path("../nowhere")
    assert (tool_caller.project / "dir" / name).read_text() == "odd name"


async def test_a_patch_is_taken_back_and_nothing_that_another_has_done_since(tool_caller: ToolCaller) -> None:
    for name in ("x", "y"):
        (tool_caller.project / name).write_text("one\ntwo\n")
        await tool_caller(A, "fs_patch", path=name, contents="@@ -1,2 +1,2 @@\n one\n-two\n+2\n")
    (tool_caller.project / "y").write_text("one\n2\nthree\n")
    report = await tool_caller.restore(A)
    assert tool_caller.back(report) == {"x": "content"}
    assert tool_caller.left(report) == {"y": "another program has changed it since"}
    assert (tool_caller.project / "y").read_text() == "one\n2\nthree\n"
    (changed,) = [each for each in tool_caller.changed(A) if each.path.endswith("y")]
    assert "+three" in changed.diff
    assert has_message(changed.note, "work.tools.changes.run_changes._after.3")


async def test_what_came_after_a_change_of_another_is_taken_back_and_no_more(tool_caller: ToolCaller) -> None:
    file = tool_caller.project / "x"
    file.write_text("0")
    await tool_caller(A, "fs_write", path="x", contents="1")
    file.write_text("mine")
    await tool_caller(A, "fs_write", path="x", contents="2")
    report = await tool_caller.restore(A)
    assert tool_caller.back(report) == {"x": "content"}
    assert has_message(tool_caller.left(report)["x"], "work.tools.changes.run_changes.4")
    assert file.read_text() == "mine"


async def test_a_later_run_keeps_what_it_has_made_of_a_file(tool_caller: ToolCaller) -> None:
    file = tool_caller.project / "x"
    file.write_text("0")
    await tool_caller(A, "fs_write", path="x", contents="1")
    await tool_caller(B, "fs_write", path="x", contents="2")
    assert tool_caller.left(await tool_caller.restore(A)) == {"x": f"{B} has changed it since"}
    assert file.read_text() == "2"
    assert tool_caller.back(await tool_caller.restore(B, A)) == {"x": "content"}
    assert file.read_text() == "0"


async def test_only_what_came_after_a_mark_is_taken_back(tool_caller: ToolCaller) -> None:
    await tool_caller(A, "fs_write", path="x", contents="1")
    since = mark()
    await tool_caller(A, "fs_write", path="x", contents="2")
    (changed,) = tool_caller.changed(A, since=since)
    assert changed.diff.endswith("-1\n\\ No newline at end of file\n+2\n\\ No newline at end of file\n")
    await tool_caller.restore(A, since=since)
    assert (tool_caller.project / "x").read_text() == "1"


async def test_the_changes_of_one_call(tool_caller: ToolCaller) -> None:
    await tool_caller(A, "fs_write", path="x", contents="1\n")
    await tool_caller(A, "fs_write", path="x", contents="2\n")
    first = tool_caller.store.changes(A)[0]
    changed = tool_caller.changed(A, actor=first.actor)
    assert [(each.how, each.added) for each in changed] == [("created", 1)]


async def test_a_link_is_removed_and_comes_back_and_is_never_followed(tool_caller: ToolCaller, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("theirs")
    (tool_caller.project / "link").symlink_to(outside)
    await tool_caller(A, "fs_rm", path="link")
    assert tool_caller.back(await tool_caller.restore(A)) == {"link": "returned"}
    assert (tool_caller.project / "link").readlink() == outside


async def test_a_link_that_was_put_in_the_way_is_not_followed(tool_caller: ToolCaller, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("x", "y"):
        (tool_caller.project / name).mkdir()
        (tool_caller.project / name / "f").write_text("0")
        await tool_caller(A, "fs_write", path=f"{name}/f", contents="1")
        (outside / "f").write_text("1")
    (tool_caller.project / "x").rename(tmp_path / "away")
    (tool_caller.project / "x").symlink_to(outside)
    (tool_caller.project / "y" / "f").unlink()
    (tool_caller.project / "y" / "f").symlink_to(outside / "f")
    report = await tool_caller.restore(A)
    assert report.restored == []
    assert set(tool_caller.left(report)) == {"x/f", "y/f"}
    assert (outside / "f").read_text() == "1"
    tool_caller.project.rename(tmp_path / "moved")
    tool_caller.project.symlink_to(outside)
    assert all(
        has_message(why, "work.tools.changes.store.place_of")
        for why in tool_caller.left(await tool_caller.restore(A)).values()
    )


async def test_what_can_not_be_written_back_is_named_and_the_rest_is_restored(
    tool_caller: ToolCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("x", "y"):
        (tool_caller.project / name).mkdir()
        (tool_caller.project / name / "f").write_text("0")
        await tool_caller(A, "fs_write", path=f"{name}/f", contents="1")
    opened = os.open

    def refused(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_CREAT and dir_fd is not None and os.path.samestat(os.fstat(dir_fd), closed):
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, flags, mode, dir_fd=dir_fd)

    closed = (
        tool_caller.project / "x"
    ).stat()  # as it is for those who are not root in a directory without write permission
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        report = await tool_caller.restore(A)
    assert tool_caller.left(report) == {"x/f": "Permission denied"}
    assert tool_caller.back(report) == {"y/f": "content"}
    assert [path.name for path in (tool_caller.project / "x").iterdir()] == ["f"]
    assert tool_caller.back(await tool_caller.restore(A)) == {"x/f": "content"}


async def test_a_call_that_failed_has_changed_nothing(tool_caller: ToolCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    (tool_caller.project / "x").write_text("0")
    await tool_caller(A, "fs_write", path="x", contents="1")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        with pytest.raises(ToolFailed, match="No space"):
            await tool_caller(A, "fs_write", path="x", contents="2")
    await tool_caller(A, "fs_write", path="x", contents="3")
    assert (await tool_caller.restore(A)).left == []
    assert (tool_caller.project / "x").read_text() == "0"


async def test_a_removal_that_failed_in_the_middle_is_taken_back_as_far_as_it_went(
    tool_caller: ToolCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("d/a", "d/b"):
        (tool_caller.project / name).parent.mkdir(exist_ok=True)
        (tool_caller.project / name).write_text(name)

    def half(*_: object, **__: object) -> None:
        (tool_caller.project / "d" / "a").unlink()
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", half)
        with pytest.raises(ToolFailed, match="Read-only"):
            await tool_caller(A, "fs_rm", path="d")
    assert [(Path(each.path).name, each.how) for each in tool_caller.changed(A)] == [("a", "removed")]
    report = await tool_caller.restore(A)
    assert (tool_caller.back(report), report.left) == ({"d/a": "returned"}, [])


async def test_calls_outside_of_runs_are_not_kept(tool_caller: ToolCaller) -> None:
    await tool_caller("tools", "fs_write", path="x", contents="1")
    assert not tool_caller.store.directory.exists()


async def test_a_process_that_can_not_open_the_vault_shows_no_file_that_has_held_a_secret_of_it(
    tool_caller: ToolCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run knows what it was handed; `callboard runs diff` may not, and must not show what it can't hide."""
    (tool_caller.project / "old").write_text("key = s3cret-of-the-vault\n")
    monkeypatch.setattr(secret_redaction, "_HANDED", secret_redaction.SecretTexts())
    secret_redaction.handed_out("s3cret-of-the-vault")
    await tool_caller(A, "fs_write", path="old", contents="none\n")
    await tool_caller(A, "fs_write", path="new", contents="key = s3cret-of-the-vault\n")
    await tool_caller(A, "fs_write", path="plain", contents="text\n")
    shown = {Path(each.path).name: each for each in tool_caller.changed(A)}
    assert "-key = [redacted]" in shown["old"].diff
    assert "+key = [redacted]" in shown["new"].diff
    monkeypatch.setattr(secret_redaction, "_HANDED", secret_redaction.SecretTexts())  # as in another process
    shown = {Path(each.path).name: each for each in tool_caller.changed(A)}
    assert [
        (name, each.diff == "", has_message(each.note, "work.tools.changes.run_changes"))
        for name, each in shown.items()
    ] == [
        ("new", True, True),
        ("old", True, True),
        ("plain", False, False),
    ]


async def test_a_diff_is_shown_when_every_secret_that_stands_in_it_is_known(
    tool_caller: ToolCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two is not enough; nor is another value by the same name, as after it was changed."""
    monkeypatch.setattr(secret_redaction, "_HANDED", secret_redaction.SecretTexts())
    secret_redaction.handed_out("s3cret-of-the-vault", name="KEPT")
    secret_redaction.handed_out("s3cret-from-outside", name="OUTSIDE")
    await tool_caller(A, "fs_write", path="x", contents="s3cret-of-the-vault\ns3cret-from-outside\n")

    def shown(**known: str) -> tuple[str, str]:
        monkeypatch.setattr(secret_redaction, "_HANDED", secret_redaction.SecretTexts())
        asked: list[str] = []

        def hide(names: Collection[str]) -> None:
            asked.extend(sorted(names))
            for name, value in known.items():
                secret_redaction.handed_out(value, name=name)

        (changed,) = changes_of(tool_caller.store, [A], hide=hide)
        assert asked == ["KEPT", "OUTSIDE"]
        assert "s3cret" not in changed.diff
        return changed.diff, changed.note

    assert shown(KEPT="s3cret-of-the-vault", OUTSIDE="s3cret-from-outside")[0].count("+[redacted]") == 2
    for outside in ({}, {"OUTSIDE": "s3cret-that-came-later"}):
        diff, note = shown(KEPT="s3cret-of-the-vault", **outside)
        assert diff == ""
        assert note.startswith("the file has contained {{OUTSIDE}}, whose value is not known in this process")
    assert "{{KEPT}} and {{OUTSIDE}}, whose" in shown()[1]


async def test_a_secret_is_hidden_before_a_long_line_is_cut(
    tool_caller: ToolCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_redaction, "_HANDED", secret_redaction.SecretTexts())
    secret_redaction.handed_out("s3cret-of-the-vault")
    await tool_caller(A, "fs_write", path="x", contents="y" * 990 + "s3cret-of-the-vault" + "y" * 50)
    (changed,) = tool_caller.changed(A)
    assert "s3cret" not in changed.diff
