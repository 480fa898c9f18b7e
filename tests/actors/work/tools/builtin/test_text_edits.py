"""fs_edit: exact text, all edits or none, bytes that no edit touches unchanged."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Any

import pytest
import trio
from support.messages import says

from callboard.actors.io.secret_redaction import handed_out
from callboard.actors.work.tools.builtin import writing
from callboard.protocol.errors import ToolFailed

if TYPE_CHECKING:
    from .conftest import Bench


def edit(old: str, new: str, **more: Any) -> dict[str, Any]:
    return {"old_string": old, "new_string": new, **more}


async def test_edits_apply_in_order_and_keep_the_mode(call: Bench) -> None:
    path = call.file("x", "one\ntwo\nthree\n")
    path.chmod(0o755)
    report = await call("fs_edit", path="x", edits=[edit("two", "2"), edit("2\nthree", "2\n3")])
    assert report == "edited x: 2 edits (2 places, lines 2, 2)"
    assert path.read_text() == "one\n2\n3\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert await call("fs_edit", path="x", edits=[edit("one", "1")]) == "edited x: 1 edit (line 1)"


async def test_a_text_that_occurs_twice_is_refused_unless_all_are_meant(call: Bench) -> None:
    path = call.file("x", "a = 1\nb\na = 1\n")
    with pytest.raises(ToolFailed, match=r"occurs 2 times \(at lines 1, 3\)"):
        await call("fs_edit", path="x", edits=[edit("a = 1", "a = 2")])
    assert path.read_text() == "a = 1\nb\na = 1\n"
    await call("fs_edit", path="x", edits=[edit("a = 1", "a = 2", replace_all=True)])
    assert path.read_text() == "a = 2\nb\na = 2\n"


async def test_one_edit_that_does_not_apply_changes_nothing(call: Bench) -> None:
    path = call.file("x", "one\ntwo\n")
    before = path.stat().st_mtime_ns
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.writing.Rewrite.applied", shown="x")):
        await call("fs_edit", path="x", edits=[edit("one", "1"), edit("three", "3")])
    assert (path.read_text(), path.stat().st_mtime_ns) == ("one\ntwo\n", before)


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ([edit("x", "x")], "changes nothing"),
        ([edit("", "x")], "fs_write creates files"),
        ([edit("     1\tone", "1")], "line numbers"),
        ([edit("one\n two", "1")], r"Compare the white space and the lines around it(.|\n)*\n +2\ttwo"),
        ([edit("four", "4")], "Read the file again"),
    ],
)
async def test_the_reason_helps_the_model_to_mend_the_call(call: Bench, edits: list[Any], reason: str) -> None:
    call.file("x", "one\ntwo\n")
    with pytest.raises(ToolFailed, match=reason):
        await call("fs_edit", path="x", edits=edits)


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "A\nB\nBB", b"A\r\nB\r\nBB\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "a\r\nb", "A\r\nB", b"A\r\nB\r\nc\r\n"),
        (b"a\rb\rc", "a\nb", "A\nB", b"A\rB\rc"),
        (b"a\nb\r\nc\nd\n", "a\nb\nc\nd", "a\nb\nC\nnew\nd", b"a\nb\r\nC\nnew\nd\n"),
        (b"a\r\n\r\nb", "a\n\nb", "a\nb", b"a\r\nb"),
        (b"a\r\nb", "b", "b\nc", b"a\r\nb\r\nc"),
        (b"no end", "no end", "no end\nmore", b"no end\nmore"),
        (b"\xef\xbb\xbfa\nb\n", "a\n", "A\n", b"\xef\xbb\xbfA\nb\n"),
        ("\ufeffä\nb\n".encode("utf-16-le"), "ä\nb", "ü\nb", "\ufeffü\nb\n".encode("utf-16-le")),
        ("\ufeffä\n".encode("utf-16-be"), "ä", "ü", "\ufeffü\n".encode("utf-16-be")),
        (b"caf\xe9\na\n", "caf\u00e9", "th\u00e9", b"th\xe9\na\n"),
        ("äöü ß\n".encode() + b"\xff\na\n", "a\n", "é\n", "äöü ß\n".encode() + b"\xff\n" + "é\n".encode()),
        (b"\0\x81\xff binary", "binary", "text", b"\0\x81\xff text"),
        (b"$x.*\n", "$x.*", r"\1\g<0>", b"\\1\\g<0>\n"),
    ],
)
async def test_line_ends_marks_and_encodings_stay(call: Bench, before: bytes, old: str, new: str, after: bytes) -> None:
    path = call.file("x", before)
    await call("fs_edit", path="x", edits=[edit(old, new)])
    assert path.read_bytes() == after


async def test_a_character_that_the_encoding_lacks_is_refused(call: Bench) -> None:
    path = call.file("x", b"caf\xe9\n")
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.text_edits.apply_edits", encoding="cp1252")):
        await call("fs_edit", path="x", edits=[edit("caf", "漢")])
    assert path.read_bytes() == b"caf\xe9\n"


async def test_a_patch_keeps_mark_and_encoding_as_well(call: Bench) -> None:
    marked, old = call.file("x", b"\xef\xbb\xbfa\nb\n"), call.file("y", b"caf\xe9\n")
    await call("fs_patch", path="x", contents="@@ -1 +1 @@\n-a\n+A\n")
    await call("fs_patch", path="y", contents="@@ -1 +1 @@\n-café\n+thé\n")
    assert (marked.read_bytes(), old.read_bytes()) == (b"\xef\xbb\xbfA\nb\n", b"th\xe9\n")


async def test_a_file_that_is_missing_or_protected_is_not_made(call: Bench) -> None:
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.allowed_paths._words", shown="y")):
        await call("fs_edit", path="y", edits=[edit("a", "b")])
    path = call.file("x", "a")
    path.chmod(0o444)
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.writing.status_of.3", st_mode="0444")):
        await call("fs_edit", path="x", edits=[edit("a", "b")])
    with pytest.raises(ToolFailed):
        await call("fs_edit", path="../x", edits=[edit("a", "b")])
    assert [each.name for each in call.project.iterdir()] == ["x"]


async def test_what_an_edit_would_make_too_long_is_refused(call: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "LARGEST", 30)
    path = call.file("x", "aaaa\n")
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.writing.Rewrite.applied.2", shown="x", LARGEST=30)):
        await call("fs_edit", path="x", edits=[edit("a", "b" * 10, replace_all=True)])
    assert path.read_text() == "aaaa\n"


async def test_a_secret_is_not_replaced_by_the_word_that_hides_it(call: Bench) -> None:
    path = call.file("settings", "key = hunter2-hunter2\nsize = 1\n")
    handed_out("hunter2-hunter2")
    with pytest.raises(ToolFailed, match=says("work.tools.builtin.writing._keep_secrets", shown="settings")):
        await call("fs_edit", path="settings", edits=[edit("size = 1", "size = [redacted]")])
    await call("fs_edit", path="settings", edits=[edit("size = 1", "size = 2")])
    assert path.read_text() == "key = hunter2-hunter2\nsize = 2\n"


async def test_edits_of_one_turn_do_not_undo_each_other(call: Bench) -> None:
    path = call.file("x", "".join(f"<{number}>\n" for number in range(20)))

    async def change(number: int) -> None:
        await call("fs_edit", path="x", edits=[edit(f"<{number}>", f"changed {number}")])

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(change, number)
    assert path.read_text() == "".join(f"changed {number}\n" for number in range(20))
