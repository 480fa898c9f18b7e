"""Front matter: YAML between two lines of dashes at the beginning of a Markdown file, as in roles and skills."""

from __future__ import annotations

import re

import msgspec

_FENCE = re.compile(r"-{3,}[ \t]*")


class Parted(msgspec.Struct, frozen=True, kw_only=True):
    """File split into front matter and body.

    Attributes:
        head: front matter without its dashes; "" for none.
        body: text after it.
        line: number of lines before `head`; that many empty lines before it preserve its line numbers.
        open: line of front matter without an end, in which case all is `body`; 0 if there is none.
    """

    head: str = ""
    body: str
    line: int = 0
    open: int = 0


def parted(text: str) -> Parted:
    """Split a file. Only empty lines may precede the first dashes."""
    lines = text.splitlines(keepends=True)
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if not lines or not _FENCE.fullmatch(lines[first].rstrip("\r\n")):
        return Parted(body=text)
    for number in range(first + 1, len(lines)):
        if _FENCE.fullmatch(lines[number].rstrip("\r\n")):
            return Parted(head="".join(lines[first + 1 : number]), body="".join(lines[number + 1 :]), line=first + 1)
    return Parted(body=text, open=first + 1)
