"""Implementation of `callboard answer` and `callboard stop`: list or answer questions; end runs or their actors."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import msgspec
import trio

from ....actors.runs.stored_runs import has_asked, leave_for, parked_questions
from ....protocol.control import method_structs
from ....protocol.errors import Conflict, NoServer, NotFound, UsageError
from ....protocol.kernel.questions import Question, understood
from ...frame import person_at_terminal
from ...render import paths
from ...render.text import json_object, one_line, safe
from ...stdin import piped_text
from ..client import ControlClient, RunEvents, find_run, matching_id, open_questions, with_client
from ..servers import Where

if TYPE_CHECKING:
    from ...render.dialog import TerminalPrompts

Value = str | list[str]


def list_questions(where: Where, *, as_json: bool) -> str:
    """Return the open questions as text: of the server's runs, and of interrupted runs that wait for an answer.

    Raises:
        NoServer: there is no server, and no interrupted run has a question.
    """
    parked = [] if where.url else parked_questions(os.environ)
    try:
        questions = with_client(where, open_questions)
    except NoServer:
        if not parked:
            raise
        questions = []
    asked = {question.id for question in questions}
    questions += [question for question in parked if question.id not in asked]
    if as_json:
        shown = [msgspec.to_builtins(question) for question in questions]
        return json_object(questions=shown)
    return "".join(map(_question_text, questions)) or "no question is open\n"


def answer_question(where: Where, id: str, texts: Sequence[str], *, as_json: bool) -> str:
    """Answer a question, prompting at the terminal if there is no text. Return the text for stdout.

    The question may belong to a run whose process was killed: the run reads the answer when it resumes.

    Raises:
        NotFound: no such question is open.
        UsageError: the text is not a valid answer.
        Conflict: another client was faster.
    """

    async def answer(client: ControlClient) -> Question:
        question = _named(id, await open_questions(client))
        value = value_of(question, texts) if texts else await _asked_for(question)
        done = await client.ask("_question/answer", method_structs.Answered, question=question.id, value=value)
        if not done.answered:
            raise Conflict(f"question {question.id} is no longer open: another client answered it, or it was withdrawn")
        return question

    try:
        question = with_client(where, answer)
    except (NoServer, NotFound) as error:
        parked = [] if where.url else parked_questions(os.environ)
        try:
            question = _named(id, parked)
        except NotFound as missing:
            waits = isinstance(error, NoServer) and has_asked(id, os.environ)
            raise (missing if waits else error) from None
        return _leave_answer(question, texts, as_json=as_json)
    if as_json:
        return json.dumps({"schema_version": 1, "answered": question.id, "run": question.run}) + "\n"
    return f"{safe(question.id)} answered ({safe(question.run)})\n"


def _leave_answer(question: Question, texts: Sequence[str], *, as_json: bool) -> str:
    """Store the answer for an orphaned run."""
    value = value_of(question, texts) if texts else trio.run(_asked_for, question)
    if not leave_for(question.run, question.id, value, "terminal"):
        raise Conflict(
            f"question {question.id} is no longer open, or its run was resumed; to list open "
            "questions: callboard answer"
        )
    if as_json:
        told = {"schema_version": 1, "answered": question.id, "run": question.run, "left": True}
        return json.dumps(told) + "\n"
    id, run = safe(question.id), safe(question.run)
    return f"{id} answered ({run}): the run reads it when it is resumed (callboard resume {run})\n"


def value_of(question: Question, texts: Sequence[str]) -> Value:
    """Return the answer for the words of a command line (see `protocol.kernel.questions.understood`).

    Raises:
        UsageError: the question does not accept it.
    """
    if question.kind == "checkbox" and question.options:
        boxes = [text for text in texts if text]
        return [_listed(question, text) for text in understood(question, boxes[0] if len(boxes) == 1 else boxes)]
    if len(texts) > 1:
        raise UsageError(f"question {question.id} takes one TEXT; put quotes around several words")
    value = understood(question, texts[0])
    assert isinstance(value, str)
    if question.kind == "confirm" and value not in ("yes", "no"):
        raise UsageError(f"question {question.id} is answered yes or no, not '{value}'")
    if question.kind == "choice" and question.options and not question.free:
        return _listed(question, value)
    return value


def _listed(question: Question, text: str) -> str:
    if text in question.options:
        return text
    raise UsageError(f"question {question.id} has no option '{text}'; there are: {', '.join(question.options)}")


def _named(id: str, questions: Sequence[Question]) -> Question:
    for question in questions:
        if question.id == id:
            return question
    run = matching_id(id, {question.run for question in questions})
    asked = [question for question in questions if run is not None and question.run == run]
    if len(asked) == 1:
        return asked[0]
    why = (
        f"{run} asks several"
        if asked
        else f"no question '{id[:60]}' is open: it was answered or withdrawn, or never asked"
    )
    known = ", ".join(question.id for question in (asked or questions)[:10])
    raise NotFound(f"{why}; " + (f"there are: {known}" if known else "none is open now"))


async def _asked_for(question: Question) -> Value:
    if not person_at_terminal(no_input=False):
        raise UsageError(f"TEXT is missing: the answer to question {question.id}")
    from ...render.dialog import TerminalPrompts

    desk = _OneQuestion(question)
    async with trio.open_nursery() as nursery:
        desk.done = nursery.cancel_scope.cancel
        await TerminalPrompts(desk, nullcontext).serve()
    if desk.value is None:
        raise UsageError(f"question {question.id} stays open: no answer was given")
    return desk.value


class _OneQuestion:
    """Question desk with one question, for the terminal prompt."""

    def __init__(self, question: Question) -> None:
        self.value: Value | None = None
        self.done: Callable[[], None] = lambda: None
        self._question = question

    @contextmanager
    def attach(self, front_end: TerminalPrompts) -> Iterator[None]:
        front_end.asked(self._question)
        yield

    def answer(self, _id: str, value: Value, by: str = "") -> bool:
        """Store the answer; the caller sends it."""
        if by != "default":  # the prompt answers "default" on Ctrl-D; here the question stays open then
            self.value = value
        self.done()
        return True


def _question_text(question: Question) -> str:
    asker: dict[str, object] = {"node": question.node, "actor": question.actor, "permission": question.permission}
    who = paths.asker(asker) or "the run"
    lines = [f"{safe(question.id)}  {safe(question.run)}  {safe(who)} asks"]
    lines += [f"    {line}" for line in safe(question.text).split("\n")]
    if question.problem:
        lines.append(f"    {one_line(question.problem)}")
    notes = [f"default: {one_line(question.default)}"] if question.default and not question.secret else []
    options = ("yes", "no") if question.kind == "confirm" else question.options
    if options:
        notes.insert(
            0, ("any of: " if question.kind == "checkbox" else "one of: ") + " | ".join(map(one_line, options))
        )
        if question.kind == "choice" and question.free:
            notes.append("or any other text")
    if question.rule:
        notes.append(one_line(question.rule))
    if notes:
        lines.append(f"    ({'; '.join(notes)})")
    return "\n".join(lines) + "\n"


def read_text(texts: Sequence[str]) -> list[str]:
    """Return the words of the command line; `-` alone means stdin, so that a secret need not be an argument."""
    if list(texts) == ["-"]:
        return [piped_text()]
    return list(texts)


_WAIT = 30.0
"""Seconds to wait for the end of a cancelled run; its actors' grace periods are shorter."""


@dataclass(frozen=True)
class Stopped:
    """Result for one target.

    Attributes:
        target: id of the run, or path of the actor.
        status: of a run, its final status, or `stopping` if it has not ended yet; of an actor, `cancelled`, or `gone`
            if it had ended before.
        changed: whether this command cancelled it.
    """

    target: str
    status: str
    changed: bool


def stop_targets(where: Where, targets: Sequence[str], *, as_json: bool) -> str:
    """Cancel runs or actors on the server; return the text for stdout. A word with a slash is the path of an actor.

    Raises:
        CallboardError: there is no server, or it refuses; targets before the refused one are cancelled.
    """

    async def stop(client: ControlClient) -> list[Stopped]:
        return [
            await (_stop_actor(client, f"/{word}") if "/" in word else _stop_run(client, word))
            for word in (target.strip("/") for target in targets)
        ]

    done = with_client(where, stop)
    if as_json:
        return json_object(stopped=[asdict(each) for each in done])
    return "".join(f"{safe(each.target)}: {_what_became_of(each)}\n" for each in done)


def _what_became_of(end: Stopped) -> str:
    if end.changed:
        return "cancelled" if end.status == "cancelled" else f"asked to end ({safe(end.status)})"
    return f"had ended before ({safe(end.status)})"


async def _stop_run(client: ControlClient, word: str) -> Stopped:
    run = await find_run(client, word)
    if run.over:
        return Stopped(run.run, run.status, False)
    events = RunEvents(client, run.run, after=run.seq)
    await events.begin()  # before the cancellation, so that the subscription includes the end
    cancelled = (await client.ask("_run/cancel", method_structs.Cancelled, run=run.run)).cancelled
    with trio.move_on_after(_WAIT):
        async for _ in events:
            pass
    return Stopped(run.run, events.status or "stopping", cancelled)


async def _stop_actor(client: ControlClient, path: str) -> Stopped:
    cancelled = (await client.ask("_actor/cancel", method_structs.Cancelled, path=path)).cancelled
    return Stopped(path, "cancelled" if cancelled else "gone", cancelled)
