"""Tools of a graph's nodes: which nodes ask models, the tools that each lists, and their files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...protocol.errors import InvalidFile, Unsupported
from ...protocol.graph import AgentNode, AnyNode, FunctionNode, Graph, LlmNode, ScriptNode
from ..work.agent.tool_families import renamed, user_tools
from ..work.opening_instructions import Wish
from ..work.tools.registry import tools_of_agent
from ..work.tools.tool import Tool
from .target import GraphAgent

if TYPE_CHECKING:
    from ..work.context import RunContext
    from ..work.mcp.tools.chosen import WantedServers


def asks(node: AnyNode) -> bool:
    """Return whether the node asks a model."""
    return isinstance(node, LlmNode) or (isinstance(node, AgentNode) and node.output_schema is not None)


def wishes_of(graph: Graph) -> dict[str, Wish]:
    """Return the workspace instructions and skills for each llm node that uses any."""
    found: dict[str, Wish] = {}
    for node in graph.nodes.values():
        if isinstance(node, LlmNode) and (node.workspace_instructions or _skills_of(graph, node) != ()):
            found[node.id] = Wish(
                instructions=node.workspace_instructions,
                skills=_skills_of(graph, node),
                tells=graph.inject_skill_instructions is not False,
                words=graph.skill_instructions,
            )
    return found


def _skills_of(graph: Graph, node: LlmNode) -> tuple[str, ...] | None:
    """Return the skills that a node's model may read; None for all."""
    enabled = graph.skills_enabled if node.skills_enabled is None else node.skills_enabled
    if node.skills or not enabled:
        return node.skills
    return graph.enabled_skills if node.enabled_skills is None else node.enabled_skills


def refuse_spawning(graph: Graph) -> None:
    """Raise `Unsupported` for an llm node that lists tools which spawn agents."""
    for node in graph.nodes.values():
        if isinstance(node, LlmNode) and any(name.startswith("agent__") for name in node.tools):
            raise Unsupported(
                f"'{graph.name}' can't be run: node '{node.id}' lists tools that spawn agents, which llm nodes can't "
                "do; use an agent node, or an agent with `can_spawn_agents`"
            )


def tools_of_nodes(
    agent: GraphAgent,
    graph: Graph,
    values: Mapping[str, str],
    context: RunContext,
    servers: Mapping[str, WantedServers],
    gone: Mapping[str, str],
) -> dict[str, tuple[Tool, ...]]:
    """Return the tools of each llm node that lists any, without tools of MCP servers, which are listed at run time.

    Raises:
        InvalidFile: a tool file has errors, or a node lists a tool that does not exist.
    """
    nodes = [node for node in graph.nodes.values() if isinstance(node, LlmNode) and node.tools]
    if not nodes:
        return {}
    found = tools_of_agent(
        context, name=agent.name, directory=agent.directory, listed=graph.global_tools, values=values
    )
    users = user_tools(timeout=None)
    there = {**{tool.name: tool for tool in users}, **renamed(users), **found.tools}
    chosen: dict[str, tuple[Tool, ...]] = {}
    for node in nodes:
        listed = servers[node.id].others(node.tools) if node.id in servers else node.tools
        if gone:
            from ..work.mcp.tools.chosen import without_absent

            listed = without_absent(listed, graph.mcp_servers, gone, context)
        names = context.registry.spelled_out(listed) if context.registry is not None else listed
        strange = [name for name in names if name not in there]
        if strange:
            raise InvalidFile(
                f"{agent.file}: llm node '{node.id}' references unknown tool '{strange[0]}'; the agent's tools are: "
                f"{', '.join(found.tools) or 'none'}. Add it to `global_tools`, or define it in a tools file beside "
                "the graph."
            )
        chosen[node.id] = tuple(there[name] for name in names)
    return chosen


def files_of_nodes(agent: GraphAgent, graph: Graph, tools: Mapping[str, tuple[Tool, ...]]) -> set[Path]:
    """Return the scripts of a graph, and the files of the tools that its llm nodes list."""
    scripts = {
        agent.directory.absolute() / node.script
        for node in graph.nodes.values()
        if isinstance(node, ScriptNode) and not isinstance(node, FunctionNode)
    }
    return scripts | {tool.file for found in tools.values() for tool in found if tool.file is not None}
