"""What a tool wants to change is shown as a diff with the question whether it may."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from support.messages import fragment, says
from support.waiting import PATIENCE

from callboard.actors.io.secret_redaction import handed_out
from callboard.actors.work.tools.builtin import writing
from callboard.actors.work.tools.builtin.table import builtin_tools
from callboard.actors.work.tools.permissions import Permissions
from callboard.protocol.errors import ToolFailed
from callboard.protocol.kernel.questions import Answer, Question
from callboard.protocol.permissions import PermissionRule
from callboard.supervisors import Actor, Root


async def asked(project: Path, tool: str, rules: dict[str, Any] | None = None, **arguments: Any) -> Question:
    """The question that a call leads to; it is answered with no."""
    error, (question,) = await called(project, tool, rules, **arguments)
    assert re.search(says("work.tools.permissions.Permissions.admit.2"), str(error))
    return question


async def called(
    project: Path, tool: str, rules: dict[str, Any] | None = None, **arguments: Any
) -> tuple[ToolFailed, list[Question]]:
    """What a call is refused with, and the questions that were asked; they are answered with no."""
    permissions = Permissions(rules, here=project)
    spec = builtin_tools({}, [project], here=project)[tool]
    seen: list[Question] = []
    errors: list[ToolFailed] = []

    def no(question: Question) -> Answer:
        seen.append(question)
        return Answer(question=question.id, value="no")

    async with Root() as root:

        async def call(me: Actor) -> None:
            with pytest.raises(ToolFailed) as refused:
                await permissions.admit(me, spec, arguments)
            errors.append(refused.value)

        async def above(me: Actor) -> None:
            me.policy = no
            await me.spawn(call, link=False).result()

        await root.spawn(above, name="run-a", link=False).result()
    return errors[0], seen


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """With one file."""
    project = (tmp_path / "project").resolve()
    project.mkdir()
    (project / "x.py").write_text("one\ntwo\n")
    return project


async def test_writing_patching_and_removing_show_the_diff(project: Path) -> None:
    question = await asked(project, "fs_write", path="x.py", contents="one\n2\n")
    diff = "--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n one\n-two\n+2"
    assert (question.text, question.diff) == (f"Allow fs_write?\npath: x.py\n{diff}", diff)
    assert question.before_diff == "Allow fs_write?\npath: x.py"
    patch = "@@ -7,2 +7,2 @@\n one\n-two\n+2\n"
    assert (await asked(project, "fs_patch", path="x.py", contents=patch)).diff == diff
    edits = [{"old_string": "two", "new_string": "2"}]
    assert (await asked(project, "fs_edit", path="x.py", edits=edits)).diff == diff
    made = await asked(project, "fs_write", path="new/y", contents="1\n")
    assert made.diff == "--- /dev/null\n+++ b/new/y\n@@ -0,0 +1 @@\n+1"
    gone = await asked(project, "fs_rm", path="x.py")
    assert gone.diff == "--- a/x.py\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-one\n-two"
    assert list(project.iterdir()) == [project / "x.py"]


async def test_without_a_diff_the_arguments_are_shown(project: Path) -> None:
    (project / "dir").mkdir()
    for tool, arguments in (
        ("fs_write", {"path": "x.py", "contents": "one\ntwo\n"}),
        ("fs_write", {"path": "dir", "contents": "1"}),
        ("fs_rm", {"path": "dir"}),
        ("fs_rm", {"path": "nothing"}),
        ("fs_mkdir", {"path": "new"}),
    ):
        question = await asked(project, tool, **arguments)
        assert question.diff == ""
        assert all(arguments[name].split("\n")[0] in question.text for name in arguments)


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("fs_patch", {"path": "x.py", "contents": "@@ -1 +1 @@\n-three\n+3\n"}, "writing.Rewrite.applied"),
        ("fs_patch", {"path": "x.py", "contents": "no diff"}, "writing.Rewrite.of"),
        ("fs_patch", {"path": "y.py", "contents": "@@ -1 +1 @@\n-one\n+1\n"}, "allowed_paths._words"),
        ("fs_patch", {"path": "../x.py", "contents": "@@ -1 +1 @@\n-one\n+1\n"}, "allowed_paths.AllowedPaths.find.5"),
        ("fs_edit", {"path": "x.py", "edits": [{"old_string": "3", "new_string": "4"}]}, "writing.Rewrite.applied"),
        ("fs_edit", {"path": "x.py", "edits": [{"old_string": "o", "new_string": "0"}]}, "writing.Rewrite.applied"),
        ("fs_edit", {"path": "y.py", "edits": [{"old_string": "o", "new_string": "0"}]}, "allowed_paths._words"),
        ("fs_edit", {"path": "dir", "edits": [{"old_string": "o", "new_string": "0"}]}, "writing.status_of"),
    ],
)
async def test_a_change_that_cannot_apply_goes_back_before_anybody_is_asked(
    project: Path, tool: str, arguments: dict[str, Any], message: str
) -> None:
    (project / "dir").mkdir()
    error, questions = await called(project, tool, **arguments)
    assert re.search(says(f"work.tools.builtin.{message}"), str(error))
    assert questions == []


async def test_the_reason_quotes_no_file_that_reading_tools_must_ask_for(project: Path) -> None:
    arguments = {"path": "x.py", "edits": [{"old_string": "  one", "new_string": "1"}]}
    error, questions = await called(project, "fs_edit", {"fs_read": PermissionRule(ask=("x.*",))}, **arguments)
    assert "two" not in str(error)
    assert len(questions) == 1
    error, questions = await called(project, "fs_edit", {"fs_read": PermissionRule(deny=("x.*",))}, **arguments)
    assert re.search(says("work.tools.permissions.Permissions.admit"), str(error))
    assert questions == []


@pytest.mark.parametrize("rule", ["deny", PermissionRule(deny=("x.*",))])
async def test_what_no_tool_may_show_no_question_shows(project: Path, rule: Any) -> None:
    question = await asked(project, "fs_write", {"fs_cat": rule}, path="x.py", contents="1")
    assert question.diff == ""
    assert "two" not in question.text
    (project / "y.py").write_text("y\n")
    other = await asked(project, "fs_write", {"fs_cat": PermissionRule(deny=("x.*",))}, path="y.py", contents="1")
    assert "-y" in other.diff


async def test_secrets_are_hidden_and_long_diffs_are_cut(project: Path) -> None:
    (project / "x.py").write_text("key = hunter2-hunter2\n")
    handed_out("hunter2-hunter2")
    question = await asked(project, "fs_write", path="x.py", contents="line\n" * 5_000)
    assert "-key = [redacted]" in question.diff
    assert question.diff.endswith(fragment("work.tools.changes.diff._bounded", left="4602"))
    assert len(question.diff) < writing.MOST_CHARACTERS + 200


async def test_a_disk_that_does_not_answer_does_not_hold_the_question_up(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def hangs(*_: Any) -> str:
        over.wait(PATIENCE)
        return "never"

    monkeypatch.setattr(writing, "WITHIN", 0.05)
    monkeypatch.setattr(writing, "_preview", hangs)
    try:
        assert (await asked(project, "fs_write", path="x.py", contents="1")).diff == ""
    finally:
        over.set()
