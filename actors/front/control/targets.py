"""Agents that can be started by name, and pictures of their graphs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ....protocol.control.resources import GraphEdge, GraphNode, GraphPicture, TargetInfo, TargetVariable
from ....protocol.errors import CallboardError, NotFound
from ....protocol.graph import Variable
from ....protocol.requests import RunRequest
from ...runs.finding import built_in_agents, is_installed, own_agents
from ...runs.loading import NO_HOOKS
from ...runs.target import GraphAgent, Loaded, LoopAgent, WorkflowAgent, load
from ...work.library import AGENTS

if TYPE_CHECKING:
    from ...runs.root import Root


async def targets(root: Root) -> list[TargetInfo]:
    """Return the agents of the configuration directory, then the library's agents whose names it does not define.

    An agent that cannot be loaded is included, with the first line of its error as `problem`.
    Each agent is read in a thread call of its own, so that a run that starts meanwhile waits for one at most.
    """
    names = await trio.to_thread.run_sync(_names, root.config_dir)
    return [await root.loader.threaded(partial(_described, name, root)) for name in names]


async def target(root: Root, name: str) -> TargetInfo | None:
    """Return the agent of this name, with its error if it cannot be loaded; None if it is not installed."""
    if not await trio.to_thread.run_sync(is_installed, name, root.config_dir):
        return None
    return await root.loader.threaded(partial(_described, name, root))


def _names(config_dir: Path) -> list[str]:
    names = own_agents(config_dir)
    return names + [name for name in built_in_agents() if name not in names]


def _described(name: str, root: Root) -> TargetInfo:
    config_dir = root.config_dir
    source = config_dir / "agents" / name
    info = TargetInfo(name=name, dialect="", source="config" if source.is_dir() else "library")
    try:
        loaded = root.loader.loaded(RunRequest(target=name), NO_HOOKS)
    except CallboardError as error:
        home = source if source.is_dir() else AGENTS / name
        info.dialect = "graph" if (home / "graph.yaml").is_file() else "agent"
        # A broken agent stays in the list, with its error.
        info.problem = str(error).splitlines()[0]
        return info
    if isinstance(loaded, GraphAgent):
        info.dialect, info.description = "graph", loaded.graph.description.strip()
        info.model, info.variables = loaded.graph.model, _variables(loaded.graph.variables)
        info.conversation_starters = list(loaded.graph.conversation_starters)
    elif isinstance(loaded, LoopAgent):
        info.dialect, info.description = "agent", loaded.agent.description.strip()
        info.model, info.variables = loaded.agent.model, _variables(loaded.agent.variables)
        info.conversation_starters = list(loaded.agent.conversation_starters)
    else:
        info.dialect, info.description = "workflow", (loaded.workflow.graph.description or "").strip()
    return info


def _variables(declared: Iterable[Variable]) -> list[TargetVariable]:
    return [
        TargetVariable(
            name=each.name, description=each.description, default=each.default, required=each.default is None
        )
        for each in declared
    ]


def picture_of(target: str, config_dir: Path) -> GraphPicture:
    """Load a target and return its picture. Blocking.

    Raises:
        NotFound: the target cannot be loaded any more.
    """
    try:
        return picture(load(target, config_dir=config_dir))
    except CallboardError as error:
        raise NotFound(f"{target} can no longer be drawn: {error}") from error


def picture(loaded: Loaded) -> GraphPicture:
    """Return the picture of a target: nodes and edges, or a single node for an LLM agent."""
    if not isinstance(loaded, GraphAgent | WorkflowAgent):
        node = GraphNode(id=loaded.name, type="agent", title=loaded.agent.description.strip())
        return GraphPicture(name=loaded.name, nodes=[node], edges=[], starts=[loaded.name])
    drawn = loaded.picture
    return GraphPicture(
        name=drawn.name,
        nodes=[GraphNode(id=id, type=box.kind, title=box.note) for id, box in drawn.nodes.items()],
        edges=[
            GraphEdge(source=line.source, target=line.target, label=line.label, dashed=line.dashed)
            for line in drawn.lines
        ],
        starts=sorted(drawn.starts),
    )
