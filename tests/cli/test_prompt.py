"""Questions at the terminal: real prompts, driven by real key presses through a pipe."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import NamedTuple

import msgspec
import pytest
import trio
from prompt_toolkit.application import create_app_session
from prompt_toolkit.formatted_text import fragment_list_to_text, to_formatted_text
from prompt_toolkit.input import Input, create_pipe_input
from prompt_toolkit.input.base import PipeInput
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output import DummyOutput, Output
from prompt_toolkit.utils import get_cwidth
from support.messages import has_message

from callboard.cli.render.dialog import Dialog, TerminalPrompts, WithdrawnError
from callboard.cli.render.menu import Menu
from callboard.protocol.errors import NobodyToAsk
from callboard.protocol.kernel.questions import Answer, Question
from callboard.supervisors import Actor, Root

UP, DOWN, ENTER, CTRL_C, CTRL_D = "\x1b[A", "\x1b[B", "\r", "\x03", "\x04"
PASTE = "\x1b[200~{}\x1b[201~"


class Person(NamedTuple):
    """Somebody at a terminal: presses keys, sees the screen's scrollback."""

    keys: PipeInput
    screen: io.StringIO

    @property
    def terminal(self) -> tuple[Input, Output, io.StringIO]:
        return (self.keys, DummyOutput(), self.screen)

    def press(self, *keys: str) -> None:
        self.keys.send_text("".join(keys))

    async def sees(self, text: str) -> None:
        while text not in self.screen.getvalue():
            await trio.lowlevel.checkpoint()


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Iterator[Person]:
    monkeypatch.setenv("NO_COLOR", "1")
    with create_pipe_input() as keys:
        yield Person(keys, io.StringIO())


def choice(**more: object) -> Question:
    return Question(
        **{"id": "q1", "actor": "", "text": "Send it?", "kind": "choice", "options": ("yes", "no", "later")} | more
    )


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        ([ENTER], "yes"),
        ([DOWN, ENTER], "no"),
        ([DOWN, DOWN, UP, ENTER], "no"),
        (["3", ENTER], "later"),
        (["3", "1\x7f\x7f", UP, ENTER, "x", ENTER], "x"),
        ([UP, ENTER], "yes"),
        (["4", ENTER, "my own", ENTER], "my own"),
        (["4", ENTER, ENTER, UP, ENTER], "later"),
        (["oops", ENTER], "oops"),
        ([" later on", ENTER], "later on"),
        (["3 times", ENTER], "3 times"),
        (["12", ENTER], "12"),
        (["oops", UP, "2", ENTER], "no"),
        ([PASTE.format("yes\nand no"), ENTER], "yes\nand no"),
        (["Later", ENTER], "later"),
        (["n", ENTER], "no"),
    ],
)
@pytest.mark.sample(6)
def test_a_choice_is_made_with_arrows_or_a_number_and_what_is_typed_is_an_answer(
    person: Person, keys: list[str], answer: str
) -> None:
    person.press(*keys)
    assert Dialog(choice(), terminal=person.terminal).run() == answer


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["l", ENTER], "later"),
        (["LAT", ENTER], "later"),
        (["oops", ENTER, ENTER, "3", ENTER], "later"),
        (["later on", ENTER, UP, ENTER], "later"),
        (["nope\x7f\x7f", ENTER], "no"),
        (["4", ENTER, DOWN, DOWN, ENTER], "no"),
        (["12", ENTER, "2", ENTER], "no"),
        ([PASTE.format("yes, or not"), ENTER, "2", ENTER], "no"),
    ],
)
def test_without_free_text_only_what_begins_one_entry_goes_there(person: Person, keys: list[str], answer: str) -> None:
    person.press(*keys)
    assert Dialog(choice(free=False), terminal=person.terminal).run() == answer


@pytest.mark.parametrize(
    ("keys", "hint"),
    [
        ("", "arrows or a number, then enter"),
        ("oops", "'oops' matches none of these: choose with the arrows or a number, then enter"),
        ("oops\r", "choose with the arrows or a number, then enter"),
        ("oops\x1b[A", "arrows or a number, then enter"),
    ],
)
def test_text_that_fits_no_entry_says_what_to_do(person: Person, keys: str, hint: str) -> None:
    menu = Menu(("yes", "no"))
    person.press(keys, CTRL_D)
    with create_app_session(person.keys, DummyOutput()), pytest.raises(EOFError):
        menu.application().run()
    assert menu.hint == hint


def test_entries_break_between_words_and_below_their_text(person: Person) -> None:
    menu = Menu(("short", "kept in " + "a_long_directory/" * 3 + " unencrypted, and only you can read that file"))
    with create_app_session(person.keys, DummyOutput()) as session:
        assert session.output.get_size().columns == 80
        assert isinstance(menu.rows.content, FormattedTextControl)
        shown = to_formatted_text(menu.rows.content.text)
    rows = fragment_list_to_text(shown).splitlines()
    assert rows == [
        "  > 1. short",
        "    2. kept in a_long_directory/a_long_directory/a_long_directory/ unencrypted,",
        "       and only you can read that file",
    ]


@pytest.mark.parametrize(
    ("keys", "default", "answer"),
    [
        (["n", ENTER], None, "no"),
        (["yes", ENTER], None, "yes"),
        ([ENTER, "oops", ENTER, UP, ENTER], None, "no"),
        ([ENTER], "no", "no"),
        ([ENTER], "yes", "yes"),
    ],
)
def test_confirm_answers_yes_or_no_and_enter_alone_only_the_default(
    person: Person, keys: list[str], default: str | None, answer: str
) -> None:
    person.press(*keys)
    question = Question(id="q", actor="", text="?", kind="confirm", default=default)
    assert Dialog(question, terminal=person.terminal).run() == answer
    assert ("default" in person.screen.getvalue()) == (default is not None)


def test_a_checkbox_answers_a_list_in_the_order_of_the_options(person: Person) -> None:
    question = Question(id="q", actor="", text="?", kind="checkbox", options=("a", "b", "c"))
    person.press(DOWN, DOWN, " ", UP, UP, " ", ENTER)
    assert Dialog(question, terminal=person.terminal).run() == ["a", "c"]


def test_letters_tick_nothing_and_accept_nothing(person: Person) -> None:
    question = Question(id="q", actor="", text="?", kind="checkbox", options=("a", "b", "c"))
    person.press("a ", ENTER, DOWN, DOWN, " ", ENTER)
    assert Dialog(question, terminal=person.terminal).run() == ["b"]


@pytest.mark.parametrize(("keys", "answer"), [(["hello", ENTER], "hello"), ([ENTER], "the default")])
def test_text_is_typed_and_empty_means_the_default(person: Person, keys: list[str], answer: str) -> None:
    person.press(*keys)
    question = Question(id="q", actor="", text="Name?", default="the default")
    assert Dialog(question, terminal=person.terminal).run() == answer


def test_the_scrollback_keeps_question_rule_problem_and_answer_harmless(person: Person) -> None:
    person.press("x", ENTER)
    question = Question(
        id="q", actor="", node="ask", text="Your\x1b[2J name?\nreally", rule="at least 3", problem="too short"
    )
    Dialog(question, more=2, terminal=person.terminal).run()
    assert person.screen.getvalue() == (
        "? ask asks (2 more waiting)\n  Your\\x1b[2J name?\n  really\n  too short\n  (at least 3)\n  = x\n"
    )


@pytest.mark.parametrize("kind", ["choice", "text"])
@pytest.mark.parametrize(("key", "error"), [(CTRL_C, KeyboardInterrupt), (CTRL_D, EOFError)])
def test_ctrl_c_and_ctrl_d_are_told_apart(person: Person, kind: str, key: str, error: type[BaseException]) -> None:
    person.press(key)
    with pytest.raises(error):
        Dialog(choice(kind=kind), terminal=person.terminal).run()


def test_a_dialog_closed_before_it_began_does_not_begin(person: Person) -> None:
    dialog = Dialog(choice(), terminal=person.terminal)
    dialog.close()
    with pytest.raises(WithdrawnError):
        dialog.run()


def test_a_secret_is_neither_echoed_nor_kept(person: Person) -> None:
    shown: list[str] = []

    class Recording(DummyOutput):
        def write(self, data: str) -> None:
            shown.append(data)
            if "".join(shown).rstrip().endswith(("*******", "hunter2")):
                person.press(ENTER)

    person.press("hunter2")
    question = Question(id="q", actor="", text="Password?", secret=True, default="old")
    assert Dialog(question, terminal=(person.keys, Recording(), person.screen)).run() == "hunter2"
    assert person.screen.getvalue() == "? A question\n  Password?\n  = (not shown)\n"
    assert "hunter2" not in "".join(shown)


def permission(text: str = "Allow execute_command?\ncommand: ls") -> Question:
    return choice(
        actor="/run-1/boss/children/agent_kid_1/kid/execute_command",
        text=text,
        options=("yes", "always", "no"),
        permission="execute_command",
    )


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        ([ENTER], "no"),
        ([UP, ENTER], "always"),
        (["1", ENTER], "yes"),
        (["3", "use fs_ls", ENTER], "use fs_ls"),
        (["3", ENTER], "no"),
        (["no way, wrong place", ENTER], "no way, wrong place"),
        (["a", ENTER], "a"),
    ],
)
def test_a_permission_shows_who_wants_to_do_what(person: Person, keys: list[str], answer: str) -> None:
    person.press(*keys)
    assert Dialog(permission(), terminal=person.terminal).run() == answer
    shown = person.screen.getvalue()
    assert shown.startswith("? agent_kid_1 asks\n  Allow execute_command?\n  command: ls\n")


def stored(**more: object) -> Question:
    pattern = {"pattern": "git log", "options": ("yes", "run", "always", "no")} | more
    return msgspec.structs.replace(permission("Allow execute_command?\ncommand: git log"), **pattern)


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["2", ENTER], "run"),
        (["3", ENTER], "always"),
        (["3", " --oneline *", ENTER], "always: git log --oneline *"),
        (["3", "\x7f" * 7, ENTER], "always"),
        (["3", " *", UP, DOWN, ENTER], "always: git log *"),
        (["3", DOWN, "not now", ENTER], "not now"),
        (["4", "use fs_ls", ENTER], "use fs_ls"),
        (["4use a unified diff please", ENTER], "use a unified diff please"),
        (["4", "1", ENTER], "yes"),
        (["12 files are too many", ENTER], "12 files are too many"),
        (["yes", ENTER], "yes"),
        (["n", ENTER], "no"),
        (["4", "yes", ENTER, ", but not here", ENTER], "yes, but not here"),
        (["always: ask first", ENTER], "no, always: ask first"),
        ([".info", ENTER], ".info"),
        ([PASTE.format("3"), ENTER], "3"),
    ],
)
@pytest.mark.sample(6)
def test_a_permission_has_a_pattern_and_a_reason_of_their_own(person: Person, keys: list[str], answer: str) -> None:
    person.press(*keys)
    assert Dialog(stored(), terminal=person.terminal).run() == answer


def test_what_no_pattern_describes_is_stored_as_it_is_or_by_one_that_is_typed(person: Person) -> None:
    person.press("3", ENTER)
    assert Dialog(stored(pattern=""), terminal=person.terminal).run() == "always"
    person.press("3", "print*", ENTER)
    assert Dialog(stored(pattern=""), terminal=person.terminal).run() == "always: print*"
    person.press("3", ENTER)
    assert Dialog(stored(pattern=None), terminal=person.terminal).run() == "always"


def test_a_permission_of_nobody_in_particular_is_one_all_the_same(person: Person) -> None:
    person.press(ENTER)
    Dialog(msgspec.structs.replace(permission(), actor=""), terminal=person.terminal).run()
    assert person.screen.getvalue().startswith("? Permission\n")


def test_a_permission_shows_the_diff_of_what_would_change_in_colours_if_they_are_wanted(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new \x1b[2J"
    question = msgspec.structs.replace(permission(f"Allow fs_write?\npath: x\n{diff}"), diff=diff)
    for answer in range(2):
        person.press(ENTER)
        Dialog(question, terminal=person.terminal).run()
        shown = person.screen.getvalue()
        assert "  Allow fs_write?\n  path: x\n" in shown
        if not answer:
            assert "  --- a/x\n  +++ b/x\n  @@ -1 +1 @@\n  -old\n  +new \\x1b[2J\n" in shown
            monkeypatch.delenv("NO_COLOR")
            monkeypatch.setenv("CLICOLOR_FORCE", "1")
    assert "\x1b[31m  -old\x1b[0m\n\x1b[32m  +new \\x1b[2J\x1b[0m\n" in shown


def shown_permission(person: Person, text: str) -> list[str]:
    person.press(ENTER)
    Dialog(permission(text), terminal=person.terminal).run()
    return person.screen.getvalue().splitlines()[1:-1]


def test_lines_of_an_argument_stand_as_they_are(person: Person) -> None:
    text = "Allow execute_command?\ncommand: if true\n    | then\n    |     ls\n    | fi"
    assert shown_permission(person, text) == [f"  {line}" for line in text.split("\n")]


@pytest.mark.parametrize(
    "value",
    [
        "ls" + " " * 74 + "path: /tmp/harmless",
        "ls " + "\u00a0" * 74 + "path: /tmp/harmless",
        "ls " + "\u3000" * 33 + "path: /tmp/harmless",
        "ls\u2028path: /tmp/harmless",
        "ls\r\x0bpath: /tmp/harmless",
        "ls\n    | " + " " * 71 + "path: /tmp/harmless",
        "x" * 200 + "path: /tmp/harmless",
        "ls\n    | " + "x" * 200 + "path: /tmp/harmless",
    ],
)
def test_the_value_of_an_argument_cannot_pose_as_another_one(person: Person, value: str) -> None:
    lines = shown_permission(person, f"Allow execute_command?\ncommand: {value}")
    assert [line for line in lines if line.lstrip().startswith("path")] == [
        line for line in lines if line.startswith(" " * 6) and line.lstrip().startswith("path")
    ]
    assert "harmless" in "".join(line.strip() for line in lines)
    assert all(get_cwidth(line) < 80 for line in lines)


def test_a_long_word_begins_behind_its_mark(person: Person) -> None:
    lines = shown_permission(person, f"Allow it?\ncommand: ls\n    | {'x' * 200}")
    assert lines[2].startswith("      | xxx")
    assert "".join(line.strip(" |") for line in lines[2:]) == "x" * 200


def test_what_is_noted_below_a_question_breaks_between_words_too(person: Person) -> None:
    person.press(ENTER)
    Dialog(choice(rule="word " * 30), terminal=person.terminal).run()
    lines = person.screen.getvalue().splitlines()[2:-1]
    assert len(lines) == 2
    assert all(len(line) < 80 for line in lines)


def test_a_question_longer_than_the_screen_is_shown_whole_and_says_how_long_it_is(person: Person) -> None:
    command = " ".join(map(str, range(3_000)))
    lines = shown_permission(person, f"Allow execute_command?\ncommand: {command}")
    assert " ".join("".join(f"{line.strip()} " for line in lines[1:-1]).split()) == f"command: {command}"
    assert lines[-1] == f"  (Allow execute_command? That takes {len(lines) - 1} rows: scroll up to read it all.)"


def test_a_question_that_does_not_wait_for_ever_says_so(person: Person) -> None:
    person.press(ENTER)
    Dialog(choice(timeout=300.0), terminal=person.terminal).run()
    assert has_message(person.screen.getvalue(), "cli.render.dialog.Dialog._headline", timeout=300)


# --- as a front end of the question desk --------------------------------------------------------------------


async def ask(me: Actor, question: Question) -> Answer:
    return await me.ask_person(question)


@contextmanager
def _noting(notes: list[str]) -> Iterator[None]:
    notes.append("aside")
    yield
    notes.append("back")


def prompts(root: Root, person: Person, aside: Callable[[], object] = nullcontext) -> TerminalPrompts:
    def dialog(question: Question, more: int) -> Dialog:
        return Dialog(question, more=more, terminal=person.terminal)

    return TerminalPrompts(root.questions, aside, dialog)


def text(name: str, default: str | None = None) -> Question:
    return Question(id=name, actor="", text=name, default=default)


async def test_open_questions_are_asked_one_after_the_other(person: Person) -> None:
    notes: list[str] = []
    async with Root() as root, trio.open_nursery() as nursery:
        await nursery.start(prompts(root, person, partial(_noting, notes)).serve)
        first = root.spawn(ask, text("first"))
        await person.sees("first")
        second = root.spawn(ask, text("second"))
        person.press("1", ENTER)
        assert (await first.result()).value == "1"
        person.press("2", ENTER)
        assert await second.result() == Answer(question="second", value="2", by="terminal")
        nursery.cancel_scope.cancel()
    assert notes == ["aside", "back", "aside", "back"]


async def test_a_question_answered_elsewhere_leaves_the_screen(person: Person) -> None:
    async with Root() as root, trio.open_nursery() as nursery:
        await nursery.start(prompts(root, person).serve)
        first = root.spawn(ask, text("first"))
        await person.sees("first")
        assert root.questions.answer("first", "from afar", by="websocket")
        assert (await first.result()).by == "websocket"
        second = root.spawn(ask, text("second"))
        await person.sees("second")  # else the dialog that is being closed might take the keys
        person.press("2", ENTER)
        assert (await second.result()).value == "2"
        nursery.cancel_scope.cancel()


async def test_the_end_of_input_means_the_default(person: Person) -> None:
    async with Root() as root, trio.open_nursery() as nursery:
        await nursery.start(prompts(root, person).serve)
        person.press(CTRL_D)
        answer = await root.spawn(ask, text("first", default="fine")).result()
        assert (answer.value, answer.by) == ("fine", "default")
        nursery.cancel_scope.cancel()


async def test_the_end_of_input_without_a_default_means_that_nobody_is_there(person: Person) -> None:
    async with Root() as root, trio.open_nursery() as nursery:
        await nursery.start(prompts(root, person).serve)
        person.press(CTRL_D)
        refs = [root.spawn(ask, text(name), link=False) for name in ("first", "second")]
        for ref in refs:
            end = await ref.wait()
            assert isinstance(end.error, NobodyToAsk)


async def test_ctrl_c_at_a_prompt_becomes_the_signal(person: Person) -> None:
    async with Root(signals=True) as root, trio.open_nursery() as nursery:
        await nursery.start(prompts(root, person).serve)
        person.press(CTRL_C)
        end = await root.spawn(ask, text("first"), link=False).wait()
        assert end.reason == "cancelled"
        assert root.signal == signal.SIGINT
        nursery.cancel_scope.cancel()


async def test_cancelling_closes_the_dialog_and_waits_for_its_thread(person: Person) -> None:
    dialogs: list[Dialog] = []

    def dialog(question: Question, more: int) -> Dialog:
        dialogs.append(Dialog(question, more=more, terminal=person.terminal))
        return dialogs[-1]

    async with Root() as root, trio.open_nursery() as nursery:
        await nursery.start(TerminalPrompts(root.questions, nullcontext, dialog).serve)
        root.spawn(ask, text("first"), link=False)
        while not dialogs:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert dialogs[0].ended.is_set()


def test_a_long_question_breaks_between_words_and_stays_indented(person: Person) -> None:
    person.press(ENTER)
    Dialog(choice(text="word " * 40), terminal=person.terminal).run()
    lines = person.screen.getvalue().splitlines()[1:-1]
    assert len(lines) == 3
    assert all(line.startswith("  word") and len(line) < 80 for line in lines)


def test_a_default_that_the_question_tells_is_not_told_twice(person: Person) -> None:
    person.press(ENTER)
    question = Question(id="q", actor="", text="Who? [default: Ada]", kind="text", default="Ada")
    assert Dialog(question, terminal=person.terminal).run() == "Ada"
    assert person.screen.getvalue().count("default") == 1
