"""Recipe of a knowledge base: its sources and build settings.

Recipes come from the rag nodes of graphs, from the `documents` of agents, and from named bases. Each base stores the
recipe of its last build as `recipe.json`, so that its directory alone is enough to build it again.
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
from ....protocol.graph import Graph, RagNode
from ....protocol.json_values import UNREADABLE
from ....protocol.languages import Language
from ....protocol.settings import Settings
from ...io.directories import cache_dir
from ..library import AGENTS
from .base.layout import BaseLayout


class BuildSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings for building and querying a base.

    None means the value of the settings' `rag_*` keys, or else the default.

    Attributes:
        embedding_model: `client:model`.
        chunk_size, chunk_overlap: characters.
        language: language whose words are reduced to their stems.
        reranker_model: `client:model` that reranks the hits.
        batch_size: texts in one embedding request.
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
    """Return the fields of `BuildSettings` that an object has: a rag node, the file of a base, or another recipe."""
    return {name: getattr(said, name) for name in BuildSettings.__struct_fields__ if hasattr(said, name)}


class Recipe(BuildSettings, frozen=True, kw_only=True):
    """Sources and build settings of one base.

    Attributes:
        what: name in messages: `rag node 'lookup' of 'researcher'`, `knowledge base 'handbook'`.
        target: name for `callboard kb build`: `researcher:lookup`, `handbook`.
        directory: directory of the base.
        documents: its sources; see `sources.specs`.
        base: directory that relative documents start from.
        upstream: Loki's own file of the same knowledge, imported if it exists and no base does.
        node: id of its rag node, if it belongs to one.
        asks: build it only with the user's permission, unless model and sizes are all set here. This is Loki's rule.
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
        """True if the recipe itself sets the model and both sizes."""
        return None not in (self.embedding_model, self.chunk_size, self.chunk_overlap)

    def settled(self, settings: Settings) -> Recipe:
        """Return the recipe with unset fields filled from the settings.

        A configured overlap is used only together with the configured size, for which it was chosen.
        """
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
    """Content of a `recipe.json`.

    `base` is relative to the directory of the base if that is below it, so both can be moved together.
    """

    what: str
    documents: tuple[str, ...]
    base: str


def encoded(recipe: Recipe) -> bytes:
    """Return the recipe as the bytes of its `recipe.json`."""
    home, base = (Path(os.path.normpath(path.absolute())) for path in (recipe.directory, recipe.base))
    shown = os.path.relpath(base, home) if home.is_relative_to(base) else str(base)
    file = _File(base=shown, what=recipe.what, documents=recipe.documents, **build_settings(recipe))
    return msgspec.json.format(msgspec.json.encode(file)) + b"\n"


def read_recipe(directory: Path) -> Recipe:
    """Return the recipe of the base in this directory.

    Raises:
        KnowledgeMissing: the directory has no recipe.
        KnowledgeError: the recipe can't be read.
    """
    path = BaseLayout(directory).recipe
    try:
        file = decode_json(path.read_bytes(), _File)
    except FileNotFoundError:
        raise KnowledgeMissing(f"{directory} is not a knowledge base: it has no {path.name}") from None
    except (OSError, *UNREADABLE) as error:
        raise KnowledgeError(
            f"{path} can't be read: {error}; build the base again for the agent or node that uses it"
        ) from error
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
# The bases are stored next to the agent, as `<node-id>.kb/` and `documents.kb/`. Bases of agents that are part of
# Callboard, or in read-only directories, are stored in the cache directory.

DOCUMENTS = "documents"
"""Name of the recipe, and of the base, of an LLM agent's `documents`."""

LONGEST = 200
"""Most bytes of a file name: most file systems allow 255."""


def recipes_of(
    agent: Graph | Agent,
    directory: Path | None,
    config_dir: Path,
    environ: Mapping[str, str],
    *,
    compat: str | None = None,
) -> dict[str, Recipe]:
    """Return the recipes of an agent by the ids of its rag nodes, or under the key `DOCUMENTS`.

    Args:
        agent: the decoded agent.
        directory: its directory; None for an agent made by a program, whose documents start from the working directory.
        compat: dialect forced by the caller.
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
                **(build_settings(node) | {"top_k": None}),  # `top_k` of a node is passed with each query
            )
            for node in agent.nodes.values()
            if isinstance(node, RagNode)
        }
    if not agent.documents:
        return {}
    what = f"the knowledge of '{agent.name}'"
    return {DOCUMENTS: recipe(DOCUMENTS, "rag", what=what, target=target, documents=agent.documents)}


def _target(name: str, directory: Path, config_dir: Path) -> str:
    """Return the agent's name on a command line: its plain name if that finds it, else its directory."""
    own = config_dir / "agents" / name
    known = own if own.is_dir() else AGENTS / name
    return name if directory.absolute() == known.absolute() else str(directory)


def _place(agent: str, directory: Path | None, name: str, environ: Mapping[str, str]) -> Path:
    file = f"{_as_file(name)}.kb"
    if directory is not None:
        beside = directory.absolute() / file
        ours = beside.is_relative_to(AGENTS)
        # An existing base next to the agent is used even if the directory is read-only now.
        if BaseLayout(beside).current.exists() or (not ours and os.access(directory, os.W_OK)):
            return beside
    whose = str(Path.cwd() if directory is None else directory.absolute())
    mark = hashlib.sha256(whose.encode(errors="surrogateescape")).hexdigest()[:8]
    return cache_dir(environ) / "knowledge" / f"{_as_file(agent)}-{mark}" / file


def _as_file(name: str) -> str:
    """Return a file name for any name, shortened with a hash if it is too long."""
    quoted = quote(name, safe=" ", errors="surrogatepass")
    if len(quoted) <= LONGEST:
        return quoted
    return f"{quoted[:LONGEST]}-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:16]}"
