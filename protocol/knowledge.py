"""Knowledge: documents, chunks, and results of retrieval.

A source (a file, a page) is read as a `Document`, and a document is split into `Chunk`s. A query finds `Hit`s among
them, which `Retrieved` combines for a prompt. `actors/work/knowledge` reads sources, splits and embeds them, and
stores knowledge bases. A source need not be a file.
"""

from __future__ import annotations

import msgspec


class Document(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Contents of one source.

    Attributes:
        source: name for display and filters: a path relative to the base of the sources, or a URL.
        text: the whole text, with lines ended by `\\n`.
        kind: `markdown`, `html`, `text`, `code:<language>`, `csv`, `json`, `pdf`, ...; decides how it is split.
        title: title in the source, if any.
        digest: SHA-256 of the source's bytes (not of the text), in hexadecimal digits.
    """

    source: str
    text: str
    kind: str
    title: str = ""
    digest: str = ""


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """Source that cannot be read. It is reported, and the other sources are read all the same.

    Attributes:
        source: see `Document`.
        reason: reason as a text.
    """

    source: str
    reason: str


class Chunk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Part of a document, small enough to be embedded and to be inserted into a prompt.

    Attributes:
        id: stable for the same text under the same heading of the same source, whatever changes around it: SHA-256 of
            the three, cut to 32 digits, with a counter for repetitions.
        source: source of the document.
        text: text as it is in the document.
        heading: its headings, outermost first.
        lines: its first and last line in the document's text, counted from 1.
    """

    id: str
    source: str
    text: str
    heading: tuple[str, ...] = ()
    lines: tuple[int, int]


class Hit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Part of a source that a query found: one chunk, or several adjacent ones.

    Attributes:
        text: its text.
        source: its source.
        score: relevance, higher is better. Comparable within one retrieval only.
        lines: first and last line in the source's text, counted from 1.
        heading: its headings, outermost first.
    """

    text: str
    source: str
    score: float
    lines: tuple[int, int]
    heading: tuple[str, ...] = ()


class Retrieved(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a query, best first; the `{{output}}` of a rag node.

    Attributes:
        context: text for a prompt: `[Source: path]` and the text for each hit, separated by empty lines.
        sources: the hits' sources, each once.
        chunks: the hits themselves.
    """

    context: str = ""
    sources: tuple[str, ...] = ()
    chunks: tuple[Hit, ...] = ()
