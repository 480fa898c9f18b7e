"""Checks that the documents of an agent's knowledge are where its file says."""

from __future__ import annotations

import re
from pathlib import Path

from ...protocol.agent import Agent
from ...protocol.graph.model import Graph, RagNode
from ...protocol.problems import Problem, did_you_mean
from ...protocol.tree import Path as Keys
from ..io.stamps import look

_ELSEWHERE = re.compile(r"[*?\[{:;]")
"""In globs, pages, loaders, and several paths in one line: what they name is known when they are looked at."""


def check_documents(agent: Agent | Graph, directory: Path) -> list[Problem]:
    """A warning for every file and directory among its documents that is not there.

    Args:
        directory: what relative paths are relative to.
    """
    if isinstance(agent, Agent):
        return _missing(agent, agent.documents, ("documents",), directory)
    nodes = [node for node in agent.nodes.values() if isinstance(node, RagNode)]
    found = (_missing(agent, node.documents, ("nodes", node.id, "documents"), directory, node.id) for node in nodes)
    return [problem for each in found for problem in each]


def _missing(
    agent: Agent | Graph, documents: tuple[str, ...], keys: Keys, directory: Path, node: str | None = None
) -> list[Problem]:
    problems = []
    for number, document in enumerate(documents):
        if _ELSEWHERE.search(document):
            continue
        try:
            path = directory / Path(document).expanduser()
            if look(path).exists():
                continue
            near = [entry.name for entry in look(path.parent).iterdir()] if path.parent.is_dir() else []
        except (OSError, RuntimeError):  # it can't be looked at: what reads it says why
            continue
        problems.append(
            agent.source.problem(
                "warning",
                "missing_document",
                f"there is no '{document}' to look things up in",
                (*keys, number),
                node=node,
                expected=f"a file or directory in {directory}",
                hint=did_you_mean(path.name, near) or "paths are relative to the agent's directory.",
            )
        )
    return problems
