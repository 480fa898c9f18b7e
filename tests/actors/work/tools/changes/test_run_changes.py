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

from .conftest import Stage

A, B = "run-aaaa", "run-bbbb"


async def test_a_changed_file_has_its_content_and_its_mode_again(stage: Stage) -> None:
    script = stage.project / "x.sh"
    script.write_bytes(b"one\ntwo\n")
    script.chmod(0o750)
    await stage(A, "fs_write", path="x.sh", contents="one\n2\n")
    (changed,) = stage.changed(A)
    assert (changed.path, changed.how, changed.added, changed.removed) == (str(script), "changed", 1, 1)
    assert changed.diff == "--- a/x.sh\n+++ b/x.sh\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    assert stage.back(await stage.restore(A)) == {"x.sh": "content"}
    assert script.read_bytes() == b"one\ntwo\n"
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    assert stage.changed(A) == []


async def test_a_file_that_was_made_goes_with_the_directories_that_were_made_for_it(stage: Stage) -> None:
    await stage(A, "fs_write", path="a/b/c.txt", contents="new\n")
    (made, *_), file = [each for each in stage.changed(A) if each.kind == "directory"], stage.changed(A)[-1]
    assert (made.how, file.how, file.added, file.removed) == ("created", "created", 1, 0)
    assert file.diff.startswith("--- /dev/null\n+++ b/a/b/c.txt\n@@ -0,0 +1 @@\n+new\n")
    assert set(stage.back(await stage.restore(A))) == {"a", "a/b", "a/b/c.txt"}
    assert list(stage.project.iterdir()) == []


async def test_a_directory_that_others_use_by_now_stays(stage: Stage) -> None:
    await stage(A, "fs_mkdir", path="a/b")
    (stage.project / "a" / "mine").write_text("mine")
    report = await stage.restore(A)
    assert stage.back(report) == {"a/b": "removed"}
    assert stage.left(report) == {"a": "the directory contains other files now"}
    assert (stage.project / "a" / "mine").read_text() == "mine"


async def test_a_removed_directory_comes_back_as_it_was(stage: Stage) -> None:
    below = stage.project / "dir" / "below"
    below.mkdir(parents=True)
    (below / "x").write_bytes(b"\xff\xfe binary \0")
    (below / "x").chmod(0o640)
    (below / "link").symlink_to("../nowhere")
    (stage.project / "dir" / "empty").mkdir(mode=0o711)
    name = os.fsdecode(b"caf\xe9 %41\n")
    (stage.project / "dir" / name).write_text("odd name")
    below.chmod(0o555)
    if os.geteuid() != 0:
        below.chmod(0o755)
    await stage(A, "fs_rm", path="dir")
    assert not (stage.project / "dir").exists()
    report = await stage.restore(A)
    assert report.left == []
    assert (below / "x").read_bytes() == b"\xff\xfe binary \0"
    assert stat.S_IMODE((below / "x").stat().st_mode) == 0o640
    assert stat.S_IMODE((stage.project / "dir" / "empty").stat().st_mode) == 0o711
    assert stat.S_IMODE(below.stat().st_mode) == (0o755 if os.geteuid() else 0o555)
    assert (below / "link").readlink() == Path("../nowhere")
    assert (stage.project / "dir" / name).read_text() == "odd name"


async def test_a_patch_is_taken_back_and_nothing_that_another_has_done_since(stage: Stage) -> None:
    for name in ("x", "y"):
        (stage.project / name).write_text("one\ntwo\n")
        await stage(A, "fs_patch", path=name, contents="@@ -1,2 +1,2 @@\n one\n-two\n+2\n")
    (stage.project / "y").write_text("one\n2\nthree\n")
    report = await stage.restore(A)
    assert stage.back(report) == {"x": "content"}
    assert stage.left(report) == {"y": "another program has changed it since"}
    assert (stage.project / "y").read_text() == "one\n2\nthree\n"
    (changed,) = [each for each in stage.changed(A) if each.path.endswith("y")]
    assert "+three" in changed.diff
    assert has_message(changed.note, "work.tools.changes.run_changes._after.3")


async def test_what_came_after_a_change_of_another_is_taken_back_and_no_more(stage: Stage) -> None:
    file = stage.project / "x"
    file.write_text("0")
    await stage(A, "fs_write", path="x", contents="1")
    file.write_text("mine")
    await stage(A, "fs_write", path="x", contents="2")
    report = await stage.restore(A)
    assert stage.back(report) == {"x": "content"}
    assert has_message(stage.left(report)["x"], "work.tools.changes.run_changes.4")
    assert file.read_text() == "mine"


async def test_a_later_run_keeps_what_it_has_made_of_a_file(stage: Stage) -> None:
    file = stage.project / "x"
    file.write_text("0")
    await stage(A, "fs_write", path="x", contents="1")
    await stage(B, "fs_write", path="x", contents="2")
    assert stage.left(await stage.restore(A)) == {"x": f"{B} has changed it since"}
    assert file.read_text() == "2"
    assert stage.back(await stage.restore(B, A)) == {"x": "content"}
    assert file.read_text() == "0"


async def test_only_what_came_after_a_mark_is_taken_back(stage: Stage) -> None:
    await stage(A, "fs_write", path="x", contents="1")
    since = mark()
    await stage(A, "fs_write", path="x", contents="2")
    (changed,) = stage.changed(A, since=since)
    assert changed.diff.endswith("-1\n\\ No newline at end of file\n+2\n\\ No newline at end of file\n")
    await stage.restore(A, since=since)
    assert (stage.project / "x").read_text() == "1"


async def test_the_changes_of_one_call(stage: Stage) -> None:
    await stage(A, "fs_write", path="x", contents="1\n")
    await stage(A, "fs_write", path="x", contents="2\n")
    first = stage.store.changes(A)[0]
    changed = stage.changed(A, actor=first.actor)
    assert [(each.how, each.added) for each in changed] == [("created", 1)]


async def test_a_link_is_removed_and_comes_back_and_is_never_followed(stage: Stage, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("theirs")
    (stage.project / "link").symlink_to(outside)
    await stage(A, "fs_rm", path="link")
    assert stage.back(await stage.restore(A)) == {"link": "returned"}
    assert (stage.project / "link").readlink() == outside


async def test_a_link_that_was_put_in_the_way_is_not_followed(stage: Stage, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("x", "y"):
        (stage.project / name).mkdir()
        (stage.project / name / "f").write_text("0")
        await stage(A, "fs_write", path=f"{name}/f", contents="1")
        (outside / "f").write_text("1")
    (stage.project / "x").rename(tmp_path / "away")
    (stage.project / "x").symlink_to(outside)
    (stage.project / "y" / "f").unlink()
    (stage.project / "y" / "f").symlink_to(outside / "f")
    report = await stage.restore(A)
    assert report.restored == []
    assert set(stage.left(report)) == {"x/f", "y/f"}
    assert (outside / "f").read_text() == "1"
    stage.project.rename(tmp_path / "moved")
    stage.project.symlink_to(outside)
    assert all(
        has_message(why, "work.tools.changes.store.place_of") for why in stage.left(await stage.restore(A)).values()
    )


async def test_what_can_not_be_written_back_is_named_and_the_rest_is_restored(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("x", "y"):
        (stage.project / name).mkdir()
        (stage.project / name / "f").write_text("0")
        await stage(A, "fs_write", path=f"{name}/f", contents="1")
    opened = os.open

    def refused(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_CREAT and dir_fd is not None and os.path.samestat(os.fstat(dir_fd), closed):
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, flags, mode, dir_fd=dir_fd)

    closed = (stage.project / "x").stat()  # as it is for those who are not root in a directory without write permission
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        report = await stage.restore(A)
    assert stage.left(report) == {"x/f": "Permission denied"}
    assert stage.back(report) == {"y/f": "content"}
    assert [path.name for path in (stage.project / "x").iterdir()] == ["f"]
    assert stage.back(await stage.restore(A)) == {"x/f": "content"}


async def test_a_call_that_failed_has_changed_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    (stage.project / "x").write_text("0")
    await stage(A, "fs_write", path="x", contents="1")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        with pytest.raises(ToolFailed, match="No space"):
            await stage(A, "fs_write", path="x", contents="2")
    await stage(A, "fs_write", path="x", contents="3")
    assert (await stage.restore(A)).left == []
    assert (stage.project / "x").read_text() == "0"


async def test_a_removal_that_failed_in_the_middle_is_taken_back_as_far_as_it_went(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("d/a", "d/b"):
        (stage.project / name).parent.mkdir(exist_ok=True)
        (stage.project / name).write_text(name)

    def half(*_: object, **__: object) -> None:
        (stage.project / "d" / "a").unlink()
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", half)
        with pytest.raises(ToolFailed, match="Read-only"):
            await stage(A, "fs_rm", path="d")
    assert [(Path(each.path).name, each.how) for each in stage.changed(A)] == [("a", "removed")]
    report = await stage.restore(A)
    assert (stage.back(report), report.left) == ({"d/a": "returned"}, [])


async def test_calls_outside_of_runs_are_not_kept(stage: Stage) -> None:
    await stage("tools", "fs_write", path="x", contents="1")
    assert not stage.store.directory.exists()


async def test_a_process_that_can_not_open_the_vault_shows_no_file_that_has_held_a_secret_of_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run knows what it was handed; `callboard runs diff` may not, and must not show what it can't hide."""
    (stage.project / "old").write_text("key = s3cret-of-the-vault\n")
    monkeypatch.setattr(secret_redaction, "_HANDED", secret_redaction.SecretTexts())
    secret_redaction.handed_out("s3cret-of-the-vault")
    await stage(A, "fs_write", path="old", contents="none\n")
    await stage(A, "fs_write", path="new", contents="key = s3cret-of-the-vault\n")
    await stage(A, "fs_write", path="plain", contents="text\n")
    shown = {Path(each.path).name: each for each in stage.changed(A)}
    assert "-key = [redacted]" in shown["old"].diff
    assert "+key = [redacted]" in shown["new"].diff
    monkeypatch.setattr(secret_redaction, "_HANDED", secret_redaction.SecretTexts())  # as in another process
    shown = {Path(each.path).name: each for each in stage.changed(A)}
    assert [
        (name, each.diff == "", has_message(each.note, "work.tools.changes.run_changes"))
        for name, each in shown.items()
    ] == [
        ("new", True, True),
        ("old", True, True),
        ("plain", False, False),
    ]


async def test_a_diff_is_shown_when_every_secret_that_stands_in_it_is_known(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two is not enough; nor is another value by the same name, as after it was changed."""
    monkeypatch.setattr(secret_redaction, "_HANDED", secret_redaction.SecretTexts())
    secret_redaction.handed_out("s3cret-of-the-vault", name="KEPT")
    secret_redaction.handed_out("s3cret-from-outside", name="OUTSIDE")
    await stage(A, "fs_write", path="x", contents="s3cret-of-the-vault\ns3cret-from-outside\n")

    def shown(**known: str) -> tuple[str, str]:
        monkeypatch.setattr(secret_redaction, "_HANDED", secret_redaction.SecretTexts())
        asked: list[str] = []

        def hide(names: Collection[str]) -> None:
            asked.extend(sorted(names))
            for name, value in known.items():
                secret_redaction.handed_out(value, name=name)

        (changed,) = changes_of(stage.store, [A], hide=hide)
        assert asked == ["KEPT", "OUTSIDE"]
        assert "s3cret" not in changed.diff
        return changed.diff, changed.note

    assert shown(KEPT="s3cret-of-the-vault", OUTSIDE="s3cret-from-outside")[0].count("+[redacted]") == 2
    for outside in ({}, {"OUTSIDE": "s3cret-that-came-later"}):
        diff, note = shown(KEPT="s3cret-of-the-vault", **outside)
        assert diff == ""
        assert note.startswith("the file has contained {{OUTSIDE}}, whose value is not known in this process")
    assert "{{KEPT}} and {{OUTSIDE}}, whose" in shown()[1]


async def test_a_secret_is_hidden_before_a_long_line_is_cut(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_redaction, "_HANDED", secret_redaction.SecretTexts())
    secret_redaction.handed_out("s3cret-of-the-vault")
    await stage(A, "fs_write", path="x", contents="y" * 990 + "s3cret-of-the-vault" + "y" * 50)
    (changed,) = stage.changed(A)
    assert "s3cret" not in changed.diff
