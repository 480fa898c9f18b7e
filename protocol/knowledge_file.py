"""Struct of a `knowledge/<name>.yaml`: the definition of a named knowledge base.

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
        what = "`documents` is empty: there is nothing to know"
        expected = "a list of at least one file, directory, glob or URL"
        reading.report("error", "no_documents", what, ("documents",), root, expected=expected)
    problems = in_file_order([*problems, *reading.problems])
    return (None if errors_in(problems) else found), problems


def knowledge_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `knowledge/<name>.yaml`, for editors."""
    return schema_of(KnowledgeFile, title="Callboard knowledge base (knowledge/<name>.yaml)")
