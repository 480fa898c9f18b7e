"""What of a run is not as a case expects it, in sentences. Pure: it looks at an outcome, and at what was seen of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from .....protocol.cases import Expect, ExpectedCall, is_like
from .....protocol.events import Event, QuestionAsked, ToolStarted
from .....protocol.json_path import Missing, at
from .....protocol.json_values import NotJson, decode, decode_mended
from .....protocol.outcome import Outcome
from ....io.json_schema import schema_errors

LONGEST = 500
"""Characters of a value that is shown."""


class Called(msgspec.Struct, frozen=True):
    """A call that was made; of long arguments the text alone is known, its middle left out."""

    tool: str
    arguments: Any


class Seen:
    """What was seen of a run by its events."""

    def __init__(self) -> None:
        self.calls: list[Called] = []
        self.asked: list[str] = []

    def hear(self, event: Event) -> None:
        """An event of the run."""
        if isinstance(event.data, ToolStarted) and event.id:  # that of a script has none
            text = event.data.arguments
            try:
                arguments = msgspec.json.decode(text) if text else {}
            except msgspec.DecodeError:
                arguments = text
            self.calls.append(Called(event.data.tool, arguments))
        elif isinstance(event.data, QuestionAsked) and not event.data.question.get("permission"):
            self.asked.append(str(event.data.question.get("text", "")))


def unmet(expect: Expect, outcome: Outcome, seen: Seen, seconds: float) -> list[str]:
    """What is not as it was expected; a judge's verdict is another's (`judging`)."""
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
    """What a value is, where it is not as it was expected: in the words that follow its name; None if it is."""
    if not is_like(wanted):
        return None if _equal(wanted, value) else f"is {_shown(value)}, not {_shown(wanted)}"
    for word, what in wanted.items():
        wrong = _unlike(word, what, value)
        if wrong is not None:
            return f"is {_shown(value)}, and {wrong}"
    return None


def _unlike(word: str, what: Any, value: Any) -> str | None:
    text = value if isinstance(value, str) else _json(value)
    if word == "equals":
        return None if _equal(what, value) else f"not {_shown(what)}"
    if word in ("contains", "lacks"):
        inside = value if isinstance(value, list) else text
        for each in what if isinstance(what, list) else [what]:
            there = each in inside if isinstance(inside, list) else str(each) in inside
            if there is (word == "lacks"):
                return f"has {_shown(each)} in it" if there else f"has no {_shown(each)} in it"
        return None
    if word == "matches":
        return None if re.search(str(what), text) else f"does not match {what}"
    if word == "one_of":
        return None if any(_equal(each, value) for each in what) else f"none of {_shown(what)}"
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
        yield f"the output is no JSON ({error}): {_shown(outcome.output)}"
        return
    yield from _of_values("output", expect.json, value)
    if expect.schema is not None:
        yield from (f"the output does not fit the schema: {error}" for error in schema_errors(value, expect.schema))


def _of_values(what: str, wanted: Mapping[str, Any], value: Any) -> Iterator[str]:
    for path, each in wanted.items():
        try:
            wrong = differs(each, at(value, path))
        except Missing as missing:
            wrong = f"is not there: {missing}"
        if wrong is not None:
            yield f"{path} of the {what} {wrong}"


def _of_nodes(expect: Expect, outcome: Outcome) -> Iterator[str]:
    order = iter(outcome.order)
    for node in expect.nodes:
        if node not in order:  # which goes on behind the last that was found
            there = "in this order" if node in outcome.order else "at all"
            yield f"node '{node}' is not visited {there}: {', '.join(outcome.order) or 'none is'}"
            break
    for node, times in expect.visits.items():
        visits = outcome.nodes[node].visits if node in outcome.nodes else 0
        if visits != times:
            yield f"node '{node}' is visited {visits} times, not {times}"


def _of_calls(expect: Expect, seen: Seen) -> Iterator[str]:
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


def _fits(call: ExpectedCall, made: Called) -> bool:
    if not isinstance(made.arguments, dict):
        return all(is_like(wanted) and differs(wanted, made.arguments) is None for wanted in call.arguments.values())
    return all(
        name in made.arguments and differs(wanted, made.arguments[name]) is None
        for name, wanted in call.arguments.items()
    )


def _of_questions(expect: Expect, seen: Seen) -> Iterator[str]:
    asked = iter(seen.asked)
    for wanted in expect.asks:
        if not any(differs(wanted, text) is None for text in asked):
            yield f"{_shown(wanted)} is not asked, or not in this order; asked are: {_shown(seen.asked)}"
            break


def _of_use(expect: Expect, outcome: Outcome, seconds: float) -> Iterator[str]:
    most, used = expect.at_most, outcome.usage.values()
    tokens = sum(each.input_tokens + each.output_tokens for each in used)
    cost = sum(each.cost for each in used)
    if most.cost is not None and not outcome.priced:
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
    return call.tool if not call.arguments else f"{call.tool} with {_shown(call.arguments)}"


def _listed(calls: Sequence[Called]) -> str:
    return ", ".join(f"{each.tool} {_shown(each.arguments)}" for each in calls[:10]) or "none"


def _shown(value: Any) -> str:
    text = _json(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return repr(value)
