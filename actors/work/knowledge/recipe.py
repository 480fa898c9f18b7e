"""A recipe: what a knowledge base is made of, and how.

They come from the rag nodes of graphs, from the `documents` of agents, and from bases with names of their own. Each
base keeps the one that it was built by, as `recipe.json`, so that its directory alone is enough to build it again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from ....protocol.agent import Agent
from ....protocol.decoding import decode_json
from ....protocol.errors import KnowledgeError, KnowledgeMissing
from ....protocol.graph.model import Graph, RagNode
from ....protocol.json_values import UNREADABLE
from ....protocol.languages import Language
from ....protocol.settings import Settings
from ...io.directories import cache_dir
from ..library import AGENTS
from .base.layout import Layout


class BuildSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a base is built and asked. None is unset: then the settings' `rag_*` count, else the default.

    Attributes:
        embedding_model: `client:model`.
        chunk_size, chunk_overlap: characters.
        language: whose words are reduced to their stems.
        reranker_model: `client:model` that looks again at what was found.
        batch_size: texts in one request for vectors.
        top_k: chunks that a query finds.
    """

    embedding_model: str | None = None
    chunk_size: int | None = None
    chunk_overlap: int | None = None
    language: Language | None = None
    reranker_model: str | None = None
    batch_size: int | None = None
    top_k: int | None = None


def build_settings(said: object) -> dict[str, Any]:
    """What of `BuildSettings` is said there: by a rag node, by the file of a base, or by another recipe."""
    return {name: getattr(said, name) for name in BuildSettings.__struct_fields__ if hasattr(said, name)}


class Recipe(BuildSettings, frozen=True, kw_only=True):
    """See the module.

    Attributes:
        what: its name in messages: `rag node 'lookup' of 'researcher'`, `knowledge base 'handbook'`.
        target: what `callboard kb build` calls it: `researcher:lookup`, `handbook`.
        directory: of the base.
        documents: where it comes from; see `sources.specs`.
        base: the directory that relative documents start from.
        upstream: Loki's own file of the same knowledge, taken over if it is there and no base is.
        node: id of the rag node it belongs to.
        asks: build it only if a person agrees, unless model and sizes are all said here, as Loki does.
    """

    what: str
    target: str
    directory: Path
    documents: tuple[str, ...]
    base: Path
    upstream: Path | None = None
    node: str | None = None
    asks: bool = False

    @property
    def specified(self) -> bool:
        """Whether it says by itself all that a build must know."""
        return None not in (self.embedding_model, self.chunk_size, self.chunk_overlap)

    def settled(self, settings: Settings) -> Recipe:
        """With the settings' word for what it does not say. An overlap goes with the size that it was chosen for."""
        size, overlap = self.chunk_size, self.chunk_overlap
        if size is None:
            size = settings.rag_chunk_size
            overlap = settings.rag_chunk_overlap if overlap is None else overlap
        return msgspec.structs.replace(
            self,
            embedding_model=self.embedding_model or settings.rag_embedding_model or None,
            chunk_size=size,
            chunk_overlap=overlap,
            language=self.language or settings.rag_language,
            reranker_model=self.reranker_model or settings.rag_reranker_model or None,
            top_k=self.top_k or settings.rag_top_k,
        )


class _File(BuildSettings, frozen=True, kw_only=True):
    """A `recipe.json`. `base` is relative to the directory of the base if that lies below it, so both can be moved."""

    what: str
    documents: tuple[str, ...]
    base: str


def encoded(recipe: Recipe) -> bytes:
    """The recipe as the text of its `recipe.json`."""
    home, base = (Path(os.path.normpath(path.absolute())) for path in (recipe.directory, recipe.base))
    shown = os.path.relpath(base, home) if home.is_relative_to(base) else str(base)
    file = _File(base=shown, what=recipe.what, documents=recipe.documents, **build_settings(recipe))
    return msgspec.json.format(msgspec.json.encode(file)) + b"\n"


def read_recipe(directory: Path) -> Recipe:
    """The recipe that the base in this directory was built by.

    Raises:
        KnowledgeMissing: there is none.
        KnowledgeError: it can't be read.
    """
    path = Layout(directory).recipe
    try:
        file = decode_json(path.read_bytes(), _File)
    except FileNotFoundError:
        raise KnowledgeMissing(f"{directory} is no knowledge base: there is no {path.name} in it") from None
    except (OSError, *UNREADABLE) as error:
        raise KnowledgeError(f"{path} can't be read: {error}; build the base from what it belongs to") from error
    base = Path(os.path.normpath(directory.absolute() / file.base))
    return Recipe(
        target=str(directory),
        directory=directory,
        base=base,
        what=file.what,
        documents=file.documents,
        **build_settings(file),
    )


# --- the recipes of an agent: one for each rag node of a graph, one for the `documents` of an LLM agent
#
# The bases stand beside the agent, `<node-id>.kb/` and `documents.kb/`. Agents that come with Callboard, and those in
# directories that can't be written to, have theirs in the cache directory.

DOCUMENTS = "documents"
"""The name of the recipe, and of the base, of an LLM agent's `documents`."""

LONGEST = 200
"""Bytes of a name that a file is called after: most file systems take 255."""


def recipes_of(
    agent: Graph | Agent,
    directory: Path | None,
    config_dir: Path,
    environ: Mapping[str, str],
    *,
    compat: str | None = None,
) -> dict[str, Recipe]:
    """What an agent looks things up in: by the ids of its rag nodes, or as `DOCUMENTS`.

    Args:
        agent: as it was read.
        directory: where it stands; None for one that a program has made, whose documents start from here.
        compat: the dialect that was forced from outside.
    """
    base = directory or Path.cwd()
    target = _target(agent.name, base, config_dir)

    def recipe(name: str, file: str, **said: Any) -> Recipe:
        is_file_name = "/" not in file and len(file.encode(errors="surrogatepass")) <= LONGEST
        upstream = directory.absolute() / f"{file}.yaml" if directory is not None and is_file_name else None
        place = _place(agent.name, directory, name, environ)
        return Recipe(directory=place, base=base, upstream=upstream, **said)

    if isinstance(agent, Graph):
        asks = (compat or agent.settings.compat) == "loki"
        return {
            node.id: recipe(
                node.id,
                node.id,
                what=f"rag node '{node.id}' of '{agent.name}'",
                target=f"{target}:{node.id}",
                documents=node.documents,
                node=node.id,
                asks=asks,
                **(build_settings(node) | {"top_k": None}),  # a node's own is said with each look-up
            )
            for node in agent.nodes.values()
            if isinstance(node, RagNode)
        }
    if not agent.documents:
        return {}
    what = f"the knowledge of '{agent.name}'"
    return {DOCUMENTS: recipe(DOCUMENTS, "rag", what=what, target=target, documents=agent.documents)}


def _target(name: str, directory: Path, config_dir: Path) -> str:
    """How the agent is called on a command line: by its name, if that is enough to find it."""
    own = config_dir / "agents" / name
    known = own if own.is_dir() else AGENTS / name
    return name if directory.absolute() == known.absolute() else str(directory)


def _place(agent: str, directory: Path | None, name: str, environ: Mapping[str, str]) -> Path:
    file = f"{_as_file(name)}.kb"
    if directory is not None:
        beside = directory.absolute() / file
        ours = beside.is_relative_to(AGENTS)
        if Layout(beside).current.exists() or (not ours and os.access(directory, os.W_OK)):
            return beside
    whose = str(Path.cwd() if directory is None else directory.absolute())
    mark = hashlib.sha256(whose.encode(errors="surrogateescape")).hexdigest()[:8]
    return cache_dir(environ) / "knowledge" / f"{_as_file(agent)}-{mark}" / file


def _as_file(name: str) -> str:
    """The name of a file for any name, also for one that has more bytes than file systems take."""
    quoted = quote(name, safe=" ", errors="surrogatepass")
    if len(quoted) <= LONGEST:
        return quoted
    return f"{quoted[:LONGEST]}-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:16]}"
