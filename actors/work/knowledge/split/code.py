"""Programs: by what stands at the left margin after an empty line, then definitions, empty lines, lines, words.

One set of words serves all languages: that a class is called `class` and a function `func` or `fn` or `def` holds
across them, and a word that means something else in one of them costs no more than a cut at a line's end. What is
attached to a definition from above (decorators, attributes) stays with it.
"""

from __future__ import annotations

import re

from .cutter import Level
from .prose import LINES, PARAGRAPHS, WORDS

_MODIFIERS = (
    "export|default|declare|pub(?:\\([^)\n]*\\))?|public|private|protected|internal|static|final|abstract|async|override"
    "|open|sealed|virtual|inline|extern|unsafe|partial|data|case|suspend|local|const|constexpr"
)
_DEFINITIONS = (
    "def|defp|defmodule|defmacro|class|interface|struct|enum|trait|impl|mod|module|fn|func|fun|function|sub|package"
    "|namespace|template|type|typedef|object|extension|protocol|union|record|macro_rules!"
)
_STATEMENTS = "CREATE|ALTER|DROP|INSERT|UPDATE|DELETE|SELECT|WITH|create|alter|drop|insert|update|delete|select|with"
_SECTIONS = r"\\(?:part|chapter|section|subsection|subsubsection)\b"

_ATTACHED = r"(?:[ \t]*(?:@|#\[)[^\n]*\n){0,9}"


def _at_lines(words: str) -> Level:
    return Level(0.3, re.compile(rf"(\n){_ATTACHED}[ \t]*(?:{words})"))


_TOP = Level(0.25, re.compile(r"(\n[ \t]*\n)(?=[^\s)\]}])"))
_MIDDLE = _at_lines(rf"(?:(?:{_MODIFIERS})\s+)*(?:{_DEFINITIONS})\b")
_OF_LANGUAGES = {
    "sql": _at_lines(rf"(?:{_STATEMENTS})\b"),
    "tex": _at_lines(_SECTIONS),
    "latex": _at_lines(_SECTIONS),
    "bash": _at_lines(r"(?:function[ \t]+)?[\w-]+[ \t]*\(\)"),
    "shell": _at_lines(r"(?:function[ \t]+)?[\w-]+[ \t]*\(\)"),
    "yaml": Level(0.3, re.compile(r"(\n)(?=[^\s#\-])")),
    "toml": Level(0.3, re.compile(r"(\n)(?=\[)")),
    "ini": Level(0.3, re.compile(r"(\n)(?=\[)")),
}


def levels(language: str) -> tuple[Level, ...]:
    """The places where a program in that language is cut, the best first."""
    return (_TOP, _OF_LANGUAGES.get(language, _MIDDLE), PARAGRAPHS, LINES, WORDS)
