"""Unified diffs as terminal lines, escaped and optionally coloured."""

from __future__ import annotations

from collections.abc import Iterator

from .text import paint, safe

_HEADS = ("--- ", "+++ ", "Binary files ")
_STYLES = {"+": "added", "-": "removed", "@": "hunk", "\\": "dim"}


def diff_lines(diff: str, *, coloured: bool) -> list[str]:
    """Return the lines of one file's diff, each escaped and coloured by its kind."""
    return [paint(line, style) if coloured and line else line for line, style in _styled(diff)]


def diff_rows(diff: str, width: int, *, coloured: bool) -> list[str]:
    """Return the diff in rows of at most `width` columns, indented by two; continuation rows are indented further."""
    from .wrap import rows  # imported lazily: prompt_toolkit's character widths take a while to import

    found = []
    for line, style in _styled(diff):
        parts = rows(line, width, arguments=True)
        found += [paint(part, style) if coloured and part else part for part in parts]
    return found


def _styled(diff: str) -> Iterator[tuple[str, str]]:
    """Yield each line, escaped, with its style."""
    body = False
    for raw in diff.removesuffix("\n").split("\n"):
        body = body or raw.startswith("@@")
        # Only a newline ends a line of a diff. Another line separator could forge a line.
        line = safe(raw.removesuffix("\r")).replace("\n", "\\u2028")
        yield line, _STYLES.get(raw[:1], "text") if body or not raw.startswith(_HEADS) else "title"
