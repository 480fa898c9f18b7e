"""The `validation` of an input node: `len(input) OP N`, and nothing else.

A deliberately narrow language. What a text really has to look like is the business of a script node behind
the input, which can say what it wants in any words.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import msgspec

from ....protocol.errors import GraphMistake

_SUBJECT = "len(input)"
_OPERATORS: dict[str, tuple[Callable[[int, int], bool], str]] = {
    # Two-character operators first: `>=` begins with `>`.
    ">=": (operator.ge, "at least"),
    "<=": (operator.le, "at most"),
    "==": (operator.eq, "exactly"),
    ">": (operator.gt, "more than"),
    "<": (operator.lt, "fewer than"),
}


class LengthRule(msgspec.Struct, frozen=True):
    """A parsed rule: the length of the input stands in relation `op` to `n`."""

    text: str
    op: str
    n: int

    def problem(self, answer: str, *, in_bytes: bool = False) -> str | None:
        """Why the answer does not do, or None if it does. `in_bytes` measures UTF-8 bytes, as Loki 0.4.0 did."""
        length = len(answer.encode("utf-8", "surrogatepass")) if in_bytes else len(answer)
        if _OPERATORS[self.op][0](length, self.n):
            return None
        return f"Input failed validation '{self.text}' (got {len(answer)} chars)"

    def sentence(self) -> str:
        """The rule for people: `at least 3 characters`."""
        return f"{_OPERATORS[self.op][1]} {self.n} {'character' if self.n == 1 else 'characters'}"


def parse_rule(text: str) -> LengthRule:
    """The rule that a `validation` text states.

    Raises:
        GraphMistake: it states none; the message says what is wrong with it.
    """
    rule = text.strip()
    if not rule.startswith(_SUBJECT):
        raise GraphMistake(f"Unsupported validation expression '{text}'; only `len(input) OP N` is supported")
    rest = rule.removeprefix(_SUBJECT).strip()
    op = next((op for op in _OPERATORS if rest.startswith(op)), None)
    if op is None:
        raise GraphMistake(
            f"No comparison operator in validation expression '{text}'; it has to be one of > >= < <= =="
        )
    digits = rest.removeprefix(op).strip()
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 9:
        raise GraphMistake(f"Invalid right-hand side in validation '{text}'; it has to be a whole number")
    return LengthRule(text, op, int(digits))
