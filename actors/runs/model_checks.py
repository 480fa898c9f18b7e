"""Checks that the models in an agent's file exist: their clients are configured, and offer them.

Missing keys and weights are no error of the file: the run reports them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ...protocol.agent import Agent
from ...protocol.errors import CallboardError, CredentialsError
from ...protocol.graph.model import Graph, RagNode
from ...protocol.problems import Problem
from ...protocol.settings import Settings
from ...protocol.tree import Path

if TYPE_CHECKING:
    from ..work.models.catalog import Task


class KnownModels:
    """The models that settings and environment give."""

    def __init__(self, settings: Settings) -> None:
        from ..work.models.catalog import Catalog

        self._catalog = Catalog(settings, os.environ)

    def chat(self, model: str) -> str | None:
        """How to mend it that this is the id of no chat model; None if it is one."""
        return self._why_not(lambda: self._catalog.named(model))

    def of_knowledge(self, model: str, task: Task) -> str | None:
        """The same for models that make vectors of texts, or put texts in order."""
        return self._why_not(lambda: self._catalog.access(model, task))

    def _why_not(self, find: Callable[[], object]) -> str | None:
        try:
            with suppress(CredentialsError):
                find()
        except CallboardError as error:
            return f"{_SAID.sub('', str(error))}."
        return None


_SAID = re.compile(r"^unknown \w+ model '[^']*'[:;] ")
"""What the problem says already."""


def check_models(thing: Agent | Graph, known: KnownModels) -> list[Problem]:
    """An error for every id that means no model. The chat models of graphs are seen to by the check of graphs."""
    return list(_of_agent(thing, known) if isinstance(thing, Agent) else _of_graph(thing, known))


def _of_agent(agent: Agent, known: KnownModels) -> Iterator[Problem]:
    for key in ("model", "summarization_model"):
        model = getattr(agent, key)
        hint = known.chat(model) if model else None
        if hint is not None:
            yield _problem(agent, model, (key,), None, hint)


def _of_graph(graph: Graph, known: KnownModels) -> Iterator[Problem]:
    tasks: dict[str, Task] = {"embedding_model": "embedding", "reranker_model": "reranker"}
    for node in graph.nodes.values():
        if not isinstance(node, RagNode):
            continue
        for key, task in tasks.items():
            model = getattr(node, key)
            hint = known.of_knowledge(model, task) if model else None
            if hint is not None:
                yield _problem(graph, model, ("nodes", node.id, key), node.id, hint)


def _problem(thing: Agent | Graph, model: str, path: Path, node: str | None, hint: str) -> Problem:
    return thing.source.problem(
        "error",
        "unknown_model",
        f"unknown model '{model}'",
        path,
        node=node,
        expected="client:model, with a client that is configured",
        hint=hint,
    )
