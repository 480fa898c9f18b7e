"""AGENTS.md: instructions by users for the agents that work in a directory.

    <config>/AGENTS.md          the user's own, for all directories
    ./AGENTS.md, ../AGENTS.md   from the directory of the run up to the root of its repository, nearest first

In a directory without AGENTS.md, its CLAUDE.md is used. `@path` in a file imports another file of the workspace, once,
up to `trust.DEEPEST_IMPORT` levels. Files of a workspace are used only if they are trusted (`trust`). An agent gets
them in its system prompt. The files of a directory further down are appended to a tool's result, when a tool of the
agent first works there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from .trust import DEEPEST_IMPORT, INSTRUCTIONS, MOST_IMPORTS, Trusted, imported_in, levels

LARGEST_FILE = 40_000
"""Most characters of one file that agents get."""

LARGEST = 100_000
"""Most characters of all files together."""

_HEAD = """\
## Instructions for this directory
The people who work in {here} have written down how it is done here. What the user says, and what stands above, goes \
before it; of two of these files the one that comes first."""

_FOUND = "[{file} has instructions for agents that work there:]\n{text}"


class Instructions(msgspec.Struct, frozen=True, kw_only=True):
    """Text of one file, with its imports.

    Attributes:
        file: name of the file in messages.
    """

    file: str
    text: str


def of_user(config_dir: Path) -> list[Instructions]:
    """Return the instructions of the user's configuration directory."""
    file = config_dir / INSTRUCTIONS[0]
    try:
        with file.open("rb") as opened:
            # A character has at most 4 bytes in UTF-8.
            text = opened.read(LARGEST_FILE * 4).decode("utf-8-sig", "replace").strip()
    except OSError:
        return []
    return [Instructions(file=str(file), text=_shortened(text, str(file)))] if text else []


def of_workspace(trusted: Trusted, directory: Path) -> list[Instructions]:
    """Return the instructions for a directory of a workspace, nearest first."""
    return _bounded(_of(trusted, place) for place in levels(directory, trusted.root))


def on_the_way(trusted: Trusted, directory: Path, to: Path) -> list[Instructions]:
    """Return the instructions of directories between the run's and `to`, which is further down.

    The directory nearest to `to` comes first.
    """
    above = set(levels(directory, trusted.root))
    places = [place for place in levels(to, trusted.root) if place not in above]
    return _bounded(_of(trusted, place) for place in places)


def block(found: Iterable[Instructions], here: Path) -> str:
    """Return the section of the system prompt; "" without instructions."""
    parts = [f"### {each.file}\n{each.text}" for each in found]
    return "\n\n".join([_HEAD.format(here=here), *parts]) if parts else ""


def note(found: Instructions) -> str:
    """Return the text to append to a tool's result for a newly entered directory."""
    return _FOUND.format(file=found.file, text=found.text)


def marks(file: str) -> str:
    """Return the start of a file's `note`, which shows that a conversation already has the file."""
    return _FOUND.partition("{text}")[0].format(file=file)


def _of(trusted: Trusted, place: Path) -> Instructions | None:
    for name in INSTRUCTIONS:
        file = place / name
        if not file.is_file():
            continue
        text = trusted.text(file)
        if text is None or not text.strip():
            return None
        parts = [text.strip(), *_imported(trusted, file, text)]
        shown = os.path.relpath(file, trusted.root)
        return Instructions(file=shown, text=_shortened("\n\n".join(parts), shown))
    return None


def _imported(trusted: Trusted, file: Path, text: str) -> list[str]:
    """Return the texts of all files that a text imports, directly or indirectly, each once."""
    found: dict[Path, str] = {}
    todo = [(file, text, 0)]
    while todo and len(found) < MOST_IMPORTS:
        # Breadth first: if there are too many imports, the direct ones are used.
        whose, said, depth = todo.pop(0)
        for name in imported_in(said) if depth < DEEPEST_IMPORT else ():
            other = Path(os.path.normpath(whose.parent / name))
            if other == file or other in found:
                continue
            inner = trusted.text(other)
            if inner is not None:
                found[other] = f"From {os.path.relpath(other, trusted.root)}:\n{inner.strip()}"
                todo.append((other, inner, depth + 1))
    return list(found.values())


def _bounded(found: Iterable[Instructions | None]) -> list[Instructions]:
    """Return the files in order, without the ones that exceed the total limit."""
    kept: list[Instructions] = []
    left = LARGEST
    for each in found:
        if each is not None and len(each.text) <= left:
            kept.append(each)
            left -= len(each.text)
    return kept


def _shortened(text: str, file: str) -> str:
    if len(text) <= LARGEST_FILE:
        return text
    return f"{text[:LARGEST_FILE]}\n[... {file} goes on for {len(text) - LARGEST_FILE} more characters, left out here]"
