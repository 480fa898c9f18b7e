"""Unified diffs for terminals: harmless, and in colours where they are wanted."""

from __future__ import annotations

from collections.abc import Iterator

from .text import paint, safe

_HEADS = ("--- ", "+++ ", "Binary files ")
_STYLES = {"+": "added", "-": "removed", "@": "hunk", "\\": "dim"}


def diff_lines(diff: str, *, coloured: bool) -> list[str]:
    """The lines of the diff of one file, each safe, and painted by what it says."""
    return [paint(line, style) if coloured and line else line for line, style in _styled(diff)]


def diff_rows(diff: str, width: int, *, coloured: bool) -> list[str]:
    """The same in rows of so many columns, indented by two; what goes on in a further row stands deeper."""
    from .wrap import rows  # it knows how wide characters are, which takes a while to import

    found = []
    for line, style in _styled(diff):
        parts = rows(line, width, arguments=True)
        found += [paint(part, style) if coloured and part else part for part in parts]
    return found


def _styled(diff: str) -> Iterator[tuple[str, str]]:
    """Each line, safe, with its style."""
    body = False
    for raw in diff.removesuffix("\n").split("\n"):
        body = body or raw.startswith("@@")
        # Only a newline ends a line of a diff: no other character may begin one.
        line = safe(raw.removesuffix("\r")).replace("\n", "\\u2028")
        yield line, _STYLES.get(raw[:1], "text") if body or not raw.startswith(_HEADS) else "title"
