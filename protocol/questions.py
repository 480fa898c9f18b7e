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
        default: what an empty answer means; None when there is no default.
        rule: a sentence about what a valid answer is, for people (`at least 3 characters`).
        problem: why the previous answer was refused, when the question is asked again.
        timeout: seconds until the asker goes on without an answer; None for never.
        secret: the answer is a password: it is not echoed, and no event carries it.
        people: only people may answer, and answers that a person prepared; no model.
        permission: name of the tool that asks to be allowed; only a person may answer that (or `--yes`, `--allow`).
    """

    id: str
    actor: str
    text: str
    kind: QuestionKind = "text"
    run: str = ""
    node: str | None = None
    options: tuple[str, ...] = ()
    free: bool = True
    default: str | None = None
    rule: str | None = None
    problem: str | None = None
    timeout: float | None = None
    secret: bool = False
    people: bool = False
    permission: str | None = None


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
