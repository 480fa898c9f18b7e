"""Questions as menus, and menu selections as answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from ...protocol.kernel.questions import Question, pattern_of, understood, yes_or_no
from .keyboard import Early
from .menu import FilterMenu, Menu, Picked
from .text import one_line

Value = str | list[str]

_OTHER = "other ..."
_START = {"yes": 0, "no": 1}
"""Initial cursor position by default answer. Without a default there is none, so that Enter alone never means yes."""


def menu_of(question: Question, early: Early | None = None, about: Sequence[str] = ()) -> Menu | None:
    """Return the menu of a question, or None for a question with a free-text answer.

    Args:
        early: detector of keys that were pressed too early.
        about: description of each option.
    """
    options = [f"{option}: {text}" if text else option for option, text in zip(question.options, about, strict=False)]
    options += question.options[len(options) :]
    if question.kind == "confirm":
        return Menu(("yes", "no"), start=_START.get(yes_or_no(question.default or "") or ""), early=early)
    if question.kind == "checkbox" and options:
        return Menu(options, many=True, early=early)
    if question.kind != "choice" or not options:
        return None
    if is_permission(question):
        return PermissionMenu(question, early)
    default = "no" if question.permission else question.default
    start = question.options.index(default) if default in question.options else 0
    return Menu([*options, _OTHER] if question.free else options, start=start, write=question.free, early=early)


MOST_NUMBERED = 9
"""Number of options that a digit key can select; longer lists are filtered by typing."""


def filter_of(question: Question, about: Sequence[str]) -> FilterMenu | None:
    """Return a filter menu for a list of many options, or None where an ordinary menu is enough.

    For questions that a user's own command raises. In a question of an agent, text that the user types without looking
    must not move the cursor.
    """
    if question.kind != "choice" or question.free or len(question.options) <= MOST_NUMBERED:
        return None
    return FilterMenu(question.options, about)


def answer_line(question: Question, value: Value) -> str:
    """Return an answer as one line, with secrets hidden."""
    if question.secret:
        return "(not shown)" if value else "(empty)"
    if isinstance(value, str) and is_permission(question):
        value = label_of(question, value)
    return one_line(", ".join(value) if isinstance(value, list) else value) or "(empty)"


def notes_of(question: Question) -> list[str]:
    """Return the lines below a question, such as its default, unless its text contains them.

    The rule is left out for permission questions, because their menu explains the answers.
    """
    rule = None if is_permission(question) else question.rule
    default = f"default: {question.default}" if question.default and not question.secret else None
    return [note for note in (rule, default) if note and f"[{note}]" not in question.text]


def value_of(question: Question, picked: Picked) -> Value:
    """Return the selection as an answer."""
    if isinstance(picked, str):
        written = understood(question, picked)
        assert isinstance(written, str)  # only a `choice` accepts a text of the user's own
        return written
    if question.kind == "confirm":
        return ("yes", "no")[picked[0]]
    chosen = [question.options[position] for position in picked]
    return chosen if question.kind == "checkbox" else chosen[0]


# --- permission questions -----------------------------------------------------------------------------------

LABELS = {
    "yes": "Yes, once",
    "run": "Yes, until this run ends",
    "always": "Yes, always here",
    "no": "No, and say why",
}

_KEYS = "1-{} or arrows, then Enter; typed text says why not"
_KEYS_AND_COMMANDS = "; .info, .diff ... work"
_STORED = "Enter stores this for the directory; edit it: * stands for any text"
_STORED_CALL = "Enter stores exactly this call for the directory; or type a pattern with *"
_ALLOWS = "'{}' would be a reason for a no: press 1 to allow it, or say more"


_NOES = ("n", "no", "false")


def is_permission(question: Question) -> bool:
    """Return True if the question is a permission question with known options."""
    known = set(question.options) <= LABELS.keys() and {"yes", "no"} <= set(question.options)
    return question.permission is not None and question.kind == "choice" and question.free and known


def label_of(question: Question, value: str) -> str:
    """Return an answer to a permission question as display text."""
    pattern = pattern_of(question, value)
    if pattern is not None:
        return f"{LABELS['always']}: {pattern}"
    if value == "always" and "run" not in question.options:  # nothing can be stored for this caller
        return LABELS["run"]
    return "No" if value == "no" else LABELS.get(value, f"No: {value}")


class PermissionMenu(Menu):
    """Menu of one permission question: once, for the run, permanently with a pattern, or no with a reason.

        Allow execute_command?
          1. Yes, once
          2. Yes, until this run ends
        > 3. Yes, always here
          4. No, and say why
            stores > git log *

    The answers on the wire are `yes`, `run`, `always` and `no` (`actors.work.tools.permissions`). Two entries have a
    text field, which has the focus while the cursor is on its entry:

    - *always here* holds the pattern that will be stored. Unchanged it answers `always`, edited `always: PATTERN`.
    - *no* holds the reason. The cursor starts there, so that Enter alone refuses, and text typed without looking is a
      reason and never a yes. A leading digit moves to the entry of that number and is not part of the reason.

    No single key allows anything: a number moves the cursor, Enter answers.
    """

    def __init__(self, question: Question, early: Early | None = None) -> None:
        entries = [LABELS["no"] if each == "no" else label_of(question, each) for each in question.options]
        super().__init__(entries, start=None, write=True, early=early)
        self._question = question
        self._values = question.options
        self._no = question.options.index("no")
        self._drafts: dict[int, str] = {}
        self._refused_reason = ""
        self._go(self._no)
        self._by_typing = True

    # --- the fields -------------------------------------------------------------------------------------

    @property
    def _at_pattern(self) -> bool:
        at_always = self.cursor is not None and self._values[self.cursor] == "always"
        return at_always and self._question.pattern is not None

    @property
    def _at_empty_reason(self) -> bool:
        return self.cursor == self._no and not self._text.text

    def _field_prompt(self) -> str:
        if self._at_pattern:
            return "     stores > "
        return "        > " if self._means_option else "        why > "

    @property
    def _means_option(self) -> bool:
        """Return True if the typed text equals an option and the user did not select the entry for a reason."""
        return self._by_typing and understood(self._question, self._text.text) in self._values

    def _go(self, position: int) -> None:
        if self._writing and self.cursor is not None:
            self._drafts[self.cursor] = self._text.text
        super()._go(position)
        self._by_typing, self._refused_reason = False, ""
        self._writing = position == self._no or self._at_pattern
        if self._writing:
            first = self._question.pattern or "" if self._at_pattern else ""
            text = self._drafts.get(position, first)
            self._text.set_document(Document(text, len(text)), bypass_readonly=True)
        self._focus(self.target)

    def _write_text(self, beginning: str) -> None:
        self._go(self._no)
        self._by_typing = True
        super()._write_text(beginning)

    def _leave_text(self) -> None:
        """An arrow up in a field."""
        self._move(-1)

    def _accept(self) -> None:
        if self.cursor is not None:
            self._picked(self._values[self.cursor])

    def _written(self, text: Buffer) -> bool:
        given = text.text.strip()
        if self._at_pattern:
            self._picked("always" if given in ("", self._question.pattern) else f"always: {given}")
        elif not given:
            self._picked("no")
        elif (
            understood(self._question, given) in self._values and not self._by_typing and given.casefold() not in _NOES
        ):
            self._refused_reason = given
        elif self._is_command(given):
            self._begin_command(given)
        elif pattern_of(self._question, given) is not None:
            self._picked(f"no, {given}")
        else:
            self._picked(text.text)
        return True  # keep the text; the application erases it with everything else

    # --- keys and help ----------------------------------------------------------------------------------

    @property
    def _what_to_press(self) -> str:
        if self._refused_reason:
            return _ALLOWS.format(self._refused_reason)
        if self._at_pattern:
            return _STORED if self._question.pattern else _STORED_CALL
        keys = _KEYS.format(len(self._values))
        return keys + (_KEYS_AND_COMMANDS if self.commands is not None else "")

    def _keys(self) -> KeyBindings:
        keys = super()._keys()
        writing, empty = Condition(lambda: self._writing), Condition(lambda: self._at_empty_reason)

        def add(key: str, when: Condition, action: Callable[[KeyPressEvent], None]) -> None:
            keys.add(key, filter=when & ~Condition(lambda: self._too_early))(action)

        for digit in "123456789"[: len(self._values)]:
            add(digit, empty, lambda event: self._choose(event.data))
        for begin in ".!/":
            add(
                begin,
                Condition(lambda: self._at_empty_reason and self._takes_commands),
                lambda event: self._begin_command(event.data),
            )
        add("down", writing, lambda _: self._move(1))
        add("c-p", writing, lambda _: self._move(-1))
        add("c-n", writing, lambda _: self._move(1))
        return keys

    def _choose(self, digit: str) -> None:
        self._go(int(digit) - 1)
        if not self._writing:
            self._typed = digit
