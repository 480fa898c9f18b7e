"""The commands that README.md and docs/ print, read from the pages as they stand.

A command is a line of an indented block that begins with a program of `_TYPED`. What stands behind two spaces or
`#` is the page's own comment. A line with placeholders (`TARGET`, `[OPTIONS]`) is a synopsis: it can't be run. A file
is a fenced block whose paragraph ends with its name (Write `haiku.yaml`:).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

_TYPED = re.compile(r"(callboard|pip|pytest|make|curl|cp|source|git|export|eval)(\s|$)|TOKEN=")

_NAMED = re.compile(r"`([\w./-]+\.(?:ya?ml|sh|py|json))`[^`.]*:\s*$")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_PLACEHOLDER = re.compile(
    r"(?<![\w$/.=-])[A-Z][A-Z_|]{2,}(?![\w=/])|(?<!\S)\[|\.\.\.(?!\w)|=[A-Z]{3,}\b|(?<=\w)\|(?=\w)"
)


class Command(NamedTuple):
    """A command of a page: its line number, what is typed, and what the page says of it."""

    line: int
    text: str
    comment: str


class File(NamedTuple):
    """A file that the page has its reader write."""

    line: int
    name: str
    content: str


def pages() -> list[str]:
    """All pages, README.md first."""
    return ["README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]


def steps(page: str) -> Iterator[Command | File]:
    """What the page has its reader do, in order."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    number, before, indented = 0, "", False
    while number < len(lines):
        line = lines[number]
        if line.startswith("```"):
            end = next(at for at in range(number + 1, len(lines)) if lines[at].startswith("```"))
            if named := _NAMED.search(before):
                yield File(number + 1, named[1], "\n".join(lines[number + 1 : end]) + "\n")
            number, before = end + 1, ""
            continue
        indented = line.startswith("    ") and (indented or not before.strip() or not lines[number - 1].strip())
        if indented and not re.match(r"\s*[-*] ", before):
            text, number = _joined(lines, number)
            if _TYPED.match(text):
                yield _command(number + 1, text)
        if line.strip():
            before = line
        number += 1


def fences(page: str) -> list[str]:
    """The fenced blocks of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def is_synopsis(command: str) -> bool:
    """Whether there are placeholders in it."""
    return command.startswith("callboard") and _PLACEHOLDER.search(_QUOTED.sub("''", command)) is not None


def _joined(lines: list[str], number: int) -> tuple[str, int]:
    """The line with those that its backslashes continue, and the number of the last of them."""
    text = lines[number].strip()
    while text.endswith("\\"):
        number += 1
        text = text[:-1] + lines[number].strip()
    return text, number


def _command(line: int, text: str) -> Command:
    masked = _QUOTED.sub(lambda quoted: "x" * len(quoted[0]), text)
    cut = re.search(r"\s{2,}|\s+#", masked)
    if cut is None:
        return Command(line, text, "")
    return Command(line, text[: cut.start()], text[cut.end() :].lstrip("# ").strip())
