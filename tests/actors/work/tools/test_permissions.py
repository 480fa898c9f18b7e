"""Who may do what without asking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from support.messages import says

from callboard.actors.work.tools.permissions import Permissions
from callboard.actors.work.tools.tool import Arguments, Effect, Origin, Tool, ToolSpec
from callboard.protocol.errors import ToolFailed
from callboard.protocol.kernel.questions import Question
from callboard.protocol.permissions import PermissionRule
from callboard.supervisors import Actor, Root


async def nothing(me: Actor, arguments: Arguments) -> None:
    return None


def tool(name: str = "t", effect: Effect = "none", origin: Origin = "builtin", **more: Any) -> Tool:
    return Tool(spec=ToolSpec(name=name), run=nothing, effect=effect, origin=origin, **more)


COMMAND = tool("execute_command", "execute", subject="command", shell=True)
WRITE = tool("fs_write", "write", subject="path")


@pytest.mark.parametrize(
    ("effect", "origin", "verdict"),
    [
        ("none", "builtin", "allow"),
        ("read", "builtin", "allow"),
        ("write", "builtin", "ask"),
        ("execute", "builtin", "ask"),
        ("execute", "file", "allow"),
        ("execute", "function", "allow"),
        ("none", "family", "allow"),
        ("execute", "mcp", "ask"),
    ],
)
def test_by_default_our_tools_that_write_or_execute_ask(effect: Effect, origin: Origin, verdict: str) -> None:
    assert Permissions().verdict(tool("t", effect, origin), {}) == verdict


def test_yes_answers_every_ask_and_no_deny() -> None:
    permissions = Permissions({"fs_rm": "deny"}, yes=True)
    assert permissions.verdict(WRITE, {"path": "a"}) == "allow"
    assert permissions.verdict(tool("fs_rm", "write"), {}) == "deny"


def test_allow_wins_over_the_settings() -> None:
    assert Permissions({"fs_write": "deny"}, allowed=["fs_write"]).verdict(WRITE, {"path": "a"}) == "allow"


def test_an_agents_file_can_only_be_stricter() -> None:
    permissions = Permissions({"fs_cat": "allow"})
    assert permissions.verdict(WRITE, {"path": "a"}, {"fs_write": "allow"}) == "ask"
    assert permissions.verdict(tool("fs_cat", "read"), {}, {"fs_cat": "deny"}) == "deny"
    assert Permissions(allowed=["fs_write"]).verdict(WRITE, {"path": "a"}, {"fs_write": "deny"}) == "deny"


def test_a_full_name_comes_before_the_longest_pattern_of_names() -> None:
    permissions = Permissions({"*": "deny", "fs_*": "ask", "fs_cat": "allow"})
    assert permissions.verdict(tool("fs_cat", "read"), {}) == "allow"
    assert permissions.verdict(tool("fs_ls", "read"), {}) == "ask"
    assert permissions.verdict(tool("other", "none"), {}) == "deny"


RULES = {"execute_command": PermissionRule(ask=("*",), allow=("git status*", "ls*"), deny=("rm *", "git push*"))}


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("git status", "allow"),
        ("git status --short", "allow"),
        ("ls -la", "allow"),
        ("cat x", "ask"),
        ("git status; rm -rf .", "deny"),
        ("git status && curl x | sh", "ask"),
        ("git status $(rm -rf .)", "deny"),
        ("git status `reboot`", "ask"),
        ("git status > /etc/passwd", "ask"),
        ("git status\nreboot", "ask"),
        ("ls {a,b}", "allow"),
        ("{rm,-rf,x}", "ask"),
        ("rm -rf /", "deny"),
        ("  rm -rf /", "deny"),
        ("true || git push --force", "deny"),
        ("gitstatus", "ask"),
        ("rm\t-rf x", "deny"),
        ("X=1 rm -rf x", "deny"),
        ("if true; then rm -rf x; fi", "deny"),
        ("! rm x", "deny"),
    ],
)
def test_an_allowed_command_allows_no_other_one_behind_it(command: str, verdict: str) -> None:
    assert Permissions(RULES).verdict(COMMAND, {"command": command}) == verdict


@pytest.mark.parametrize(
    ("path", "verdict"),
    [
        ("src/a.py", "allow"),
        ("./src/a.py", "allow"),
        ("src/../secrets", "ask"),
        ("src/../../x", "ask"),
        ("/etc/passwd", "ask"),
        ("src/.env", "deny"),
        ("{cwd}/src/a.py", "allow"),
        ("{cwd}/src/../x", "ask"),
        ("/{cwd}/src/.env", "deny"),
        ("src/link/x", "deny"),
        ("src/out/x", "ask"),
        ("private", "deny"),
        ("src/[id]/page.ts", "deny"),
    ],
)
def test_a_path_is_made_plain_before_it_is_compared(
    path: str, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, target in (("link", "../private"), ("out", "/usr")):
        (tmp_path / "src").mkdir(exist_ok=True)
        (tmp_path / "src" / name).symlink_to(target)
    (tmp_path / "private").mkdir()
    rule = PermissionRule(allow=("src/*",), deny=("src/.env", "private/*", "src/[id]/*"))
    permissions = Permissions({"fs_write": rule})
    assert permissions.verdict(WRITE, {"path": path.format(cwd=tmp_path)}) == verdict


def test_without_a_subject_patterns_see_the_json_of_all_arguments() -> None:
    permissions = Permissions({"t": PermissionRule(deny=('*"danger"*',))})
    assert permissions.verdict(tool(), {"mode": "danger"}) == "deny"
    assert permissions.verdict(tool(), {"mode": "calm"}) == "allow"


class Person:
    """A front end that gives these answers in turn."""

    name = "person"

    def __init__(self, root: Root, *answers: str) -> None:
        self.root = root
        self.answers = list(answers)
        self.asked_for: list[Question] = []

    def asked(self, question: Question) -> None:
        self.asked_for.append(question)
        if self.answers:
            self.root.questions.answer(question.id, self.answers.pop(0), by="person")

    def closed(self, question_id: str, by: str) -> None:
        pass


async def test_nobody_there_is_a_no_that_says_how_to_give_leave(me: Actor) -> None:
    with pytest.raises(ToolFailed, match=says("work.tools.permissions.Permissions._ask", name_2="fs_write")):
        await Permissions().admit(me, WRITE, {"path": "a"})


async def test_a_person_is_shown_the_call_and_says_yes(root: Root, me: Actor) -> None:
    person = Person(root, "yes")
    with root.questions.attach(person):
        await Permissions().admit(me, WRITE, {"path": "a", "contents": "x" * 5_000})
    (question,) = person.asked_for
    assert question.permission == "fs_write"
    assert question.text.startswith("Allow fs_write?\npath: a\ncontents: xxx")
    assert len(question.text) < 4_200
    assert question.options == ("yes", "always", "no")


async def test_the_question_names_the_construct_that_is_not_understood(root: Root, me: Actor) -> None:
    rules = {"execute_command": PermissionRule(allow=("ls *", "sed *"))}
    person = Person(root, "yes", "yes", "yes")
    with root.questions.attach(person):
        await Permissions(rules).admit(me, COMMAND, {"command": "ls $(make)"})
        await Permissions(rules).admit(me, COMMAND, {"command": "sed -i s/a/b/ x"})
        await Permissions(rules).admit(me, COMMAND, {"command": "make"})
    first, second, third = [question.text.split("\n")[2:] for question in person.asked_for]
    assert len(first) == len(second) == 1
    assert "command substitution `$(...)`" in first[0]
    assert "`-i`" in second[0]
    assert third == []
    with pytest.raises(ToolFailed) as refused:
        await Permissions(rules).admit(me, COMMAND, {"command": "ls `make`"})
    assert "backquotes" in str(refused.value)


def test_a_line_that_an_agent_above_may_deny_is_asked_about() -> None:
    below = Permissions(allowed=["execute_command"]).below(
        {"execute_command": PermissionRule(deny=("rm *",), ask=("make *",))}
    )
    assert below.verdict(COMMAND, {"command": "rm x"}) == "deny"
    assert below.verdict(COMMAND, {"command": "ls $(make)"}) == "ask"
    assert below.verdict(COMMAND, {"command": "make x"}) == "allow"
    assert below.verdict(COMMAND, {"command": "ls -l"}) == "allow"


async def test_a_person_is_told_where_links_take_a_path(root: Root, me: Actor, tmp_path: Path) -> None:
    (tmp_path / "a\nb").mkdir()
    (tmp_path / "l").symlink_to("a\nb")
    person = Person(root, "yes", "yes")
    with root.questions.attach(person):
        await Permissions(here=tmp_path).admit(me, WRITE, {"path": "l/x"})
        await Permissions(here=tmp_path).admit(me, WRITE, {"path": "./m/../x"})
    assert [question.text for question in person.asked_for] == [
        f"Allow fs_write?\npath: l/x\nleads to: {tmp_path}/a\n    | b/x",
        "Allow fs_write?\npath: ./m/../x",
    ]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("no", says("work.tools.permissions.Permissions.admit.2")),
        ("not that file", says("work.tools.permissions.Permissions.admit.2", why=": not that file")),
    ],
)
async def test_a_no_is_told_to_the_model_with_the_reason(root: Root, me: Actor, answer: str, told: str) -> None:
    with root.questions.attach(Person(root, answer)), pytest.raises(ToolFailed, match=told):
        await Permissions().admit(me, WRITE, {"path": "a"})


async def test_always_holds_for_the_tool_and_for_what_is_asked_already(root: Root, me: Actor) -> None:
    permissions = Permissions()
    person = Person(root)
    admitted: list[int] = []

    async def admit(number: int) -> None:
        await permissions.admit(me, WRITE, {"path": str(number)})
        admitted.append(number)

    with root.questions.attach(person):
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(admit, number)
            await trio.testing.wait_all_tasks_blocked()
            assert len(person.asked_for) == 3
            root.questions.answer(person.asked_for[1].id, "always", by="person")
        await admit(3)
    assert sorted(admitted) == [0, 1, 2, 3]
    assert len(person.asked_for) == 3


async def test_always_changes_no_deny_and_answers_nothing_but_permissions(root: Root, me: Actor) -> None:
    rule = PermissionRule(ask=("*",), deny=("rm *",))
    permissions = Permissions({"execute_command": rule})
    person = Person(root)
    with root.questions.attach(person):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(permissions.admit, me, COMMAND, {"command": "ls"})
            # Another question of the same tool's own, as `guard_operation` asks it.
            nursery.start_soon(me.ask_person, Question(id="guard", actor="", text="Really delete?", people=True))
            await trio.testing.wait_all_tasks_blocked()
            (asked,) = (each for each in person.asked_for if each.permission)
            root.questions.answer(asked.id, "always", by="person")
            await trio.testing.wait_all_tasks_blocked()
            assert [question.id for question in root.questions.open] == ["guard"]
            root.questions.answer("guard", "no")
        await permissions.admit(me, COMMAND, {"command": "ls -la"})
        with pytest.raises(ToolFailed, match=says("work.tools.permissions.Permissions.admit")):
            await permissions.admit(me, COMMAND, {"command": "rm victim"})


async def test_always_of_one_agent_does_not_answer_what_another_agents_file_denies(root: Root, me: Actor) -> None:
    permissions = Permissions()
    with root.questions.attach(Person(root, "always")):
        await permissions.admit(me, WRITE, {"path": "a"})
    with pytest.raises(ToolFailed, match=says("work.tools.permissions.Permissions.admit")):
        await permissions.admit(me, WRITE, {"path": "a"}, {"fs_write": "deny"})


async def test_what_is_to_be_run_is_shown_whole_or_not_run(root: Root, me: Actor) -> None:
    person = Person(root, "no")
    command = "echo " + "a" * 5_000 + "\ntouch EVIL\n" + "b" * 5_000
    with root.questions.attach(person):
        with pytest.raises(ToolFailed, match=says("work.tools.permissions.Permissions.admit.2")):
            await Permissions().admit(me, COMMAND, {"command": command})
        assert "\n    | touch EVIL\n" in person.asked_for[0].text
        with pytest.raises(
            ToolFailed, match=says("work.tools.permissions._readable_arguments", text=20000, name_2="command")
        ):
            await Permissions().admit(me, COMMAND, {"command": "x" * 20_000})
    assert len(person.asked_for) == 1


async def test_no_line_of_a_value_passes_for_an_argument(root: Root, me: Actor) -> None:
    person = Person(root, "yes")
    with root.questions.attach(person):
        await Permissions().admit(me, WRITE, {"contents": "x" * 300 + "\npath: harmless.txt", "path": "evil.txt"})
    lines = person.asked_for[0].text.splitlines()
    assert lines[1] == "path: evil.txt"
    assert [line for line in lines if line.startswith("path:")] == ["path: evil.txt"]


# --- where a call is judged -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stands", [".", "elsewhere", "secrets", "/"])
def test_the_verdict_is_the_same_wherever_the_process_stands(
    stands: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    for name in ("src", "secrets", "elsewhere"):
        (project / name).mkdir(parents=True)
    (project / "src" / "l").symlink_to("../secrets")
    monkeypatch.chdir(project / stands)
    rule = PermissionRule(allow=("src/*",), deny=("secrets/*", ".env"))
    permissions = Permissions({"fs_write": rule}, here=project)
    said = {
        path: permissions.verdict(WRITE, {"path": path})
        for path in ("src/a", f"{project}/src/a", "secrets/a", f"{project}/secrets/a", "src/l/a", "src/../.env", "x")
    }
    assert list(said.values()) == ["allow", "allow", "deny", "deny", "deny", "deny", "ask"]


def test_of_a_tool_without_a_subject_a_deny_sees_every_text_as_it_is_and_as_a_path(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "l").symlink_to("secrets")
    (tmp_path / "src").mkdir()
    stranger = tool("files__read", origin="mcp")
    permissions = Permissions({"files__*": PermissionRule(deny=("secrets/*", "drop table*"))}, here=tmp_path)
    for arguments in (
        {"path": "secrets/key"},
        {"path": "./src/../secrets/key"},
        {"path": "l/key"},
        {"path": f"{tmp_path}/l/key"},
        {"path": f"file://{tmp_path}/secrets/key"},
        {"path": f"FILE://localhost{tmp_path}/%73ecrets/key"},
        {"path": f"file:{tmp_path}/secrets%2Fkey"},
        {"paths": ["src/a", "secrets/key"]},
        {"edits": [{"in": {"file": "l/key"}}]},
        {"sql": "drop table x"},
    ):
        assert permissions.verdict(stranger, arguments) == "deny", arguments
    for arguments in (
        {"path": "src/a"},
        {"path": "secretsx"},
        {"text": "tell me about secrets"},
        {"url": "https://example.org/secrets/key"},
        {"n": 7},
        {},
    ):
        assert permissions.verdict(stranger, arguments) == "allow", arguments


def test_a_deny_of_the_whole_directory_makes_no_path_of_words(tmp_path: Path) -> None:
    permissions = Permissions({"web__*": PermissionRule(deny=(f"{tmp_path}/*",))}, here=tmp_path)
    assert permissions.verdict(tool("web__search", origin="mcp"), {"query": "tcp/ip or udp"}) == "allow"
    assert permissions.verdict(tool("web__search", origin="mcp"), {"query": f"{tmp_path}/x"}) == "deny"


def test_an_allow_of_a_tool_without_a_subject_is_matched_with_all_arguments_only(tmp_path: Path) -> None:
    permissions = Permissions({"t": PermissionRule(allow=("src/*",), ask="*")}, here=tmp_path)
    assert permissions.verdict(tool(), {"path": "src/a"}) == "ask"


def test_a_file_tool_with_a_path_is_judged_by_its_other_texts_too(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    theirs = tool("fs_cat", origin="file", subject="path", reads=True)
    permissions = Permissions({"fs_cat": PermissionRule(deny=("secrets/*",), allow=("src/*",))}, here=tmp_path)
    assert permissions.verdict(theirs, {"path": "src/a"}) == "allow"
    assert permissions.verdict(theirs, {"path": "src/a", "also": ["./secrets/key"]}) == "deny"


def test_a_name_in_another_case_is_denied_where_it_is_the_same_file(tmp_path: Path) -> None:
    (tmp_path / ".env").touch()
    permissions = Permissions({"fs_write": PermissionRule(deny=(".env",), allow="*")}, here=tmp_path)
    assert permissions.verdict(WRITE, {"path": ".ENV"}) == "allow"
    (tmp_path / ".ENV").hardlink_to(tmp_path / ".env")
    assert permissions.verdict(WRITE, {"path": ".ENV"}) == "deny"


def test_what_a_pattern_denies_to_one_reader_is_denied_to_the_others_and_to_no_writer(tmp_path: Path) -> None:
    permissions = Permissions({"fs_read": PermissionRule(deny=(".env",), ask=("private/*",))}, here=tmp_path, yes=True)
    grep = tool("fs_grep", "read", subject="path", reads=True)
    assert permissions.verdict(grep, {"path": ".env"}) == "deny"
    assert permissions.verdict(grep, {"path": "x"}) == "allow"
    assert permissions.verdict(WRITE, {"path": ".env"}) == "allow"
    strict = Permissions({"fs_read": PermissionRule(deny=(".env",), ask=("private/*",))}, here=tmp_path)
    assert strict.verdict(grep, {"path": "private/x"}) == "ask"
    assert Permissions({"fs_read": "deny"}, here=tmp_path).verdict(grep, {"path": "x"}) == "allow"


# --- what the file of an agent denies to those below it -------------------------------------------------------


def test_a_deny_holds_below_and_nothing_else_does() -> None:
    parent = {
        "fs_write": "deny",
        "fs_cat": "ask",
        "fs_rm": "allow",
        "execute_command": PermissionRule(ask=("*",), deny=("rm *",)),
    }
    below = Permissions(yes=True).below(parent)  # type: ignore[arg-type]  # literal texts
    assert below.verdict(WRITE, {"path": "a"}, {"fs_write": "allow"}) == "deny"
    assert below.verdict(COMMAND, {"command": "rm x"}) == "deny"
    assert below.verdict(COMMAND, {"command": "ls"}) == "allow"
    strict = Permissions().below(parent)  # type: ignore[arg-type]  # literal texts
    assert strict.verdict(tool("fs_cat", "read"), {"path": "a"}) == "allow"
    assert strict.verdict(tool("fs_rm", "write"), {"path": "a"}) == "ask"
    assert Permissions(allowed=["fs_write"]).below(parent).verdict(WRITE, {"path": "a"}) == "deny"  # type: ignore[arg-type]


def test_what_is_denied_on_every_floor_adds_up() -> None:
    run = Permissions(yes=True)
    second = run.below({"fs_write": "deny"}).below({"fs_*": "allow", "fs_rm": "deny"})
    assert second.verdict(WRITE, {"path": "a"}) == "deny"
    assert second.verdict(tool("fs_rm", "write"), {}) == "deny"
    assert run.verdict(WRITE, {"path": "a"}) == "allow"


async def test_always_below_is_always_in_the_whole_run_but_where_it_is_denied(root: Root, me: Actor) -> None:
    run = Permissions()
    with root.questions.attach(Person(root, "always")):
        await run.below({"fs_rm": "deny"}).admit(me, WRITE, {"path": "a"})
    await run.admit(me, WRITE, {"path": "b"})
    with pytest.raises(ToolFailed, match=says("work.tools.permissions.Permissions.admit")):
        await run.below({"fs_write": "deny"}).admit(me, WRITE, {"path": "a"})
