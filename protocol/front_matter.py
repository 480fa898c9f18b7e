"""Front matter: YAML between two lines of dashes at the beginning of a Markdown file. Roles and skills have it."""

from __future__ import annotations

import re

import msgspec

_FENCE = re.compile(r"-{3,}[ \t]*")


class Parted(msgspec.Struct, frozen=True, kw_only=True):
    """A file in two.

    Attributes:
        head: the front matter, without its dashes; "" for none.
        body: the text behind it.
        line: how many lines stand before `head`; so many line ends before it keep its line numbers right.
        open: the line in which front matter begins that does not end, so that all is `body`; 0 if there is none such.
    """

    head: str = ""
    body: str
    line: int = 0
    open: int = 0


def parted(text: str) -> Parted:
    """The two halves of a file. Empty lines may stand before the first dashes, and nothing else."""
    lines = text.splitlines(keepends=True)
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if not lines or not _FENCE.fullmatch(lines[first].rstrip("\r\n")):
        return Parted(body=text)
    for number in range(first + 1, len(lines)):
        if _FENCE.fullmatch(lines[number].rstrip("\r\n")):
            return Parted(head="".join(lines[first + 1 : number]), body="".join(lines[number + 1 :]), line=first + 1)
    return Parted(body=text, open=first + 1)
