"""Questions for a person, and their answers.

A question is raised by a leaf (an approval node, a tool that wants a confirmation, a child agent) and travels
rootward; see `supervisors/escalation.py` for who may answer it. These structs are what every front end shows
and sends: a terminal, a websocket client, the Python API.
"""

from __future__ import annotations

from typing import Literal

import msgspec

QuestionKind = Literal["choice", "text", "confirm", "checkbox"]


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One question.

    Attributes:
        id: unique within the process; what an answer names.
        actor: path of the actor that asks.
        run: id of the run it belongs to.
        node: id of the graph node that asks, if one does. `--answers` files are keyed by it.
        kind: `choice` (one of `options`, or free text if `free`), `text`, `confirm` (yes or no), `checkbox`
            (any number of `options`, answered as a list).
        text: what to show, possibly several lines.
        options: the listed choices, in order.
        free: whether an answer outside `options` is allowed.
        exact: an option of a `choice` is meant by its very letters only.
        default: what an empty answer means; None when there is no default.
        rule: a sentence about what a valid answer is, for people (`at least 3 characters`).
        problem: why the previous answer was refused, when the question is asked again.
        timeout: seconds until the asker goes on without an answer; None for never.
        secret: the answer is a password: it is not echoed, and no event carries it.
        people: only people may answer, and answers that a person prepared; no model.
        permission: name of the tool that asks to be allowed; only a person may answer that (or `--yes`, `--allow`).
        diff: what the tool would change, as a unified diff, with which the text ends; for those who show it in colours.
    """

    id: str
    actor: str
    text: str
    kind: QuestionKind = "text"
    run: str = ""
    node: str | None = None
    options: tuple[str, ...] = ()
    free: bool = True
    exact: bool = False
    default: str | None = None
    rule: str | None = None
    problem: str | None = None
    timeout: float | None = None
    secret: bool = False
    people: bool = False
    permission: str | None = None
    diff: str = ""

    @property
    def before_diff(self) -> str:
        """The text without the diff, and without the newline between them."""
        return self.text.removesuffix(self.diff).removesuffix("\n") if self.diff else self.text


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer to one question.

    Attributes:
        question: the question's id.
        value: text for `choice` and `text`, `yes`/`no` for `confirm`, a list for `checkbox`.
        by: who answered: `terminal`, `answers`, `default`, an actor's path, a client's name.
    """

    question: str
    value: str | list[str]
    by: str = ""

    @property
    def text(self) -> str:
        """The value as one text."""
        return self.value if isinstance(self.value, str) else ", ".join(self.value)


_YES, _NO = frozenset({"yes", "y", "true"}), frozenset({"no", "n", "false"})


def yes_or_no(text: str) -> str | None:
    """`yes` or `no`, in any case of letters, abbreviated (`y`, `n`), or as a truth value; None for any other text."""
    word = text.strip().casefold()
    if word in _YES or word == "1":
        return "yes"
    return "no" if word in _NO or word == "0" else None


def understood(question: Question, value: str | list[str]) -> str | list[str]:
    """What an answer means. One rule, for every way on which answers come: terminal, command line, files, HTTP, Python.

    An option is meant by its text, whatever the case of its letters and with blanks around it; `y`, `true`, `n` and
    `false` mean the options `yes` and `no`. To a `confirm` the answer is `yes` or `no`, also as `1` or `0`.
    Of a `checkbox` each box is an option, and a text is a list of them with commas between. "" means the default, if
    there is one. What means no option is left as it was given: whether the question takes it is for the asker to say.
    """
    if value == "" and question.default is not None:
        value = question.default
    if question.kind == "confirm":
        return value if isinstance(value, list) else yes_or_no(value) or value
    if question.kind == "choice":
        return value if isinstance(value, list) or question.exact else _option(question, value) or value
    if question.kind == "checkbox":
        return _boxes(question, value)
    return value


def _boxes(question: Question, value: str | list[str]) -> str | list[str]:
    if isinstance(value, list):
        return [_option(question, text) or text for text in value]
    if not value.strip():
        return []
    parts = [value] if _option(question, value) else value.split(",")
    boxes = [box for box in (_option(question, part) for part in parts) if box is not None]
    return boxes if len(boxes) == len(parts) else value


def _option(question: Question, text: str) -> str | None:
    """The option that is meant; None if it is none, or if several are written alike."""
    if text in question.options:
        return text
    word = text.strip().casefold()
    for wanted in (word, "yes" if word in _YES else "no" if word in _NO else word):
        alike = [option for option in question.options if option.strip().casefold() == wanted]
        if alike:
            return alike[0] if len(alike) == 1 else None
    return None
