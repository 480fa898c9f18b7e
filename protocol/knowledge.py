"""Knowledge bases: documents, chunks, results of retrieval, and the file that defines a named base.

A source (a file, a page) is read as a `Document`, and a document is split into `Chunk`s. A query finds `Hit`s among
them, which `Retrieved` combines for a prompt. `actors/work/knowledge` reads sources, splits and embeds them, and
stores knowledge bases. A source need not be a file.

`KnowledgeFile` is the contents of `knowledge/<name>.yaml`:

    description: The handbook of the house.
    relative_to: ~/projects/handbook
    documents:
      - ./docs
      - https://example.com/handbook/**

The keys from `embedding_model` on are the same as in a rag node. Omitted keys have the values of the settings.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from .graph import AtLeastOne, Count
from .languages import Language
from .problems import Problem, errors_in
from .reading import Reading, in_file_order
from .schema import schema_of
from .yaml_tree import parse_mapping


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
    """Source that cannot be read. It is reported, and the other sources are read nevertheless.

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


class KnowledgeFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A knowledge base with a name of its own."""

    documents: Annotated[tuple[str, ...], Meta(description="Files, directories, globs, URLs or <loader>:<path>.")]
    description: Annotated[str, Meta(description="Description for users.")] = ""
    relative_to: Annotated[
        str, Meta(description="The directory that relative paths start from; by default the file's own.")
    ] = ""
    embedding_model: Annotated[str | None, Meta(description="`client:model`; can't be changed without a rebuild.")] = (
        None
    )
    chunk_size: Annotated[AtLeastOne | None, Meta(description="Characters of a chunk.")] = None
    chunk_overlap: Annotated[Count | None, Meta(description="Maximum characters that neighbouring chunks share.")] = (
        None
    )
    language: Annotated[
        Language | None, Meta(description="Language for stemming of words, or none; a change needs a rebuild.")
    ] = None
    reranker_model: Annotated[str | None, Meta(description="Model that reranks the results.")] = None
    batch_size: Annotated[AtLeastOne | None, Meta(description="Texts per embedding request.")] = None
    top_k: Annotated[AtLeastOne | None, Meta(description="Number of chunks that a query returns.")] = None


def read_knowledge_file(text: str, file: str) -> tuple[KnowledgeFile | None, list[Problem]]:
    """Return the contents of a YAML text, and all problems by line; None if one of them is an error."""
    root, problems = parse_mapping(text, file)
    if root is None:
        return None, problems
    reading = Reading(file)
    found = reading.fill(KnowledgeFile, root, what="a knowledge base")
    if not found.documents and ("documents",) not in reading.broken:
        what = "`documents` is empty, so the knowledge base would be empty"
        expected = "a list of at least one file, directory, glob or URL"
        reading.report("error", "no_documents", what, ("documents",), root, expected=expected)
    problems = in_file_order([*problems, *reading.problems])
    return (None if errors_in(problems) else found), problems


def knowledge_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `knowledge/<name>.yaml`, for editors."""
    return schema_of(KnowledgeFile, title="Callboard knowledge base (knowledge/<name>.yaml)")
