"""Comparison of a run with a case's expectations; the differences are sentences.

Pure: it reads an outcome and events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from .....protocol.cases import Expect, ExpectedCall, PathMissing, is_like, value_at
from .....protocol.events import Event, QuestionAsked, ToolStarted
from .....protocol.json_values import NotJson, decode, decode_mended
from .....protocol.outcome import Outcome
from ....io.json_schema import schema_errors

LONGEST = 500
"""Characters of a value in a message."""


class ObservedCall(msgspec.Struct, frozen=True):
    """Tool call of a run. Long arguments are only known as a shortened text."""

    tool: str
    arguments: Any


class ObservedRun:
    """Record of a run's tool calls and questions, from its events."""

    def __init__(self) -> None:
        self.calls: list[ObservedCall] = []
        self.asked: list[str] = []

    def hear(self, event: Event) -> None:
        """Process an event of the run."""
        # The event shortens long arguments, so the text may be no JSON.
        if isinstance(event.data, ToolStarted) and event.id:  # calls by scripts have no id
            text = event.data.arguments
            try:
                arguments = msgspec.json.decode(text) if text else {}
            except msgspec.DecodeError:
                arguments = text
            self.calls.append(ObservedCall(event.data.tool, arguments))
        elif isinstance(event.data, QuestionAsked) and not event.data.question.get("permission"):
            self.asked.append(str(event.data.question.get("text", "")))


def unmet(expect: Expect, outcome: Outcome, seen: ObservedRun, seconds: float) -> list[str]:
    """Return the differences between a run and its case, without the verdicts of judges."""
    return [
        *_of_end(expect, outcome),
        *_of_output(expect, outcome),
        *_of_values("state", expect.state, outcome.state),
        *_of_nodes(expect, outcome),
        *_of_calls(expect, seen),
        *_of_questions(expect, seen),
        *_of_use(expect, outcome, seconds),
    ]


def differs(wanted: Any, value: Any) -> str | None:
    """Return how a value differs from the expected one, as words that follow its name; None if it does not."""
    if not is_like(wanted):
        return None if _equal(wanted, value) else f"is {_quoted_value(value)}, not {_quoted_value(wanted)}"
    for word, what in wanted.items():
        wrong = _unlike(word, what, value)
        if wrong is not None:
            return f"is {_quoted_value(value)}, and {wrong}"
    return None


def _unlike(word: str, what: Any, value: Any) -> str | None:
    text = value if isinstance(value, str) else _json(value)
    if word == "equals":
        return None if _equal(what, value) else f"not {_quoted_value(what)}"
    if word in ("contains", "lacks"):
        inside = value if isinstance(value, list) else text
        for each in what if isinstance(what, list) else [what]:
            there = each in inside if isinstance(inside, list) else str(each) in inside
            if there is (word == "lacks"):
                return f"has {_quoted_value(each)} in it" if there else f"has no {_quoted_value(each)} in it"
        return None
    if word == "matches":
        return None if re.search(str(what), text) else f"does not match {what}"
    if word == "one_of":
        return None if any(_equal(each, value) for each in what) else f"none of {_quoted_value(what)}"
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if number is None:
        try:
            number = float(text)
        except ValueError:
            return "no number"
    if word == "at_least":
        return None if number >= what else f"less than {what}"
    return None if number <= what else f"more than {what}"


def _of_end(expect: Expect, outcome: Outcome) -> Iterator[str]:
    wanted = expect.status or ("failed" if expect.error is not None else "done")
    error = outcome.error
    if outcome.status != wanted:
        why = "" if error is None else f": {error.code}: {error.message}"
        yield f"the run is {outcome.status}, not {wanted}{why}"
    elif expect.error is not None:
        if is_like(expect.error):
            wrong = differs(expect.error, "" if error is None else error.message)
        else:
            wrong = differs(expect.error, "" if error is None else error.code)
        if wrong is not None:
            yield f"the error {wrong}"


def _of_output(expect: Expect, outcome: Outcome) -> Iterator[str]:
    if expect.output is not None:
        wrong = differs(expect.output, outcome.output)
        if wrong is not None:
            yield f"the output {wrong}"
    if not expect.json and expect.schema is None:
        return
    try:
        value = decode_mended(decode, outcome.output.strip())
    except NotJson as error:
        yield f"the output is no JSON ({error}): {_quoted_value(outcome.output)}"
        return
    yield from _of_values("output", expect.json, value)
    if expect.schema is not None:
        yield from (f"the output does not fit the schema: {error}" for error in schema_errors(value, expect.schema))


def _of_values(what: str, wanted: Mapping[str, Any], value: Any) -> Iterator[str]:
    for path, each in wanted.items():
        try:
            wrong = differs(each, value_at(value, path))
        except PathMissing as missing:
            wrong = f"is not there: {missing}"
        if wrong is not None:
            yield f"{path} of the {what} {wrong}"


def _of_nodes(expect: Expect, outcome: Outcome) -> Iterator[str]:
    order = iter(outcome.order)
    for node in expect.nodes:
        if node not in order:  # continues after the last node found
            there = "in this order" if node in outcome.order else "at all"
            yield f"node '{node}' is not visited {there}: {', '.join(outcome.order) or 'none is'}"
            break
    for node, times in expect.visits.items():
        visits = outcome.nodes[node].visits if node in outcome.nodes else 0
        if visits != times:
            yield f"node '{node}' is visited {visits} times, not {times}"


def _of_calls(expect: Expect, seen: ObservedRun) -> Iterator[str]:
    for call in expect.calls:
        fit = [each for each in seen.calls if each.tool == call.tool and _fits(call, each)]
        if call.times is None and fit:
            continue
        if call.times is not None and len(fit) == call.times:
            continue
        times = "" if call.times is None else f" {call.times} times, but {len(fit)}"
        yield f"{_name(call)} is not called{times}; called are: {_listed(seen.calls)}"
    for tool in expect.no_calls:
        made = [each for each in seen.calls if each.tool == tool]
        if made:
            yield f"{tool} is called: {_listed(made)}"


def _fits(call: ExpectedCall, made: ObservedCall) -> bool:
    if not isinstance(made.arguments, dict):
        return all(is_like(wanted) and differs(wanted, made.arguments) is None for wanted in call.arguments.values())
    return all(
        name in made.arguments and differs(wanted, made.arguments[name]) is None
        for name, wanted in call.arguments.items()
    )


def _of_questions(expect: Expect, seen: ObservedRun) -> Iterator[str]:
    asked = iter(seen.asked)
    for wanted in expect.asks:
        if not any(differs(wanted, text) is None for text in asked):
            yield f"{_quoted_value(wanted)} is not asked, or not in this order; asked are: {_quoted_value(seen.asked)}"
            break


def _of_use(expect: Expect, outcome: Outcome, seconds: float) -> Iterator[str]:
    most, used = expect.at_most, outcome.usage.values()
    tokens = sum(each.input_tokens + each.output_tokens for each in used)
    cost = sum(each.cost for each in used)
    if most.cost is not None and not outcome.cost_complete:
        yield "it is not known what the run has cost: the price of a model is not known"
    for name, bound, value in (
        ("cost", most.cost, cost),
        ("turns", most.turns, outcome.turns),
        ("tokens", most.tokens, tokens),
        ("tool calls", most.tool_calls, outcome.tool_calls),
        ("seconds", most.seconds, round(seconds, 3)),
    ):
        if bound is not None and value > bound:
            yield f"the run has used {value:g} {name}, more than {bound:g}"


def _equal(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, bool) or isinstance(value, bool):
        return wanted is value
    return bool(wanted == value)


def _name(call: ExpectedCall) -> str:
    return call.tool if not call.arguments else f"{call.tool} with {_quoted_value(call.arguments)}"


def _listed(calls: Sequence[ObservedCall]) -> str:
    return ", ".join(f"{each.tool} {_quoted_value(each.arguments)}" for each in calls[:10]) or "none"


def _quoted_value(value: Any) -> str:
    text = _json(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return repr(value)
