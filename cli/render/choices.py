"""Questions as menus, and menu selections as answers."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.kernel.questions import Question, understood, yes_or_no
from .early import Early
from .filter_menu import FilterMenu
from .menu import Menu, Picked
from .permission_menu import PermissionMenu, is_permission, label_of
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
