"""Conditions of edges, compiled to functions.

A condition reads the source's text before any processor of the edge. Named functions are injected (`Functions`) and
can be slow, as can regular expressions (`matching`); all others return immediately.
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
from .....protocol.workflow.model import Always, Condition, FunctionCondition, KeywordCondition, Never, RegexCondition
from .matching import Pattern

Test: TypeAlias = Callable[[str], bool | Awaitable[bool]]
"""Condition function: True if the edge is taken for this text of its source; also a function of `functions/edge/`."""

Change: TypeAlias = Callable[[str], Any]
"""Processor function of `functions/edge_processor/`; its result can be awaitable."""

CODE_FAILED = "==CODE EXECUTION FAILED=="
"""First line of a python node's output if its code failed."""


class Functions(msgspec.Struct, frozen=True, kw_only=True):
    """User functions that a workflow can name; they override built-in functions of the same name."""

    conditions: Mapping[str, Test] = {}
    processors: Mapping[str, Change] = {}


class MissingFunction(msgspec.Struct, frozen=True):
    """Name of a function that does not exist."""

    kind: str
    name: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        near = did_you_mean(self.name, self.known)
        return f"there is no {self.kind} function '{self.name}'" + (f": {near}" if near else "")


def predicate_of(condition: Condition, functions: Functions) -> Test | MissingFunction:
    """Return the condition as a function."""
    match condition:
        case Always():
            return lambda _text: True
        case Never():
            return lambda _text: False
        case FunctionCondition(name=name):
            known = {**BUILT_IN, **functions.conditions}
            judge = known.get(name)
            return MissingFunction("condition", name, tuple(known)) if judge is None else judge
        case KeywordCondition():
            return _keywords(condition)
        case RegexCondition(pattern=pattern, flags=flags):
            return Pattern(pattern, reduce(or_, (re.RegexFlag[flag] for flag in flags), re.NOFLAG)).is_in


def _keywords(condition: KeywordCondition) -> Test:
    """Return the test of a keyword condition.

    `none` takes precedence, then `all`; then one match of `any` or `regex` suffices, if there are any.
    """
    exact = condition.case_sensitive

    def words(listed: tuple[str, ...]) -> list[str]:
        # As in DevAll, an empty word matches nothing. As a substring it would match every text.
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
        # Words first, because they need no regular expression.
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
    """Return True if a reviewer's text contains `Verdict: STOP` or `Verdict: DONE`."""
    verdict = _VERDICT.search(text)
    return verdict is not None and verdict[1].upper() in {"STOP", "DONE"}


# DevAll's functions, with the words and lengths that are fixed there.
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
"""Condition functions that need no file."""
