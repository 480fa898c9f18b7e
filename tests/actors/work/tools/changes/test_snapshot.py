"""What a call has changed is told to those who hear its run."""

from __future__ import annotations

import pytest

from callboard.protocol.errors import ToolFailed
from callboard.protocol.events import Event, FileChanged

from .conftest import ToolCaller

A = "run-aaaa"


async def test_each_change_is_told_with_its_lines(tool_caller: ToolCaller) -> None:
    events: list[Event] = []
    (tool_caller.project / "x").write_bytes(b"one\ntwo\n")
    (tool_caller.project / "d" / "e").mkdir(parents=True)
    (tool_caller.project / "d" / "e" / "f").write_text("f\n")
    (tool_caller.project / "bin").write_bytes(b"\0")
    with tool_caller.root.bus.listen(events.append):
        await tool_caller(A, "fs_patch", path="x", contents="@@ -1,2 +1,2 @@\n one\n-two\n+2\n")
        await tool_caller(A, "fs_write", path="new", contents="1\n2\n3")
        await tool_caller(A, "fs_write", path="bin", contents="text")
        await tool_caller(A, "fs_mkdir", path="m/n")
        await tool_caller(A, "fs_mkdir", path="m/n")
        await tool_caller(A, "fs_rm", path="d")
        await tool_caller(A, "fs_rm", path="x")
    found = [event.data for event in events if isinstance(event.data, FileChanged)]
    told = [
        (data.tool, data.path.removeprefix(f"{tool_caller.project}/"), data.how, data.added, data.removed)
        for data in found
    ]
    assert told == [
        ("fs_patch", "x", "changed", 1, 1),
        ("fs_write", "new", "created", 3, 0),
        ("fs_write", "bin", "changed", None, None),
        ("fs_mkdir", "m/n", "created", None, None),
        ("fs_rm", "d", "removed", None, None),
        ("fs_rm", "x", "removed", 0, 2),
    ]


async def test_what_was_changed_is_told_as_a_diff_unless_it_may_not_be_shown(tool_caller: ToolCaller) -> None:
    events: list[Event] = []
    (tool_caller.project / "x").write_bytes(b"one\ntwo\n")
    (tool_caller.project / "large").write_bytes(b"x\n" * 600_000)
    with tool_caller.root.bus.listen(events.append):
        await tool_caller(A, "fs_patch", path="x", contents="@@ -1,2 +1,2 @@\n one\n-two\n+2\n")
        await tool_caller(A, "fs_write", path="large", contents="y\n")
        await tool_caller(A, "fs_write", path="long", contents="z\n" * 5_000)
        await tool_caller(A, "fs_write", path="bin", contents="a\0b")
        await tool_caller(A, "fs_rm", path="x")
    found = [event.data.diff for event in events if isinstance(event.data, FileChanged)]
    assert found[0] == "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    assert found[1] == ""
    assert found[2].startswith("--- /dev/null\n+++ b/long\n")
    assert len(found[2]) <= 8_000
    assert found[3] == ""
    assert found[4] == "--- a/x\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-one\n-2\n"


async def test_a_call_that_failed_has_changed_nothing(tool_caller: ToolCaller) -> None:
    events: list[Event] = []
    (tool_caller.project / "d").mkdir()
    with tool_caller.root.bus.listen(events.append):
        for tool, arguments in (
            ("fs_write", {"path": "d", "contents": "1"}),
            ("fs_patch", {"path": "x", "contents": "@@ -1 +1 @@\n-a\n+b\n"}),
            ("fs_rm", {"path": "nothing"}),
        ):
            with pytest.raises(ToolFailed):
                await tool_caller(A, tool, **arguments)
    assert not [event for event in events if isinstance(event.data, FileChanged)]
