"""Conditions of edges: made into functions once, asked at every message.

A condition sees the text of what the source said, before any processor of the edge. Named functions come from outside
(`Functions`) and may take their time, as may patterns (`matching`); everything else answers at once.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import reduce
from inspect import isawaitable
from operator import or_
from typing import Any, TypeAlias

import msgspec

from .....protocol.problems import did_you_mean
from .....protocol.workflow.edges import Always, Condition, FunctionCondition, KeywordCondition, Never, RegexCondition
from .matching import Pattern

Test: TypeAlias = Callable[[str], bool | Awaitable[bool]]
"""Whether an edge is taken, given what its source said: also a function of `functions/edge/`."""

Change: TypeAlias = Callable[[str], Any]
"""A function of `functions/edge_processor/`, given a text. May be awaited."""

CODE_FAILED = "==CODE EXECUTION FAILED=="
"""How the output of a python node begins whose code failed."""


class Functions(msgspec.Struct, frozen=True, kw_only=True):
    """The functions a workflow may name, beside the built-in ones; one of the same name comes before those."""

    conditions: Mapping[str, Test] = {}
    processors: Mapping[str, Change] = {}


class Missing(msgspec.Struct, frozen=True):
    """A function that is nowhere to be found."""

    kind: str
    name: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        near = did_you_mean(self.name, self.known)
        return f"there is no {self.kind} function '{self.name}'" + (f": {near}" if near else "")


def predicate_of(condition: Condition, functions: Functions) -> Test | Missing:
    """The condition as a function."""
    match condition:
        case Always():
            return lambda _text: True
        case Never():
            return lambda _text: False
        case FunctionCondition(name=name):
            known = {**BUILT_IN, **functions.conditions}
            judge = known.get(name)
            return Missing("condition", name, tuple(known)) if judge is None else judge
        case KeywordCondition():
            return _keywords(condition)
        case RegexCondition(pattern=pattern, flags=flags):
            return Pattern(pattern, reduce(or_, (re.RegexFlag[flag] for flag in flags), re.NOFLAG)).is_in


def _keywords(condition: KeywordCondition) -> Test:
    """`none` speaks first, then `all`; then one of `any` and `regex` is enough, if there are any."""
    exact = condition.case_sensitive

    def words(listed: tuple[str, ...]) -> list[str]:
        return [word if exact else word.lower() for word in listed if word]

    none, every, some = words(condition.none), words(condition.all), words(condition.any)
    searched = [Pattern(each, re.NOFLAG if exact else re.IGNORECASE).is_in for each in condition.regex]
    wants_one = bool(condition.any or condition.regex)

    def test(text: str) -> bool | Awaitable[bool]:
        looked_at = text if exact else text.lower()
        if any(word in looked_at for word in none) or not all(word in looked_at for word in every):
            return False
        if not wants_one:
            return True
        return any(word in looked_at for word in some) or _any(searched, text)

    return test


def _any(tests: Sequence[Test], text: str) -> bool | Awaitable[bool]:
    for i, test in enumerate(tests):
        met = test(text)
        if isawaitable(met):
            return _any_of_the_rest(met, tests[i + 1 :], text)
        if met:
            return True
    return False


async def _any_of_the_rest(first: Awaitable[bool], tests: Sequence[Test], text: str) -> bool:
    if await first:
        return True
    met = _any(tests, text)
    return await met if isawaitable(met) else met


_VERDICT = re.compile(r"verdict\s*:\s*(\w+)", re.IGNORECASE)


def _stops(text: str) -> bool:
    """Whether a reviewer's text says `Verdict: STOP` or `Verdict: DONE`."""
    verdict = _VERDICT.search(text)
    return verdict is not None and verdict[1].upper() in {"STOP", "DONE"}


BUILT_IN: dict[str, Test] = {
    "true": lambda _text: True,
    "always_false": lambda _text: False,
    "contains_keyword": lambda text: "trigger" in text.lower(),
    "not_contains_keyword": lambda text: "trigger" not in text.lower(),
    "length_greater_than_5": lambda text: len(text) > 5,
    "code_pass": lambda text: CODE_FAILED not in text,
    "code_fail": lambda text: CODE_FAILED in text,
    "need_reflection_loop": lambda text: not _stops(text),
    "should_stop_loop": _stops,
}
"""Conditions that need no file."""
