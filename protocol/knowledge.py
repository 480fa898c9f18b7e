"""Knowledge: what is read, how it is cut up, and what retrieval gives back.

A source (a file, a page) is read as a `Document`, a document is split into `Chunk`s, and what a query finds of them are
`Hit`s, which `Retrieved` puts together for a prompt. Where sources come from, how they are split and embedded, and how
a knowledge base keeps them is in `actors/work/knowledge`. Nothing here says that a source is a file.
"""

from __future__ import annotations

import msgspec


class Document(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was read of one source.

    Attributes:
        source: as it is shown and filtered by: a path relative to where the sources are named from, or a URL.
        text: all of it, lines ended by `\\n`.
        kind: `markdown`, `html`, `text`, `code:<language>`, `csv`, `json`, `pdf`, ...; decides how it is split.
        title: what it calls itself, if it does.
        digest: SHA-256 of the source's bytes (not of the text), in hexadecimal digits.
    """

    source: str
    text: str
    kind: str
    title: str = ""
    digest: str = ""


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A source that can't be read: it is reported, and the others are read all the same.

    Attributes:
        source: as in `Document`.
        reason: why, in words.
    """

    source: str
    reason: str


class Chunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of a document, small enough to be embedded and to be put into a prompt.

    Attributes:
        id: the same for the same text under the same heading of the same source, whatever changes around it:
            SHA-256 of the three, cut to 32 digits; where they come twice, a counter makes the difference.
        source: the document's.
        text: as it stands in the document.
        heading: the headings it stands under, outermost first.
        lines: first and last line of it in the document's text, counted from 1.
    """

    id: str
    source: str
    text: str
    heading: tuple[str, ...] = ()
    lines: tuple[int, int]


class Hit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of a source that a query found: one chunk, or several that touch each other.

    Attributes:
        text: what it says.
        source: where it was read.
        score: how well it fits; the higher, the better. Comparable within one retrieval only.
        lines: first and last line in the source's text, counted from 1.
        heading: the headings it stands under, outermost first.
    """

    text: str
    source: str
    score: float
    lines: tuple[int, int]
    heading: tuple[str, ...] = ()


class Retrieved(msgspec.Struct, frozen=True, kw_only=True):
    """What a query found, best first. This is the `{{output}}` of a rag node.

    Attributes:
        context: for a prompt: `[Source: path]` and the text below it for each hit, with an empty line between them.
        sources: the hits' sources, each once.
        chunks: the hits themselves.
    """

    context: str = ""
    sources: tuple[str, ...] = ()
    chunks: tuple[Hit, ...] = ()
