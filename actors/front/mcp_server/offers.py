"""Served agents as tools: read once, when serving begins.

A tool's name is the agent's; its arguments are the prompt, the agent's variables, and the state of a graph. The server
decides about an agent's permissions and questions; a client only gives the task.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from ....protocol.errors import CallboardError, UsageError
from ....protocol.graph.model import Variable
from ...io.vault.lookups import ForChecks
from ...runs.finding import find
from ...runs.root import Root
from ...runs.target import GraphAgent, Loaded, LoopAgent, read
from ...work.variables import missing_variables

Json = Any

MAX_NAME = 64
"""Maximum length of a tool name at model providers."""


class OfferedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """Agent as a tool.

    Attributes:
        name: name of the tool; the agent's, as far as it is valid.
        agent: agent that a call runs.
        tool: description in `tools/list`.
    """

    name: str
    agent: Loaded
    tool: dict[str, Json]

    @property
    def schema(self) -> dict[str, Json]:
        """JSON Schema of a call's arguments."""
        schema: dict[str, Json] = self.tool["inputSchema"]
        return schema


def read_agents(root: Root, names: Sequence[str | os.PathLike[str]] = ()) -> tuple[dict[str, OfferedAgent], list[str]]:
    """Return the agents to serve by tool name, and the problems of omitted ones.

    Args:
        root: root of their runs.
        names: targets as for `run`. Without any: every agent of the configuration directory, except those with errors.
            The built-in ones, some of which write files and run programs, are served only by name.

    Raises:
        UsageError: there is no such agent, or none at all, or two would have the same tool name.
        InvalidFile, Unsupported: a named agent can't be run.
    """
    here = root.config_dir / "agents"
    found = names or sorted(path for path in here.iterdir() if path.is_dir()) if here.is_dir() or names else []
    offers: dict[str, OfferedAgent] = {}
    secrets = ForChecks(root.vault)
    problems: list[str] = []
    for target in found:
        try:
            agent = read(find(target, config_dir=root.config_dir), root.config_dir, registry=root.registry)
            offer = _offer(agent, secrets)
        except CallboardError as error:
            if names:
                raise
            problems.append(f"{target} is not served: {error}")
            continue
        if offer.name in offers:
            raise UsageError(
                f"two agents would be served as '{offer.name}': {offers[offer.name].agent.file} and "
                f"{offer.agent.file}; serve one of them, or change the `name` in one of the files"
            )
        offers[offer.name] = offer
    if not offers:
        raise UsageError(
            f"there is no agent to serve in {here}; name agents to serve (callboard mcp serve coder), or make one "
            "there (callboard init)" + "".join(f"\n{problem}" for problem in problems)
        )
    return offers, problems


def _offer(agent: Loaded, secrets: ForChecks) -> OfferedAgent:
    name = re.sub(r"[^A-Za-z0-9_-]", "_", agent.name)[:MAX_NAME]
    tool = {
        "name": name,
        "description": _description(agent).strip() or f"Runs the agent '{agent.name}' and returns its answer.",
        "inputSchema": _schema(agent, secrets),
    }
    return OfferedAgent(name=name, agent=agent, tool=tool)


def _description(agent: Loaded) -> str:
    if isinstance(agent, GraphAgent):
        return agent.graph.description
    if isinstance(agent, LoopAgent):
        return agent.agent.description
    return agent.workflow.graph.description or ""


def _schema(agent: Loaded, secrets: ForChecks) -> dict[str, Json]:
    prompt: dict[str, Json] = {"type": "string", "description": "What the agent is to do."}
    properties: dict[str, Json] = {"prompt": prompt}
    required = []
    declared: tuple[Variable, ...] = ()
    if isinstance(agent, GraphAgent):
        declared = agent.graph.variables
        if agent.graph.initial_state:
            properties["state"] = {
                "type": "object",
                "description": "Replaces values that the graph begins with.",
                "properties": {key: {} for key in agent.graph.initial_state},
            }
    elif isinstance(agent, LoopAgent):
        declared = agent.agent.variables
        required.append("prompt")
        prompt["minLength"] = 1
    if declared:
        needed = [
            variable.name for variable in missing_variables(agent.name, declared, {}, os.environ, secrets=secrets)
        ]
        properties["variables"] = {
            "type": "object",
            "properties": {
                variable.name: {"type": "string"}
                | ({"description": variable.description} if variable.description else {})
                | ({} if variable.default is None else {"default": variable.default})
                for variable in declared
            },
            "required": needed,
            "additionalProperties": False,
        }
        if needed:
            required.append("variables")
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
