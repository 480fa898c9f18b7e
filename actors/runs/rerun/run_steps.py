"""Steps: the rows of a durable run in readable form, with number, actor, and contents.

    12  each#1/item[0]  reply: three words
    13  each#1          left: all=["three words"]

The path of a row consists of numbers that deciders gave to their work. The names of nodes of the run's own graph come
from its decider, which receives the recorded messages again. Deeper work is an item of a map, a graph of an agent node,
or a call of a model. Its name comes from the message about its end, or from the model's calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ....protocol import messages
from ....protocol.chat import ChatReply, ToolCall, UserTurn, text_of
from ....protocol.effects import RunNode
from ....protocol.journal import (
    Answered,
    AnyRow,
    Asked,
    Began,
    Intends,
    Lived,
    MessageRow,
    Noted,
    Over,
    Spoilt,
    decode_value,
    name_of_kind,
)
from ....protocol.messages import Failure
from ...engine.graph.decider import GraphDecider
from ...engine.graph.plan import GraphPlan
from ...work.journal.fork_prefix import Placed, work_path
from ...work.journal.run_journal import REPLY
from ...work.tools.tool import shortened
from ...work.tools.tool import text_of as as_text

LONGEST = 400
"""Maximum of characters in the text of a step."""


class RowStep(msgspec.Struct, frozen=True, kw_only=True):
    """Row of a run in readable form.

    Attributes:
        row: its number, from 1.
        seconds: run time at the row.
        where: names of node, agent or call, outermost first; "" for the run itself.
        what: kind of the row, in a word or two.
        text: contents, shortened.
        question: id of the question that it asks or answers, or "".
    """

    row: int
    seconds: float
    where: str
    what: str
    text: str = ""
    question: str = ""


class Entered(msgspec.Struct, frozen=True):
    """Visit of a node of the run's own graph, which began right after this row."""

    node: str
    visit: int
    row: int
    path: str


def steps(rows: Sequence[Placed], nodes: Sequence[Entered] = ()) -> list[RowStep]:
    """Return all rows of a run as steps; `nodes` are the visits of its own graph."""
    names = _Names(rows, nodes)
    return [_step(number, path, row, names) for number, (path, row) in enumerate(rows, 1)]


def entered(rows: Sequence[Placed], plan: GraphPlan) -> list[Entered]:
    """Return the visits of the run's own graph, with the rows after which they began.

    Raises:
        Exception: of any class, if the rows do not belong to this graph.
    """
    # Rows have keys and no node names. Running the decider again over its messages shows the node of each key.
    decider, found, uses = GraphDecider(plan), [], dict[int, int]()
    for number, (path, row) in enumerate(rows, 1):
        if path or not isinstance(row, MessageRow):
            continue
        message = row.message
        effects = decider.begin(message) if isinstance(message, messages.GraphBegun) else decider.on(message)
        for effect in effects:
            if isinstance(effect, RunNode):
                key = effect.key
                uses[key] = uses.get(key, 0) + 1
                found.append(Entered(effect.node, effect.visit, number, _path("", key, uses[key])))
    return found


def _path(decider: str, key: int, use: int) -> str:
    """Return the path of work: see `protocol/journal`."""
    path = work_path(decider, key)
    return path if use == 1 else f"{path}.{use}"


class _Names:
    """Names of paths."""

    def __init__(self, rows: Sequence[Placed], nodes: Sequence[Entered]) -> None:
        self._names = {each.path: f"{each.node}#{each.visit}" for each in nodes}
        self._guessed: dict[str, str] = {}
        """Names of work that has no recorded end, guessed from questions and intents."""
        self._begun = {each.path.partition(".")[0]: each.path for each in nodes}  # the last one under each key
        self._ended: dict[int, str] = {}
        self._in_map: set[str] = set()
        self._uses: dict[str, int] = {}
        self._visits: dict[tuple[str, str], int] = {}
        self._calls: dict[str, tuple[int, Sequence[ToolCall]]] = {}
        for number, (path, row) in enumerate(rows, 1):
            if isinstance(row, MessageRow):
                self._text_of(number, path, row.message)
            elif isinstance(row, Intends):
                self._guessed.setdefault(path, row.what)
            elif isinstance(row, Asked) and row.question.node and row.question.permission is None:
                self._guessed.setdefault(path, row.question.node)

    def of(self, path: str) -> str:
        """Return the names along a path, outermost first."""
        parts = path.split("/") if path else []
        return "/".join(self._name("/".join(parts[: depth + 1])) for depth in range(len(parts)))

    def ended(self, row: int) -> str:
        """Return the path of the work whose end this row records."""
        return self._ended[row]

    def _name(self, path: str) -> str:
        above, _, last = path.rpartition("/")
        bare = last.partition(":")[0]  # without the number of the decider
        work = f"{above}/{bare}" if above else bare
        return self._names.get(work) or self._guessed.get(work) or f"work {bare}"

    def _text_of(self, number: int, path: str, message: Any) -> None:
        if isinstance(message, messages.MapBegun):
            self._in_map.add(path)
        elif isinstance(message, messages.Replied):
            self._name_calls(path, message.key)
            self._calls[path] = message.key, message.reply.tool_calls
        elif isinstance(message, messages.Summarized | messages.ResultsStored | messages.ToolsChecked):
            self._name_calls(path, message.key)
        elif isinstance(message, messages.WorkDone):
            # Rows have the end of work only; a visit is counted when it ends.
            work = self._ended[number] = self._end_of(path, message.key)
            if isinstance(message, messages.NodeDone):
                visit = self._visits[path, message.node] = self._visits.get((path, message.node), 0) + 1
                name = f"{message.node}[{message.key}]" if path in self._in_map else f"{message.node}#{visit}"
                self._names.setdefault(work, name)

    def _end_of(self, decider: str, key: int) -> str:
        """Return the path of the work of this key that has just ended."""
        work = work_path(decider, key)
        if work in self._begun:
            return self._begun[work]
        use = self._uses[work] = self._uses.get(work, 0) + 1
        return _path(decider, key, use)

    def _name_calls(self, path: str, key: int) -> None:
        """Name the calls of the last reply by their numbers, which lie between it and this work if none was refused."""
        before, calls = self._calls.pop(path, (key, ()))
        # A refused call has no work and no number, so then the numbers can't be mapped to names.
        if key - before == len(calls) + 1:
            for number, call in enumerate(calls, before + 1):
                self._names.setdefault(work_path(path, number), call.name)


def _step(number: int, path: str, row: AnyRow, names: _Names) -> RowStep:
    where, question = path, ""
    if isinstance(row, MessageRow):
        what, text = _of_message(row.message)
        if isinstance(row.message, messages.NodeDone | messages.ToolDone | messages.WorkFailed):
            where = names.ended(number)
        elif isinstance(row.message, messages.FamilyCalled):
            where = work_path(path, row.message.key)
    else:
        what, text = _of_row(row)
        if isinstance(row, Asked):
            question = row.question.id
        elif isinstance(row, Answered):
            question = row.answer.question
    return RowStep(
        row=number,
        seconds=row.at / 1000,
        where=names.of(where),
        what=what,
        text=shortened(" ".join(text.split()), LONGEST),
        question=question,
    )


def _of_row(row: AnyRow) -> tuple[str, str]:
    match row:
        case Began():
            of = f"row {row.forked_at} of {row.forked_from}, " if row.forked_from else ""
            target = row.request.target
            return "begun", f"{of}{target if isinstance(target, str) else target.name} {row.request.prompt}"
        case Lived():
            return "resumed", f"by process {row.life}"
        case Over():
            return "over", row.status
        case Intends():
            return "about to", row.what
        case Asked():
            return "question", f"{row.question.text} ({row.question.id})"
        case Answered():
            return "answer", f"{row.answer.text} (by {row.answer.by})" if row.answer.by else row.answer.text
        case Noted():
            return (row.name, "") if row.name != REPLY else ("reply", _reply(decode_value(row.value, ChatReply)))
        case Spoilt():
            return "can't be kept", row.why
    return name_of_kind(row).lower(), ""


def _of_message(message: Any) -> tuple[str, str]:
    """Return the kind and the text of a message to a decider."""
    match message:
        case messages.GraphBegun():
            return "graph begins", message.prompt
        case messages.MapBegun():
            return "map begins", ""
        case messages.ConversationBegun():
            return "conversation", _last_words(message.turns)
        case messages.StateSet():
            return "state set", _pairs(message.state)
        case messages.NodeDone():
            what = "left" if message.failure is None else "failed" if message.targets is None else "failed, goes on"
            return what, _node_of_exit(message)
        case messages.Replied():
            return "reply", _reply(message.reply)
        case messages.ToolDone():
            return "result", text_of(message.content)
        case messages.WorkFailed():
            return ("failed" if message.crashed else "ended"), _error(message.failure)
        case messages.Summarized():
            return "summary", message.summary
        case messages.PersonSays():
            return "told", f"{message.text} (by {message.by})" if message.by else message.text
        case messages.FamilyCalled():
            return "call", f"{message.name} {as_text(message.arguments)}"
        case messages.TeamMessage():
            return "letter", f"{message.sender}: {as_text(msgspec.to_builtins(message.payload))}"
        case messages.ChildEnded():
            return f"child {message.record.status}", f"{message.record.id}: {message.record.output}"
        case messages.EscalationNoted():
            return "child asks", f"{message.agent}: {message.question.text} ({message.question.id})"
        case messages.TimerFired():
            return "time is over", message.name
        case messages.Partial():
            return "partial reply", message.text
    return _words(name_of_kind(message)), ""


def _node_of_exit(message: messages.NodeDone) -> str:
    to = f" -> {', '.join(message.targets)}" if message.targets else ""
    if message.failure is not None:
        return _error(message.failure) + to
    return f"{_pairs(message.writes)}{to}".strip()


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={shortened(as_text(value), 80)}" for key, value in values.items())


def _reply(reply: ChatReply) -> str:
    calls = ", ".join(f"{call.name}({shortened(as_text(call.arguments), 120)})" for call in reply.tool_calls)
    return f"{reply.text} {calls}".strip()


def _error(failure: Failure) -> str:
    return failure.text


def _last_words(turns: Sequence[Any]) -> str:
    said = next((turn for turn in reversed(turns) if isinstance(turn, UserTurn)), None)
    return "" if said is None else text_of(said.content)


def _words(name: str) -> str:
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
