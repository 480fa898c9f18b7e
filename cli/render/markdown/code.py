"""Code in colours, line by line.

Pygments reads whole texts. Here a line is settled as soon as it is complete, so the state of the lexer (its stack) is
kept from line to line, and its regular expressions see one line at a time. Comments and strings over several lines
are in the stack; what a lexer can tell only from lines that come later is coloured a little differently. Lexers that
are made otherwise read each line by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

_LONGEST = 2_000
"""Characters of a line that is coloured: regular expressions of lexers may take the square of it."""

_DEEPEST = 60
"""States on a stack; more are a lexer's error, and it begins anew."""

_NAME = re.compile(r"[\w+#.\-]+")
_ALIASES = {"shell": "bash", "sh": "bash", "zsh": "bash", "jsonc": "json", "json5": "json", "golang": "go"}
_PLAIN = frozenset(("text", "txt", "plain", "plaintext", "output", "none", "log", "markdown", "md"))


class Colouring:
    """The state of one piece of code between two lines; `copy` is how a line that is not complete is looked at."""

    def __init__(self, lexer: Any, stack: tuple[str, ...] = ("root",)) -> None:
        self._lexer = lexer
        self._stack = stack

    def copy(self) -> Colouring:
        return Colouring(self._lexer, self._stack)

    def line(self, text: str) -> list[tuple[Any, str]]:
        """The line as tokens: their type, and their text. All texts together are the line."""
        if self._lexer is None or len(text) > _LONGEST:
            return [(None, text)]
        tokens: list[tuple[Any, str]] = []
        try:
            for kind, value in self._tokens(text + "\n"):
                if value := value.replace("\n", ""):
                    tokens.append((kind, value))
        except Exception:  # noqa: BLE001 - a lexer that stumbles over a piece of a text; colours are no reason to fail
            self._stack = ("root",)
            return [(None, text)]
        return tokens if "".join(value for _, value in tokens) == text else [(None, text)]

    def _tokens(self, text: str) -> Iterator[tuple[Any, str]]:
        from pygments.lexer import ExtendedRegexLexer, LexerContext, RegexLexer

        reads = type(self._lexer).get_tokens_unprocessed
        if reads is ExtendedRegexLexer.get_tokens_unprocessed:
            context = LexerContext(text, 0, list(self._stack))
            for _, kind, value in self._lexer.get_tokens_unprocessed(context=context):
                yield kind, value
            self._keep(context.stack)
        elif reads is RegexLexer.get_tokens_unprocessed:
            yield from self._by_rules(text)
        else:
            for _, kind, value in self._lexer.get_tokens_unprocessed(text):
                yield kind, value

    def _keep(self, stack: list[str]) -> None:
        self._stack = tuple(stack) if len(stack) <= _DEEPEST else ("root",)

    def _by_rules(self, text: str) -> Iterator[tuple[Any, str]]:
        """What `RegexLexer.get_tokens_unprocessed` does, and the stack at the end, which that one keeps to itself."""
        from pygments.token import Error, Whitespace, _TokenType

        tables = self._lexer._tokens  # noqa: SLF001 - the rules as Pygments compiles them; there is no other way in
        stack, at = list(self._stack), 0
        while True:
            for match, action, change in tables[stack[-1]]:
                found = match(text, at)
                if not found:
                    continue
                if action is not None:
                    if type(action) is _TokenType:
                        yield action, found.group()
                    else:
                        for _, kind, value in action(self._lexer, found):
                            yield kind, value
                at = found.end()
                if change is not None:
                    _change(stack, change)
                break
            else:
                if at >= len(text):
                    break
                if text[at] == "\n":
                    stack = ["root"]
                yield (Whitespace if text[at] == "\n" else Error), text[at]
                at += 1
        self._keep(stack)


def _change(stack: list[str], change: tuple[str, ...] | int | str) -> None:
    if isinstance(change, int):
        del stack[max(1, len(stack) + change) :]
        return
    for state in change if isinstance(change, tuple) else (change,):
        if state == "#pop":
            if len(stack) > 1:
                stack.pop()
        else:
            stack.append(stack[-1] if state == "#push" else state)


def colouring(info: str) -> Colouring:
    """For a fence with this text behind it (` ```python title="x" `)."""
    found = _NAME.match(info.strip().lstrip("{."))
    return Colouring(_lexer(found.group().lower()[:40]) if found else None)


@lru_cache(32)
def _lexer(name: str) -> Any:
    name = _ALIASES.get(name, name)
    if name in _PLAIN:
        return None
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(name)
    except ClassNotFound:
        return None
