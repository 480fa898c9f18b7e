"""AGENTS.md: what people have written for the agents that work in a directory.

    <config>/AGENTS.md          the user's own, everywhere
    ./AGENTS.md, ../AGENTS.md   from the directory of the run up to the root of its repository, nearest first

Where a directory has no AGENTS.md its CLAUDE.md counts. `@path` in one of them brings in another file of the
workspace, once, as far down as `trust.offered` says. Files of a workspace count if they are trusted (`trust`). An agent
is told them in its system prompt; those of a directory further down when one of its tools first works there, behind the
tool's result.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from .trust.offered import DEEPEST_IMPORT, INSTRUCTIONS, MOST_IMPORTS, imported_in
from .trust.place import levels
from .trust.trusted import Trusted

LARGEST_FILE = 40_000
"""Characters of one file that agents are told."""

LARGEST = 100_000
"""Characters of all of them."""

_HEAD = """\
## Instructions for this directory
The people who work in {here} have written down how it is done here. What the user says, and what stands above, goes \
before it; of two of these files the one that comes first."""

_FOUND = "[{file} has instructions for agents that work there:]\n{text}"


class Instructions(msgspec.Struct, frozen=True, kw_only=True):
    """One file's text, with what it brings in.

    Attributes:
        file: its name, as people see it.
    """

    file: str
    text: str


def of_user(config_dir: Path) -> list[Instructions]:
    """The user's own."""
    file = config_dir / INSTRUCTIONS[0]
    try:
        with file.open("rb") as opened:
            text = opened.read(LARGEST_FILE * 4).decode("utf-8-sig", "replace").strip()
    except OSError:
        return []
    return [Instructions(file=str(file), text=_shortened(text, str(file)))] if text else []


def of_workspace(trusted: Trusted, directory: Path) -> list[Instructions]:
    """Those that count in a directory of a workspace, nearest first."""
    return _bounded(_of(trusted, place) for place in levels(directory, trusted.root))


def on_the_way(trusted: Trusted, directory: Path, to: Path) -> list[Instructions]:
    """Those of directories between the run's and `to`, which is further down; the nearest to `to` first."""
    above = set(levels(directory, trusted.root))
    places = [place for place in levels(to, trusted.root) if place not in above]
    return _bounded(_of(trusted, place) for place in places)


def block(found: Iterable[Instructions], here: Path) -> str:
    """What the system prompt says of them; "" for none."""
    parts = [f"### {each.file}\n{each.text}" for each in found]
    return "\n\n".join([_HEAD.format(here=here), *parts]) if parts else ""


def note(found: Instructions) -> str:
    """What stands behind a tool's result about a file that has just come to count."""
    return _FOUND.format(file=found.file, text=found.text)


def marks(file: str) -> str:
    """The beginning of its `note`, by which a conversation that was told of a file already is known."""
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
    """The texts of the files that a text names, and that they name in turn, each once."""
    found: dict[Path, str] = {}
    todo = [(file, text, 0)]
    while todo and len(found) < MOST_IMPORTS:
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
    """As many as may be told, the first ones."""
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
