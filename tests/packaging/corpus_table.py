"""Writes docs/corpus.md: `python tests/packaging/corpus_table.py` (or `make docs`).

It is made of what tests/corpus has recorded; a test compares the page with what this makes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "corpus.md"
sys.path.insert(0, str(ROOT / "tests"))

from corpus.strangers import FAMILIES, Family, Outcome, recorded  # noqa: E402 - found through the line above

TITLES: dict[Family, str] = {
    "loki-0.4.0": "Loki 0.4.0",
    "coyote": "Coyote, Loki's successor",
    "chatdev": "ChatDev (DevAll)",
    "seeds": "The founding documents of Callboard",
}

HEAD = """\
# Files of other projects

Callboard runs the files of Loki, its successor and DevAll as they are. This page says what came of trying: every
shipped agent, tool, role, macro, workflow and function of theirs was read, and run with a scripted model as far as no
network and no key are needed. Tests compare this with what happens ([CONTRIBUTING.md](../CONTRIBUTING.md) says how);
this page is written by `make docs` from `tests/corpus/outcomes/`.

**works**: as its authors would expect. **needs**: something that a test can't give it, such as a program, a key or the
network; it was read without a problem. **cannot**: it doesn't work, and why.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_summary(), *(line for family in FAMILIES for line in _section(family))])


def _summary() -> Iterator[str]:
    yield "| | files | attempts | works | needs | cannot |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for family in FAMILIES:
        outcomes = recorded(family)
        counts = [sum(outcome.status == status for outcome in outcomes) for status in ("works", "needs", "cannot")]
        files = len({outcome.file for outcome in outcomes})
        yield f"| {TITLES[family]} | {files} | {len(outcomes)} | " + " | ".join(map(str, counts)) + " |"
    yield ""


def _section(family: Family) -> Iterator[str]:
    outcomes = sorted(recorded(family))
    if not outcomes:
        return
    yield f"## {TITLES[family]}\n"
    yield "| file | works | needs | cannot |"
    yield "| --- | --- | --- | --- |"
    for file, of_file in groupby(outcomes, key=lambda outcome: outcome.file):
        tried = list(of_file)
        works = ", ".join(outcome.what for outcome in tried if outcome.status == "works")
        yield f"| `{file}` | {works} | {_why(tried, 'needs')} | {_why(tried, 'cannot')} |"
    yield ""


def _why(outcomes: Iterable[Outcome], status: str) -> str:
    """What was tried, after its reason."""
    reasons: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.status == status:
            reasons.setdefault(outcome.why, []).append(outcome.what)
    return "; ".join(f"{why} ({', '.join(tried)})" for why, tried in reasons.items()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
