"""`validation` of an input node: `len(input) OP N`, and nothing else.

The language is deliberately narrow. A script node after the input can check anything else, with messages of its
own.
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
    """Parsed rule: the length of the input compared with `n` by `op`."""

    text: str
    op: str
    n: int

    def problem(self, answer: str, *, in_bytes: bool = False) -> str | None:
        """Return the reason to reject the answer, or None. `in_bytes` counts UTF-8 bytes, as Loki 0.4.0 does."""
        length = len(answer.encode("utf-8", "surrogatepass")) if in_bytes else len(answer)
        if _OPERATORS[self.op][0](length, self.n):
            return None
        return f"Input failed validation '{self.text}' (got {len(answer)} chars)"

    def sentence(self) -> str:
        """Return the rule as text for users: `at least 3 characters`."""
        return f"{_OPERATORS[self.op][1]} {self.n} {'character' if self.n == 1 else 'characters'}"


def parse_rule(text: str) -> LengthRule:
    """Parse the text of a `validation`.

    Raises:
        GraphMistake: the text is not a rule; the message says why.
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
    # `isdigit` alone accepts superscripts, which `int` refuses, and the digits of other scripts.
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 9:
        raise GraphMistake(f"Invalid right-hand side in validation '{text}'; it has to be a whole number")
    return LengthRule(text, op, int(digits))
