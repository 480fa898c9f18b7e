"""The recipes of an agent: one for each rag node of a graph, one for the `documents` of an LLM agent.

The bases stand beside the agent, `<node-id>.kb/` and `documents.kb/`. Agents that come with Callboard, and those in
directories that can't be written to, have theirs in the cache directory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from ....protocol.agent import Agent
from ....protocol.graph.model import Graph, RagNode
from ...io.directories import cache_dir
from ..library import AGENTS
from .base.places import Places
from .recipe import Recipe

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
    if isinstance(agent, Graph):
        nodes = [node for node in agent.nodes.values() if isinstance(node, RagNode)]
        asks = (compat or agent.settings.compat) == "loki"
        return {node.id: _of_node(agent, node, directory, config_dir, environ, asks=asks) for node in nodes}
    if not agent.documents:
        return {}
    return {DOCUMENTS: _of_documents(agent, directory, config_dir, environ)}


def _of_node(
    graph: Graph,
    node: RagNode,
    directory: Path | None,
    config_dir: Path,
    environ: Mapping[str, str],
    *,
    asks: bool,
) -> Recipe:
    base = directory or Path.cwd()
    return Recipe(
        what=f"rag node '{node.id}' of '{graph.name}'",
        target=f"{_target(graph.name, base, config_dir)}:{node.id}",
        directory=_place(graph.name, directory, node.id, environ),
        documents=node.documents,
        base=base,
        embedding_model=node.embedding_model,
        chunk_size=node.chunk_size,
        chunk_overlap=node.chunk_overlap,
        language=node.language,
        reranker_model=node.reranker_model,
        batch_size=node.batch_size,
        upstream=_upstream(directory, node.id),
        node=node.id,
        asks=asks,
    )


def _of_documents(agent: Agent, directory: Path | None, config_dir: Path, environ: Mapping[str, str]) -> Recipe:
    base = directory or Path.cwd()
    return Recipe(
        what=f"the knowledge of '{agent.name}'",
        target=_target(agent.name, base, config_dir),
        directory=_place(agent.name, directory, DOCUMENTS, environ),
        documents=agent.documents,
        base=base,
        upstream=_upstream(directory, "rag"),
    )


def _target(name: str, directory: Path, config_dir: Path) -> str:
    """How the agent is called on a command line: by its name, if that is enough to find it."""
    own = config_dir / "agents" / name
    known = own if own.is_dir() else AGENTS / name
    return name if directory.absolute() == known.absolute() else str(directory)


def _place(agent: str, directory: Path | None, name: str, environ: Mapping[str, str]) -> Path:
    """Where the base is, or is to be."""
    file = f"{_as_file(name)}.kb"
    if directory is not None:
        beside = directory.absolute() / file
        ours = beside.is_relative_to(AGENTS)
        if Places(beside).current.exists() or (not ours and os.access(directory, os.W_OK)):
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


def _upstream(directory: Path | None, name: str) -> Path | None:
    is_file_name = "/" not in name and len(name.encode(errors="surrogatepass")) <= LONGEST
    return directory.absolute() / f"{name}.yaml" if directory is not None and is_file_name else None
