"""Questions to users, and their answers.

An actor (an approval node, a tool that needs a confirmation, a child agent) asks a question, which travels up to the
root; `supervisors/escalation.py` describes which parties may answer. Every front end uses these structs: terminal,
websocket client, Python API.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

QuestionKind = Literal["choice", "text", "confirm", "checkbox"]

NETWORK_ACTOR = "network"
"""Name of the actor that asks, for a run's sandbox, whether a tool's processes may connect to a host."""


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Question to a user.

    Attributes:
        id: unique within the process; an answer refers to it.
        actor: path of the actor that asks.
        run: id of the run it belongs to.
        node: id of the graph node that asks, if one does. `--answers` files are keyed by it.
        kind: `choice` (one of `options`, or free text if `free`), `text`, `confirm` (yes or no), `checkbox`
            (any number of `options`, answered as a list).
        text: text of the question, possibly of several lines.
        options: the listed choices, in order.
        free: whether an answer outside `options` is allowed.
        exact: an answer selects an option of a `choice` only by its exact text.
        default: meaning of an empty answer, and the answer if no user can be asked; None for no default.
        rule: description of a valid answer for users (`at least 3 characters`).
        problem: reason why the previous answer was refused, if the question is asked again.
        timeout: seconds after which it is closed without an answer, even if it has a default; None for never.
        secret: the answer is a password: it is not echoed, and no event carries it.
        people: only users and prepared answers may answer, no model.
        permission: name of the tool that needs permission; only a user may answer (or `--yes`, `--allow`).
        diff: unified diff of the change that the tool would make; the text ends with it. Front ends may colour it.
        pattern: pattern that the answer `always` stores: a command, a host, or `*` for any call; "" for exactly this
            call, if no pattern of one line describes it. The answer `always: PATTERN` stores another pattern. None if
            nothing can be stored.
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
    pattern: str | None = None

    @property
    def asker(self) -> str:
        """Key in `--answers` files: the id of the node, `NODE[2]` for a unit of a map; empty without a node."""
        if self.node is None:
            return ""
        units = [part for part in self.actor.split("/") if part.startswith(f"{self.node}[") and part.endswith("]")]
        return units[-1] if units else self.node

    @property
    def before_diff(self) -> str:
        """Text without the diff and the newline before it."""
        return self.text.removesuffix(self.diff).removesuffix("\n") if self.diff else self.text


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer to a question.

    Attributes:
        question: the question's id.
        value: text for `choice` and `text`, `yes`/`no` for `confirm`, a list for `checkbox`.
        by: the answering party: `terminal`, `answers`, `default`, an actor's path, a client's name.
    """

    question: str
    value: str | list[str]
    by: str = ""

    @property
    def text(self) -> str:
        """The value as one text."""
        return self.value if isinstance(self.value, str) else ", ".join(self.value)


_ALWAYS = re.compile(r"always:\s*(\S.*)", re.IGNORECASE | re.DOTALL)


def pattern_of(question: Question, value: str | list[str]) -> str | None:
    """Return the pattern of an answer `always: PATTERN`; None for other answers, and where nothing is stored.

    The pattern alone allows nothing: the asker accepts it only if it matches the call that the question is about. So a
    reason such as "always: ask first" allows nothing.
    """
    if question.pattern is None or not isinstance(value, str):
        return None
    found = _ALWAYS.fullmatch(value.strip())
    return found[1] if found else None


# Without `1` and `0`, which `yes_or_no` adds: in a choice between `yes` and `no` they are not an answer.
_YES, _NO = frozenset({"yes", "y", "true"}), frozenset({"no", "n", "false"})


def yes_or_no(text: str) -> str | None:
    """Return `yes` or `no` for a text, its abbreviation or a truth value, in any case; None for other texts."""
    word = text.strip().casefold()
    if word in _YES or word == "1":
        return "yes"
    return "no" if word in _NO or word == "0" else None


def understood(question: Question, value: str | list[str]) -> str | list[str]:
    """Interpret an answer, by one rule for the terminal, the command line, files, HTTP and Python.

    - "" means the default, if there is one.
    - `choice`: an option matches regardless of case and of blanks around it; `y`, `true`, `n` and `false` match the
      options `yes` and `no`.
    - `confirm`: `yes` or `no`, also as `1` or `0`.
    - `checkbox`: a list of options, or a text with options separated by commas.

    An answer that matches no option is returned unchanged; the asker decides whether it is valid.
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
    # The whole text first, because an option may contain a comma.
    parts = [value] if _option(question, value) else value.split(",")
    boxes = [box for box in (_option(question, part) for part in parts) if box is not None]
    return boxes if len(boxes) == len(parts) else value


def _option(question: Question, text: str) -> str | None:
    """Return the option that a text matches; None if none does, or if several differ only in case."""
    if text in question.options:
        return text
    word = text.strip().casefold()
    for wanted in (word, "yes" if word in _YES else "no" if word in _NO else word):
        alike = [option for option in question.options if option.strip().casefold() == wanted]
        if alike:
            return alike[0] if len(alike) == 1 else None
    return None
