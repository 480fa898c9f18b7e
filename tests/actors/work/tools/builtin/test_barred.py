"""What the permissions deny is in no output of any built-in tool, and is touched by none."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from support.messages import has_message

from callboard.actors.engine.conversation.run import CallRounds
from callboard.actors.work.tools.builtin.table import SPECS, builtin_tools
from callboard.actors.work.tools.builtin.web import ADDRESSES
from callboard.actors.work.tools.permissions import Permissions
from callboard.protocol.chat import ToolCall
from callboard.protocol.kernel.questions import Question
from callboard.protocol.permissions import PermissionRule
from callboard.supervisors import Actor, Root

INSIDE = "GOLDEN-CONTENTS"
NAMES = ("golden-key", "golden.env", "golden.db")
RULE = PermissionRule(deny=("secrets/*", "golden.env", "shop/golden.db"))

Arguments = dict[str, Any]

TRIES: dict[str, list[Arguments]] = {
    "fs_cat": [{"path": path} for path in ("golden.env", "src/../golden.env", "l/golden-key", "to-env", "golden.en")],
    "fs_read": [{"path": path} for path in ("golden.env", "{project}/golden.env", "l/golden-key", "golden.e")],
    "fs_ls": [{}, {"path": "."}, {"path": "secrets"}, {"path": "l"}, {"path": "{project}"}, {"path": "shop"}],
    "fs_glob": [
        {"pattern": "*"},
        {"pattern": "**/golden*"},
        {"pattern": "*", "path": "secrets"},
        {"pattern": "*", "path": "l"},
        {"pattern": "*", "path": "shop"},
    ],
    "fs_grep": [
        {"pattern": "GOLDEN"},
        {"pattern": ".", "path": "{project}"},
        {"pattern": ".", "path": "secrets"},
        {"pattern": ".", "path": "l/golden-key"},
        {"pattern": ".", "path": "golden.env"},
        {"pattern": ".", "include": "golden*"},
    ],
    "fs_write": [{"path": "src/new", "contents": "x"}],
    "fs_patch": [{"path": "golden.env", "contents": "@@ -1 +1 @@\n-no\n+yes\n"}],
    "fs_edit": [{"path": "golden.env", "edits": [{"old_string": f"{INSIDE}\nno", "new_string": "yes"}]}],
    "fs_mkdir": [{"path": "made"}],
    "fs_rm": [{"path": "src/new"}],
    "execute_command": [{"command": "cat secrets/* golden.env; ls -R"}],
    "execute_py_code": [{"code": "print(open('golden.env').read())"}],
    "execute_sql_code": [
        {"code": "select * from t;", "database": path} for path in ("shop/golden.db", "shop/l.db", "golden.env")
    ],
    "fetch_url_via_curl": [{"url": "file://{project}/golden.env"}, {"url": "golden.env"}],
    "get_current_time": [{}],
    "get_current_weather": [{"location": "golden.env"}],
    "search_arxiv": [{"query": "golden.env"}],
    "search_wikipedia": [{"query": "golden.env"}],
    "web_search_loki": [{"query": "golden.env"}],
}
"""Of each built-in tool, calls that would show what is denied."""

PROGRAMS = {"execute_command", "execute_py_code"}
"""Tools that run any program, which no pattern of paths holds back. They ask first, and here there is no person."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with denied files in it, and links to them. The process stands elsewhere."""
    project = tmp_path / "project"
    files = ("secrets/golden-key", "golden.env", "src/a.py", "shop/list", "plain.txt")
    for name in files:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("plain GOLDEN\n" if name in files[2:] else f"{INSIDE}\n")
    with sqlite3.connect(project / "shop" / "golden.db") as database:
        database.execute(f"create table t as select '{INSIDE}' as x")
    database.close()
    (project / "l").symlink_to("secrets")
    (project / "to-env").symlink_to("golden.env")
    (project / "shop" / "l.db").symlink_to("golden.db")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    return project


class BuiltinCalls:
    """Plays calls of built-in tools as a model's are played."""

    def __init__(self, me: Actor, project: Path) -> None:
        self._me = me
        self.project = project
        nowhere = dict.fromkeys(ADDRESSES, "http://127.0.0.1:1")
        self._tools = builtin_tools({"PATH": "/usr/bin:/bin", **nowhere}, here=project)

    async def __call__(self, permissions: Permissions, tool: str, /, **arguments: Any) -> tuple[str, bool]:
        """What the model reads, and whether the call failed."""
        given = {
            name: value.format(project=self.project) if isinstance(value, str) and "{project}" in value else value
            for name, value in arguments.items()
        }
        calls = CallRounds(self._tools.values(), permissions)
        (turn,) = await calls.play(self._me, [ToolCall(id="c", name=tool, arguments=given)])
        return str(turn.content), turn.error

    def permissions(self, rules: dict[str, Any], **options: Any) -> Permissions:
        return Permissions(rules, here=self.project, **options)


@pytest.fixture
def builtin_calls(me: Actor, project: Path) -> BuiltinCalls:
    return BuiltinCalls(me, project)


def test_every_built_in_tool_has_its_tries() -> None:
    assert set(TRIES) == set(SPECS)


@pytest.mark.sample(10)
@pytest.mark.parametrize("said_of", ["*", "fs_*", "fs_cat", "fs_read", "fs_grep"])
@pytest.mark.parametrize("tool", TRIES)
async def test_denied_files_are_in_no_output_of_any_built_in_tool(
    builtin_calls: BuiltinCalls, tool: str, said_of: str
) -> None:
    permissions = builtin_calls.permissions({said_of: RULE}, yes=tool not in PROGRAMS)
    for arguments in TRIES[tool]:
        text, _ = await builtin_calls(permissions, tool, **arguments)
        assert INSIDE not in text, arguments
        said = " ".join(str(value) for value in arguments.values())
        shown = [name for name in NAMES if name in text and name not in said]
        assert not shown, (arguments, text)


async def test_without_the_rule_all_of_it_is_shown(builtin_calls: BuiltinCalls) -> None:
    """The tries are good ones."""
    free = builtin_calls.permissions({}, yes=True)
    readers = ("fs_cat", "fs_read", "fs_ls", "fs_glob", "fs_grep", "fs_edit", "fs_patch", "execute_sql_code")
    for tool in (*readers, *PROGRAMS):
        texts = [(await builtin_calls(free, tool, **arguments))[0] for arguments in TRIES[tool]]
        assert any(INSIDE in text or "golden-key" in text for text in texts), tool


async def test_what_is_not_denied_is_shown_as_before(builtin_calls: BuiltinCalls) -> None:
    permissions = builtin_calls.permissions({"fs_*": RULE})
    assert await builtin_calls(permissions, "fs_ls") == ("plain.txt\nshop/\nsrc/", False)
    assert set((await builtin_calls(permissions, "fs_glob", pattern="*"))[0].split("\n")) == {
        "plain.txt",
        "shop/list",
        "src/a.py",
    }
    assert (await builtin_calls(permissions, "fs_grep", pattern="GOLDEN"))[0].split("\n") == [
        "plain.txt:1:plain GOLDEN",
        "shop/list:1:plain GOLDEN",
        "src/a.py:1:plain GOLDEN",
    ]
    assert await builtin_calls(permissions, "fs_cat", path="src/a.py") == ("plain GOLDEN\n", False)


async def test_denied_files_take_no_place_among_the_hits(builtin_calls: BuiltinCalls) -> None:
    (builtin_calls.project / "secrets" / "many").write_text("plain GOLDEN\n" * 500)
    text, _ = await builtin_calls(builtin_calls.permissions({"fs_*": RULE}), "fs_grep", pattern="plain")
    assert text.count("\n") == 2
    assert "[cut" not in text


async def test_what_must_be_asked_for_is_left_out_of_what_was_not_asked_for(builtin_calls: BuiltinCalls) -> None:
    rules = {"fs_grep": PermissionRule(ask=("secrets/*",))}
    text, failed = await builtin_calls(builtin_calls.permissions(rules), "fs_grep", pattern="GOLDEN")
    assert "plain.txt" in text
    assert "golden-key" not in text
    assert not failed
    assert has_message(
        (await builtin_calls(builtin_calls.permissions(rules), "fs_grep", pattern=".", path="secrets"))[0],
        "work.tools.permissions.Permissions._ask",
    )
    assert (
        "golden-key"
        in (await builtin_calls(builtin_calls.permissions(rules, yes=True), "fs_grep", pattern="GOLDEN"))[0]
    )


async def test_what_is_allowed_below_what_is_denied_is_found(builtin_calls: BuiltinCalls) -> None:
    (builtin_calls.project / "secrets" / "pub").mkdir()
    (builtin_calls.project / "secrets" / "pub" / "x").write_text("plain GOLDEN\n")
    rules = {"fs_grep": PermissionRule(deny=("secrets/*",), allow=("secrets/pub/*",))}
    text, _ = await builtin_calls(builtin_calls.permissions(rules), "fs_grep", pattern="GOLDEN")
    assert "secrets/pub/x" in text
    assert "golden-key" not in text


async def test_a_directory_with_something_denied_in_it_is_not_removed(builtin_calls: BuiltinCalls) -> None:
    (builtin_calls.project / "attic").mkdir()
    (builtin_calls.project / "attic" / "keep").write_text("x")
    permissions = builtin_calls.permissions(
        {"fs_rm": PermissionRule(allow=("*",), deny=("attic/keep", "shop/golden.db"))}
    )
    for name in ("attic", "shop", "./shop/"):
        text, failed = await builtin_calls(permissions, "fs_rm", path=name)
        assert failed
        assert has_message(text, "work.tools.builtin.writing._remove.2")
    assert (builtin_calls.project / "attic" / "keep").exists()
    assert (await builtin_calls(permissions, "fs_rm", path="src"))[1] is False


async def test_a_hint_names_nothing_that_is_denied(builtin_calls: BuiltinCalls) -> None:
    text, _ = await builtin_calls(builtin_calls.permissions({"fs_*": RULE}), "fs_cat", path="golden.en")
    assert has_message(text, "work.tools.builtin.allowed_paths._words")
    assert "golden.env" not in text


class Answers:
    """A front end that does something while a person thinks, and then says yes."""

    name = "person"

    def __init__(self, root: Root, meanwhile: Any) -> None:
        self._root = root
        self._meanwhile = meanwhile

    def asked(self, question: Question) -> None:
        self._meanwhile()
        self._root.questions.answer(question.id, "yes", by="person")

    def closed(self, question_id: str, by: str) -> None:
        pass


async def test_what_is_written_is_what_a_person_was_asked_about(
    builtin_calls: BuiltinCalls, root: Root, project: Path
) -> None:
    """A link that is put in the way while a person thinks leads to nothing."""

    def swap() -> None:
        (project / "src" / "a.py").unlink()
        (project / "src" / "a.py").symlink_to("../plain.txt")

    with root.questions.attach(Answers(root, swap)):
        text, failed = await builtin_calls(builtin_calls.permissions({}), "fs_write", path="src/a.py", contents="EVIL")
    assert failed
    assert has_message(text, "work.tools.builtin.allowed_paths.AllowedPaths.find.7")
    assert (project / "plain.txt").read_text() == "plain GOLDEN\n"


async def test_a_directory_that_becomes_a_link_meanwhile_is_not_followed(
    builtin_calls: BuiltinCalls, root: Root, project: Path
) -> None:
    def swap() -> None:
        (project / "src").rename(project / "src2")
        (project / "src").symlink_to("secrets")

    rules = {"fs_*": RULE, "fs_write": "ask", "fs_rm": "ask"}
    for tool, more in (("fs_write", {"path": "src/new", "contents": "EVIL"}), ("fs_rm", {"path": "src/golden-key"})):
        with root.questions.attach(Answers(root, swap)):
            text, failed = await builtin_calls(builtin_calls.permissions(rules), tool, **more)
        assert failed
        assert has_message(text, "work.tools.builtin.allowed_paths.AllowedPaths.find.7")
        (project / "src").unlink()
        (project / "src2").rename(project / "src")
    assert [path.name for path in (project / "secrets").iterdir()] == ["golden-key"]


async def test_without_rules_links_inside_are_followed(builtin_calls: BuiltinCalls) -> None:
    assert (await builtin_calls(builtin_calls.permissions({}), "fs_cat", path="to-env"))[0] == f"{INSIDE}\n"


async def test_a_race_of_swapped_links_never_reads_what_is_denied(builtin_calls: BuiltinCalls, project: Path) -> None:
    """A link leads to an allowed and to a denied directory in turn, as fast as a thread can make it."""
    (project / "src" / "open").mkdir()
    (project / "src" / "open" / "golden-key").write_text("mine")
    (project / "src" / "d").symlink_to("open")
    over = threading.Event()

    def swapping() -> None:
        turn = 0
        while not over.is_set():
            (project / "src" / "new").symlink_to(("../secrets", "open")[turn % 2])
            (project / "src" / "new").rename(project / "src" / "d")
            turn += 1

    thread = threading.Thread(target=swapping)
    thread.start()
    rules = builtin_calls.permissions({"fs_*": PermissionRule(allow=("src/*",), deny=("secrets/*",))})
    try:
        told = [await builtin_calls(rules, "fs_cat", path="src/d/golden-key") for _ in range(100)]
        told += [await builtin_calls(rules, "fs_ls", path="src/d") for _ in range(100)]
        told += [await builtin_calls(rules, "fs_write", path="src/d/golden-key", contents="EVIL") for _ in range(50)]
    finally:
        over.set()
        thread.join()
    assert not [text for text, _ in told if INSIDE in text]
    assert (project / "secrets" / "golden-key").read_text() == f"{INSIDE}\n"
    assert [path.name for path in (project / "secrets").iterdir()] == ["golden-key"]
