"""Which knowledge bases a TARGET of `callboard kb` means: a name, an agent, one node of an agent, a directory."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from ... import GraphAgent, LoopAgent
from ...actors.io.directories import config_dir as configured
from ...actors.runs.finding import built_in_agents, own_agents
from ...actors.runs.target import load_agent
from ...actors.work.knowledge import shelf
from ...actors.work.knowledge.base.places import ENDING
from ...actors.work.knowledge.recipe import Recipe
from ...actors.work.knowledge.recipes import recipes_of
from ...protocol.errors import UsageError
from ...protocol.problems import did_you_mean
from ..render.text import safe


def recipes(target: str, config_dir: str | None) -> list[Recipe]:
    """The recipes of the bases that are meant, at least one. What is odd in the file of a named one goes to stderr.

    Raises:
        UsageError: nothing is meant, or two different things are.
        CallboardError: the agent's file, or the base's, has errors.
    """
    base, _ = configured(config_dir, os.environ)
    if target.rstrip(os.sep).endswith(ENDING):
        return [shelf.named(target.rstrip(os.sep), base)]
    agent, colon, node = target.rpartition(":")
    if colon and not Path(target).exists():
        return [_one(load_agent(agent, config_dir=config_dir), node, base)]
    file = shelf.file_of(target, base)
    if file is None:
        return list(_all(_agent(target, config_dir, base), base).values())
    if is_agent(target, base):
        agent_home = base / "agents" / target
        where = agent_home if agent_home.is_dir() else f"$(callboard agents path {target})"
        raise UsageError(
            f"'{target}' is a knowledge base ({file}) and an agent as well; say which: {shelf.home(target, base)}"
            f" or {where}"
        )
    recipe = shelf.named(target, base)
    sys.stderr.write("".join(f"{safe(str(each))}\n" for each in shelf.warnings(target, base)))
    return [recipe]


def of_agent(agent: GraphAgent | LoopAgent, base: Path) -> dict[str, Recipe]:
    """What an agent looks things up in, by node; `base` is the configuration directory."""
    thing = agent.graph if isinstance(agent, GraphAgent) else agent.agent
    return recipes_of(thing, agent.directory, base, os.environ)


def _agent(target: str, config_dir: str | None, base: Path) -> GraphAgent | LoopAgent:
    if _is_only_documents(target) and not is_agent(target, base):
        raise UsageError(
            f"'{target}' is no knowledge base and no agent; to make a base of what is there:"
            f" callboard kb new NAME {shlex.quote(target)}"
        )
    if os.sep in target or is_agent(target, base) or Path(target).exists():
        return load_agent(target, config_dir=config_dir)
    near = did_you_mean(target, [*shelf.names(base), *own_agents(base), *built_in_agents()])
    raise UsageError(
        f"'{target}' is no knowledge base, no agent and no directory of one;"
        f" {near or 'callboard kb lists the bases, callboard kb new makes one'}"
    )


def _is_only_documents(target: str) -> bool:
    """Whether this is a directory, and not that of an agent."""
    path = Path(target).expanduser()
    return path.is_dir() and not any((path / name).exists() for name in ("config.yaml", "graph.yaml"))


def is_agent(target: str, base: Path) -> bool:
    """Whether this is an agent's name; `base` is the configuration directory."""
    return (base / "agents" / target).is_dir() or target in built_in_agents()


def _all(agent: GraphAgent | LoopAgent, base: Path) -> dict[str, Recipe]:
    found = of_agent(agent, base)
    if not found:
        lacks = "rag node" if isinstance(agent, GraphAgent) else "`documents`"
        raise UsageError(f"agent '{agent.name}' has no {lacks}, so there is no knowledge base of it")
    return found


def _one(agent: GraphAgent | LoopAgent, node: str, base: Path) -> Recipe:
    found = _all(agent, base)
    if node not in found:
        hint = did_you_mean(node, found) or f"there are: {', '.join(found)}"
        raise UsageError(f"agent '{agent.name}' has no knowledge base '{node}'; {hint}")
    return found[node]
