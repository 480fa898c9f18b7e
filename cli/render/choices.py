"""A question as a list to pick from, and what was picked as its answer."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.kernel.questions import Question, understood, yes_or_no
from .early import Early
from .filter_menu import FilterMenu
from .menu import Menu, Picked

Value = str | list[str]

_OTHER = "other ..."
_REFUSE = "no, because ..."
"""The last entry where any other text is a no, which the model reads."""

_START = {"yes": 0, "no": 1}
"""Where the cursor starts, by the default; nowhere without one, so that Enter alone is no yes."""


def menu_of(question: Question, early: Early | None = None, about: Sequence[str] = ()) -> Menu | None:
    """The list of the question's answers; None for one that is answered by a text.

    Args:
        early: tells the keys that came too early.
        about: a text for each option.
    """
    options = [f"{option}: {text}" if text else option for option, text in zip(question.options, about, strict=False)]
    options += question.options[len(options) :]
    if question.kind == "confirm":
        return Menu(("yes", "no"), start=_START.get(yes_or_no(question.default or "") or ""), early=early)
    if question.kind == "checkbox" and options:
        return Menu(options, many=True, early=early)
    if question.kind != "choice" or not options:
        return None
    other = _REFUSE if question.permission and "no" in question.options else _OTHER
    default = "no" if question.permission else question.default
    start = question.options.index(default) if default in question.options else 0
    return Menu([*options, other] if question.free else options, start=start, write=question.free, early=early)


MOST_NUMBERED = 9
"""Options that have a number to press each; where there are more, typing is to find one."""


def filter_of(question: Question, about: Sequence[str]) -> FilterMenu | None:
    """The list of many options, of which what is typed keeps those that have its words; None where a menu does.

    It is for what a command of the person's asks. Where an agent asks, text that is typed without looking must not
    move the cursor.
    """
    if question.kind != "choice" or question.free or len(question.options) <= MOST_NUMBERED:
        return None
    return FilterMenu(question.options, about)


def value_of(question: Question, picked: Picked) -> Value:
    """What was picked, as the answer."""
    if isinstance(picked, str):
        written = understood(question, picked)
        assert isinstance(written, str)  # a text of one's own is written to a `choice`
        return written
    if question.kind == "confirm":
        return ("yes", "no")[picked[0]]
    chosen = [question.options[position] for position in picked]
    return chosen if question.kind == "checkbox" else chosen[0]
