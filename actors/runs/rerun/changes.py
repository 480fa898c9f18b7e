"""Changes of a fork, as rows that follow the copied ones.

If the run had completed nothing by then, its request is changed and everything starts again. Otherwise the change is
a message to the decider of the run's own graph or agent, recorded like all its messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ....protocol.errors import UsageError
from ....protocol.journal import Answered, Asked, Kept, Noted, Told
from ....protocol.kernel.questions import Answer, understood
from ....protocol.messages import ConversationBegun, GraphBegun, PersonSays, StateSet, WorkDone
from ....protocol.requests import AnswerText
from ...work.journal.fork_prefix import ForkPrefix, Placed, began, open_questions
from ...work.journal.run_journal import is_of_files

BY = "fork"
"""Author of the messages and answers that a fork adds."""

PROMPT_KEY = "initial_prompt"
"""Key of a graph's state with the run's prompt."""


class ForkChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of a fork.

    Attributes:
        model: default model, `client:model`.
        prompt: new prompt of the run if it had completed nothing by then. Otherwise a graph's new `initial_prompt`, or
            a message of the user to an agent.
        state: new values of keys of a graph's state; nodes that were under way start again with them.
        answers: answers to open questions, by question id or by the id of the node that asked.
        with_changes: use the run's file as it is today.
        id: id of the new run.
    """

    model: str | None = None
    prompt: str | None = None
    state: Mapping[str, Any] = {}
    answers: Mapping[str, AnswerText] = {}
    with_changes: bool = False
    id: str | None = None


def changed(begins: ForkPrefix, changes: ForkChanges) -> list[Placed]:
    """Return the rows that a fork begins with.

    Raises:
        UsageError: the run does not support such a change at this row.
    """
    rows = list(begins.rows)
    if changes.model is not None:
        rows = _with_request(rows, model=changes.model)
    if changes.prompt is not None or changes.state:
        rows = _with_other_words(rows, changes.prompt, dict(changes.state))
    return rows + _answers(rows, begins.ids, changes) if changes.answers else rows


def _with_request(rows: list[Placed], **values: Any) -> list[Placed]:
    first = began(rows)
    request = msgspec.structs.replace(first.request, **values)
    return [("", msgspec.structs.replace(first, request=request)), *rows[1:]]


def _with_other_words(rows: list[Placed], prompt: str | None, state: dict[str, Any]) -> list[Placed]:
    request = began(rows).request
    if not any(map(_is_done, rows)):  # Results that were noted for the old prompt are of no use.
        words = {} if prompt is None else {"prompt": prompt}
        return _with_request(rows, state={**request.state, **state}, **words)[:1]
    begun = next((row.message for path, row in rows if not path and isinstance(row, Told)), None)
    if isinstance(begun, GraphBegun):
        if prompt is not None:
            rows, state = _with_request(rows, prompt=prompt), {PROMPT_KEY: prompt, **state}
        return [*rows, _row_with_message(rows, StateSet(state=state))]
    if state:
        raise UsageError("only a graph has a state of which keys could be set")
    if isinstance(begun, ConversationBegun):
        return [*rows, _row_with_message(rows, PersonSays(text=prompt or "", by=BY))]
    raise UsageError("its prompt can be another one only where the run has done nothing yet: fork it at row 1")


def _is_done(placed: Placed) -> bool:
    """Return whether this row records that work has been completed."""
    row = placed[1]
    if isinstance(row, Noted) and is_of_files(row.name):
        return False
    return isinstance(row, Noted | Answered | Asked) or (isinstance(row, Told) and isinstance(row.message, WorkDone))


def _row_with_message(rows: list[Placed], message: Kept) -> Placed:
    return "", Told(rows[-1][1].at, message)


def _answers(rows: list[Placed], ids: Mapping[str, str], changes: ForkChanges) -> list[Placed]:
    asked = open_questions(rows)
    by_node = {question.node: id for id, (_, question) in asked.items() if question.node}
    told: list[Placed] = []
    for word, value in changes.answers.items():
        id = word if word in asked else ids.get(word, by_node.get(word, ""))
        if id not in asked:
            old = {new: before for before, new in ids.items()}
            there = ", ".join(old.get(new, new) for new in asked) or "none"
            raise UsageError(f"no question '{word}' is open at that place (open there: {there})")
        path, question = asked[id]
        if changes.state:
            raise UsageError("what was under way begins again on another state, and its questions are asked anew")
        if question.secret:
            raise UsageError(f"the answer to '{word}' is a secret, and can't be given beforehand")
        told.append((path, Answered(rows[-1][1].at, Answer(question=id, value=understood(question, value), by=BY))))
    return told
