"""The checks that look at one node at a time, by type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....protocol.errors import GraphMistake
from ....protocol.graph.model import (
    AgentNode,
    AnyNode,
    ApprovalNode,
    EndNode,
    Graph,
    InputNode,
    LlmNode,
    RagNode,
    Raw,
    ScriptNode,
)
from ....protocol.mcp.config import WHOLE
from ....protocol.problems import did_you_mean
from ....protocol.tree import Path
from ...io.stamps import look
from ...work.tools.registry import bare_name
from .findings import Findings, Surroundings
from .key_checks import check_keys
from .rules import parse_rule
from .templates import compile_template

SCRIPT_EXTENSIONS = (".sh", ".py", ".ts")


def check_nodes(found: Findings, around: Surroundings | None) -> None:
    """Every check of every node."""
    around = around or Surroundings()
    for node in found.graph.nodes.values():
        if isinstance(node, ScriptNode):
            _check_script(found, node, around)
        elif isinstance(node, AgentNode):
            _check_agent(found, node, around)
        elif isinstance(node, ApprovalNode):
            _check_approval(found, node)
        elif isinstance(node, InputNode):
            _check_input(found, node)
        elif isinstance(node, RagNode):
            _check_rag(found, node)
        elif isinstance(node, LlmNode):
            _check_tools(found, node, around)
            _check_lists(found, node, around)
            _check_model(found, node.model, ("nodes", node.id, "model"), around, "llm node references ")
        elif isinstance(node, EndNode):
            _check_next_unused(found, node)
        _check_updates(found, node)
    _check_model(found, found.graph.model, ("model",), around, "the graph references ")
    _check_globals(found, around)
    check_keys(found, around)


def _check_script(found: Findings, node: ScriptNode, around: Surroundings) -> None:
    path: Path = ("nodes", node.id, "script")
    name = node.script.rpartition("/")[2]
    dot = name.rfind(".")
    if name and dot <= 0:
        found.beyond(
            "bad_script",
            f"Script has no file extension: '{node.script}'",
            path,
            expected=f"one of {', '.join(SCRIPT_EXTENSIONS)}",
            hint="the extension, not the shebang line, decides how a script is run.",
        )
    elif name and name[dot:] not in SCRIPT_EXTENSIONS:
        found.beyond(
            "bad_script",
            f"Unsupported script extension '{name[dot:]}' for '{node.script}'",
            path,
            expected=f"one of {', '.join(SCRIPT_EXTENSIONS)}",
            hint="write it in bash, Python or TypeScript, or call it from such a script.",
        )
    if around.directory is None or look(around.directory / node.script).is_file() or found.is_full("error"):
        return
    scripts = [str(file.relative_to(around.directory)) for file in sorted(around.directory.glob("scripts/*"))]
    found.error(
        "missing_script",
        f"Script file not found: '{node.script}'",
        path,
        expected=f"a file in {around.directory}",
        hint=did_you_mean(node.script, scripts) or "paths are relative to the agent's directory.",
    )


def _check_agent(found: Findings, node: AgentNode, around: Surroundings) -> None:
    if around.agents is None or not node.agent:
        return
    seen = around.agents(node.agent)
    if seen == "found":
        return
    if node.agent.endswith((".yaml", ".yml")):
        found.error(
            "missing_agent",
            f"there is no file '{node.agent}' beside the graph",
            ("nodes", node.id, "agent"),
            expected="the path of a workflow's file, relative to the agent's directory",
        )
        return
    message = {
        "missing": f"Agent '{node.agent}' not found (directory missing)",
        "empty": f"Agent '{node.agent}' has neither a config.yaml nor a graph.yaml",
        "both": f"Agent '{node.agent}' has both config.yaml and graph.yaml",
    }[seen]
    found.error(
        "missing_agent",
        message,
        ("nodes", node.id, "agent"),
        expected=f"agents/{node.agent}/ in the config directory, or {node.agent}/ beside this agent's directory",
        hint="remove one of the two files." if seen == "both" else "create it, or name another agent.",
    )


def _check_approval(found: Findings, node: ApprovalNode) -> None:
    base: Path = ("nodes", node.id)
    if found.sound((*base, "routes"), (*base, "options")):
        for i, option in enumerate(node.options):
            if option not in node.routes:
                found.error(
                    "missing_route",
                    f"Approval option '{option}' has no route defined",
                    (*base, "options", i),
                    expected=f"a key '{option}' in `routes`",
                    hint=did_you_mean(option, set(node.routes).difference(node.options))
                    or f'add "{option}": <node id> to `routes`.',
                )
        for option in node.routes:
            if option not in node.options:
                found.warning(
                    "extra_route",
                    f"Route '{option}' has no corresponding option",
                    (*base, "routes", option),
                    expected=f"one of {', '.join(node.options) or 'the options'}",
                    hint=did_you_mean(option, node.options) or "list it in `options`, or remove the route.",
                )
    _check_next_unused(found, node)
    _check_timeout(found, node)


def _check_input(found: Findings, node: InputNode) -> None:
    base: Path = ("nodes", node.id)
    if len(node.targets) > 1:
        found.warning(
            "no_effect",
            "an input node uses only the first target of its `next`",
            (*base, "next"),
            expected="one node",
            hint="fan out from a script node behind it.",
        )
    if node.validation is not None:
        try:
            parse_rule(node.validation)
        except GraphMistake as mistake:
            found.beyond(
                "bad_validation",
                str(mistake),
                (*base, "validation"),
                expected="len(input) OP N",
                hint="for example `len(input) > 0`.",
            )
    _check_timeout(found, node)


def _check_next_unused(found: Findings, node: ApprovalNode | EndNode) -> None:
    if node.next is not None:
        found.warning(
            "no_effect",
            f"`next` has no effect on an {node.kind} node",
            ("nodes", node.id, "next"),
            expected="no `next`",
            hint="remove it; "
            + ("the run is over here." if isinstance(node, EndNode) else "the answer decides where to go."),
        )


def _check_timeout(found: Findings, node: ApprovalNode | InputNode) -> None:
    if node.on_timeout is not None and node.timeout is None:
        found.warning(
            "no_effect",
            "`on_timeout` has no effect without `timeout`",
            ("nodes", node.id, "on_timeout"),
            expected="`timeout:` with a number of seconds",
            hint="add `timeout`, or remove `on_timeout`.",
        )


def _check_rag(found: Findings, node: RagNode) -> None:
    base: Path = ("nodes", node.id)
    if not node.documents:
        found.error(
            "no_documents",
            "RAG node has no 'documents'; at least one knowledge source is required",
            (*base, "documents"),
            expected="a list of files, directories, globs or URLs",
            hint="for example `documents: [./knowledge/]`.",
        )
    if not node.updates:
        found.warning(
            "result_unused",
            "RAG node has no 'state_updates'; its retrieval result goes nowhere",
            base,
            hint='add `state_updates: {context: "{{output.context}}"}`.',
        )
    if node.chunk_size is not None and node.chunk_overlap is not None and node.chunk_overlap >= node.chunk_size:
        found.beyond(
            "bad_overlap",
            f"`chunk_overlap` {node.chunk_overlap} is not less than `chunk_size` {node.chunk_size}",
            (*base, "chunk_overlap"),
            expected=f"at most {node.chunk_size - 1}",
            hint="a twentieth to a tenth of the size is usual.",
        )


# --- tools and models -------------------------------------------------------------------------------------


def _check_tools(found: Findings, node: LlmNode, around: Surroundings) -> None:
    if around.directory is None:
        return
    graph = found.graph
    spell = around.spelled_out or (lambda names: [bare_name(name) for name in names])
    servers = list(graph.mcp_servers) if around.servers is None else around.servers.spelled_out(graph.mcp_servers)
    known = [*around.own_tools, *spell(graph.global_tools)]
    for i, tool in enumerate(node.tools):
        path: Path = ("nodes", node.id, "tools", i)
        if tool.startswith(WHOLE):
            named = tool.removeprefix(WHOLE)
            if named not in {*graph.mcp_servers, *servers}:
                found.error(
                    "unknown_server",
                    f"llm node references unknown MCP server '{tool}'. "
                    f"Agent '{graph.name}' has MCP servers: [{', '.join(graph.mcp_servers)}]",
                    path,
                    expected="a server listed in the graph's `mcp_servers`",
                    hint=did_you_mean(named, graph.mcp_servers) or f"add '{named}' to `mcp_servers`.",
                )
        elif found.is_full("error"):
            return
        elif any(name not in known and not _built_in(graph, name) for name in spell([tool])):
            if _of_a_server(tool, servers):
                continue  # which tools it has shows when it is asked
            server = None if around.servers is None else around.servers.behind(tool)
            of_server = server and (
                f"for the tools of MCP server '{server}': `mcp_servers: [{server}]` of the graph, "
                f"and here `{WHOLE}{server}`."
            )
            found.error(
                "unknown_tool",
                f"llm node references unknown tool '{tool}'. Agent '{graph.name}' provides: {', '.join(known)}",
                path,
                expected="a tool listed in the graph's `global_tools`, or `mcp:<server>`",
                hint=of_server
                or did_you_mean(tool, known)
                or f"add '{tool}' to `global_tools`, or define it in a tools.sh.",
            )


def _check_lists(found: Findings, node: LlmNode, around: Surroundings) -> None:
    """Lists of a server's tools that hold for no server, and so let everything through."""
    if around.servers is None or not isinstance(node.mcp_tools, Mapping):
        return
    servers = around.servers.spelled_out(found.graph.mcp_servers)
    for name in node.mcp_tools:
        if set(servers).isdisjoint(around.servers.spelled_out([name])):
            found.warning(
                "unknown_server",
                f"`mcp_tools` says something about '{name}', which is not among the graph's `mcp_servers`",
                ("nodes", node.id, "mcp_tools", name),
                hint=did_you_mean(name, servers) or f"add '{name}' to `mcp_servers`.",
            )


def _of_a_server(tool: str, servers: Sequence[str]) -> bool:
    if not servers:
        return False
    from ...work.mcp.tools.names import owner_of

    return owner_of(tool, servers) is not None


def _built_in(graph: Graph, tool: str) -> bool:
    if tool.startswith("user__"):
        return True
    return tool.startswith("agent__") and any(isinstance(node, AgentNode) for node in graph.nodes.values())


def _check_model(found: Findings, model: str | None, path: Path, around: Surroundings, who: str) -> None:
    if model is None or around.models is None:
        return
    hint = around.models(model)
    if hint is not None:
        found.error(
            "unknown_model",
            f"{who}unknown model '{model}'",
            path,
            expected="client:model, with a client that is configured",
            hint=hint,
        )


def _check_globals(found: Findings, around: Surroundings) -> None:
    if around.servers is None:
        return
    for i, listed in enumerate(found.graph.mcp_servers):
        for server in around.servers.spelled_out([listed]):
            path: Path = ("mcp_servers", i)
            hint = around.servers.missing(server)
            if hint is not None and not found.compat.missing_servers_are_silent:
                found.warning("unknown_server", f"MCP server '{server}' is not configured", path, hint=hint)
            why = around.servers.broken(server)
            if why is not None:
                tell = found.beyond if _is_wanted(found.graph, {listed, server}) else found.warning
                tell("broken_server", f"MCP server '{server}' can't be used", path, hint=why)


def _is_wanted(graph: Graph, names: set[str]) -> bool:
    """Whether a node lists something of a server that goes by one of these names, so that the run will ask for it."""
    listed = [tool for node in graph.nodes.values() if isinstance(node, LlmNode) for tool in node.tools]
    return any(tool.removeprefix(WHOLE) in names or _of_a_server(tool, sorted(names)) for tool in listed)


def _check_updates(found: Findings, node: AnyNode) -> None:
    for key, update in node.updates.items():
        if isinstance(update, Raw) and compile_template(update.raw).single is None:
            found.error(
                "bad_raw",
                f"`raw` of '{key}' is {update.raw!r}, which is not a single {{{{path}}}}",
                ("nodes", node.id, "state_updates", key),
                expected="a template of exactly one path",
                hint='write {raw: "{{path}}"}, or a plain text to mix several.',
            )
