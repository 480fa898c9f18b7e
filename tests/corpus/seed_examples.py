"""The examples that the founding documents print: found in their texts, and told apart by language.

Most pages have lost the indentation of their examples, and doubled their lines; one is a comparison without its signs.
So an example is what stands between fences, what follows a `#!` line, what a page without fences prints as YAML, and
the one page that is YAML as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

Language = Literal["yaml", "python", "shell"]

LANGUAGES: dict[str, Language] = {"yaml": "yaml", "python": "python", "bash": "shell", "sh": "shell", "shell": "shell"}

_FENCE = re.compile(r"\s*```(\w*)\s*$")
_KEY = re.compile(r"(?:- )?[A-Za-z_][\w-]*:(?: |$)|# ---")
_WHOLE = "# Graph-based agent definition"


class Example(msgspec.Struct, frozen=True):
    """One of them, with the line that it begins at."""

    language: Language
    line: int
    text: str


def examples(file: Path) -> list[Example]:
    """Every example of a document, in its order."""
    lines = file.read_text(encoding="utf-8").splitlines()
    found = [*_fenced(lines), *_scripts(lines)]
    if not found:
        found = [*_whole(lines)] or [*_unfenced(lines)]
    return sorted(found, key=lambda each: each.line)


def _fenced(lines: list[str]) -> Iterator[Example]:
    """Between fences; one that names a language opens, whatever was open before."""
    language: Language | None = None
    begun = 0
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if language is not None:
            yield Example(language, begun + 2, _text(lines[begun + 1 : number]))
        language = LANGUAGES.get(fence[1])
        begun = number


def _scripts(lines: list[str]) -> Iterator[Example]:
    """New files of the comparison: from their `#!` to the next file."""
    for number, line in enumerate(lines):
        if line.startswith("#!") and number and lines[number - 1].startswith("@@ -0,0 "):
            end = next((n for n in range(number, len(lines)) if lines[n].startswith("@@ ")), len(lines))
            language: Language = "python" if "python" in line else "shell"
            yield Example(language, number + 1, _text(lines[number:end]))


def _whole(lines: list[str]) -> Iterator[Example]:
    begun = next((n for n, line in enumerate(lines) if line.startswith(_WHOLE)), None)
    if begun is not None:
        yield Example("yaml", begun + 1, _text(lines[begun:]))


def _unfenced(lines: list[str]) -> Iterator[Example]:
    """Where no fences are: a key at the margin after an empty line, and on to where prose begins."""
    number = 0
    while number < len(lines):
        if not _KEY.match(lines[number]) or lines[number - 1].strip():
            number += 1
            continue
        end = number
        while end < len(lines) and (not lines[end] or lines[end].startswith("  ") or _KEY.match(lines[end])):
            if lines[end].lstrip().startswith("•"):
                break
            end += 1
        text = _text(lines[number:end])
        if "\n" in text.strip():
            yield Example("yaml", number + 1, text)
        number = end + 1


def _text(lines: list[str]) -> str:
    """With the empty lines left out that the page has put between any two."""
    if lines and sum(not line.strip() for line in lines) >= len(lines) // 2:
        lines = [line for line in lines if line.strip()]
    return "\n".join(lines) + "\n"
