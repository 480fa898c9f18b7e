"""Syntax highlighting, line by line.

Pygments expects whole texts. Here a line is settled as soon as it is complete. So the lexer's state stack is carried
from line to line, and its regular expressions see one line at a time. The stack covers comments and strings over
several lines. Constructs that a lexer recognises only by later lines are coloured slightly differently. Lexers that are
not based on regular expressions read each line in isolation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

_LONGEST = 2_000
"""Longest line that is coloured: regular expressions of lexers may take quadratic time."""

_DEEPEST = 60
"""Longest state stack; a longer one is a lexer bug and resets it."""

_NAME = re.compile(r"[\w+#.\-]+")
_ALIASES = {"shell": "bash", "sh": "bash", "zsh": "bash", "jsonc": "json", "json5": "json", "golang": "go"}
_PLAIN = frozenset(("text", "txt", "plain", "plaintext", "output", "none", "log", "markdown", "md"))


class Colouring:
    """Lexer state between two lines. An incomplete line is coloured with a `copy`."""

    def __init__(self, lexer: Any, stack: tuple[str, ...] = ("root",)) -> None:
        self._lexer = lexer
        self._stack = stack

    def copy(self) -> Colouring:
        return Colouring(self._lexer, self._stack)

    def line(self, text: str) -> list[tuple[Any, str]]:
        """Return the line as pairs of token type and text. The texts joined are the line."""
        if self._lexer is None or len(text) > _LONGEST:
            return [(None, text)]
        tokens: list[tuple[Any, str]] = []
        try:
            for kind, value in self._tokens(text + "\n"):
                if value := value.replace("\n", ""):
                    tokens.append((kind, value))
        except Exception:  # noqa: BLE001 - lexers fail on some fragments, and missing colours must not fail a run
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
        """Reimplement `RegexLexer.get_tokens_unprocessed`, which does not return its final stack."""
        from pygments.token import Error, Whitespace, _TokenType

        tables = self._lexer._tokens  # noqa: SLF001 - Pygments has no public access to its compiled rules
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
    """Return the highlighter for the info string of a fence (` ```python title="x" `).

    For an unknown language or plain text, it returns each line without colours.
    """
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
