"""Checks of single nodes, by type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....protocol.errors import GraphMistake
from ....protocol.graph import (
    AgentNode,
    AnyNode,
    ApprovalNode,
    EndNode,
    FunctionNode,
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
from ...io.file_fingerprints import record_read
from ...io.json_schema import schema_problem
from ...work.tools.registry import bare_name
from .findings import CheckContext, Findings, listed
from .key_checks import check_keys
from .rules import parse_rule
from .templates import compile_template

SCRIPT_EXTENSIONS = (".sh", ".py", ".ts")


def check_nodes(found: Findings, around: CheckContext | None) -> None:
    """Run every check of every node."""
    around = around or CheckContext()
    for node in found.graph.nodes.values():
        if isinstance(node, FunctionNode):
            pass  # a Python function, so no file can be missing
        elif isinstance(node, ScriptNode):
            _check_script(found, node, around)
        elif isinstance(node, AgentNode):
            _check_agent(found, node, around)
            _check_schema(found, node)
        elif isinstance(node, ApprovalNode):
            _check_approval(found, node)
        elif isinstance(node, InputNode):
            _check_input(found, node)
        elif isinstance(node, RagNode):
            _check_rag(found, node)
        elif isinstance(node, LlmNode):
            _check_schema(found, node)
            _check_tools(found, node, around)
            _check_lists(found, node, around)
            _check_model(found, node.model, ("nodes", node.id, "model"), around, "llm node references ")
        elif isinstance(node, EndNode):
            _check_next_unused(found, node)
        _check_updates(found, node)
        _check_blanks(found, node)
    _check_model(found, found.graph.model, ("model",), around, "the graph references ")
    _check_globals(found, around)
    check_keys(found, around)


def _check_blanks(found: Findings, node: AnyNode) -> None:
    """Report readable values that are hardly intended: an empty prompt, no options, the same target twice."""
    path: Path = ("nodes", node.id)
    if isinstance(node, LlmNode | AgentNode) and not node.prompt.strip():
        found.warning(
            "empty_prompt",
            f"the prompt of '{node.id}' is empty, so its model is asked nothing",
            (*path, "prompt"),
            hint='write a text, for example "{{initial_prompt}}".',
        )
    if isinstance(node, ApprovalNode) and not node.options:
        found.warning(
            "no_options",
            f"'{node.id}' offers no options, so every answer goes to '{node.on_other}'",
            (*path, "options"),
            hint="list options and their `routes`, or write an input node for a free text.",
        )
    if len(node.targets) > len(set(node.targets)):
        twice = next(target for target in node.targets if node.targets.count(target) > 1)
        found.warning(
            "same_target",
            f"`next` of '{node.id}' names '{twice}' twice; it runs once",
            (*path, "next"),
            hint="name it once.",
        )


def _check_schema(found: Findings, node: LlmNode | AgentNode) -> None:
    # An error of the schema would not be listed, so skip the validation.
    if node.output_schema is None or found.is_full("error"):
        return
    problem = schema_problem(node.output_schema)
    if problem is not None:
        where, why = problem
        found.beyond(
            "bad_schema",
            f"`output_schema` of '{node.id}' is not a valid JSON Schema: {why}",
            ("nodes", node.id, "output_schema", *where),
            expected="a JSON Schema",
            hint="each property is a schema of its own: `properties: {topic: {type: string}}`.",
        )


def _check_script(found: Findings, node: ScriptNode, around: CheckContext) -> None:
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
    if around.directory is None or record_read(around.directory / node.script).is_file() or found.is_full("error"):
        return
    scripts = [str(file.relative_to(around.directory)) for file in sorted(around.directory.glob("scripts/*"))]
    found.error(
        "missing_script",
        f"Script file not found: '{node.script}'",
        path,
        expected=f"a file in {around.directory}",
        hint=did_you_mean(node.script, scripts) or "paths are relative to the agent's directory.",
    )


def _check_agent(found: Findings, node: AgentNode, around: CheckContext) -> None:
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


def _check_tools(found: Findings, node: LlmNode, around: CheckContext) -> None:
    # Without a directory the agent's own tools are unknown.
    if around.directory is None:
        return
    graph = found.graph
    # Without a registry only file endings can be removed; aliases stay unresolved.
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
        # Hints compare the name with every known tool; skip that work for errors that are not listed.
        elif found.is_full("error"):
            return
        elif any(name not in known and not _built_in(graph, name) for name in spell([tool])):
            if _of_a_server(tool, servers):
                continue  # the server lists its tools only when it runs
            server = None if around.servers is None else around.servers.behind(tool)
            of_server = server and (
                f"for the tools of MCP server '{server}': `mcp_servers: [{server}]` of the graph, "
                f"and here `{WHOLE}{server}`."
            )
            of_server = of_server or _of_listed(tool, servers, known)
            found.error(
                "unknown_tool",
                f"llm node references unknown tool '{tool}'. Agent '{graph.name}' provides: {', '.join(known)}",
                path,
                expected="a tool listed in the graph's `global_tools`, or `mcp:<server>`",
                hint=of_server
                or did_you_mean(tool, known)
                or f"add '{tool}' to `global_tools`, or define it in a tools.sh.",
            )


def _check_lists(found: Findings, node: LlmNode, around: CheckContext) -> None:
    """Report `mcp_tools` entries that match no server and therefore restrict nothing."""
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


def _of_listed(tool: str, servers: Sequence[str], known: Sequence[str]) -> str | None:
    """Return a hint on the spelling of MCP tools; None without servers, or for a near miss of a known tool.

    The tools of a server are known only when it runs.
    """
    if not servers or did_you_mean(tool, known):
        return None
    one = servers[0]
    of = f"MCP server '{one}' is" if len(servers) == 1 else f"an MCP server ({listed(servers)}) is"
    return f"a tool of {of} written `{one}__{tool}`, and all of its tools `{WHOLE}{one}`."


def _of_a_server(tool: str, servers: Sequence[str]) -> bool:
    if not servers:
        return False
    from ...work.mcp.tools.names import owner_of

    return owner_of(tool, servers) is not None


def _built_in(graph: Graph, tool: str) -> bool:
    if tool.startswith("user__"):
        return True
    return tool.startswith("agent__") and any(isinstance(node, AgentNode) for node in graph.nodes.values())


def _check_model(found: Findings, model: str | None, path: Path, around: CheckContext, who: str) -> None:
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


def _check_globals(found: Findings, around: CheckContext) -> None:
    if around.servers is None:
        return
    for i, name in enumerate(found.graph.mcp_servers):
        for server in around.servers.spelled_out([name]):
            path: Path = ("mcp_servers", i)
            hint = around.servers.missing(server)
            if hint is not None and not found.compat.missing_servers_are_silent:
                found.warning("unknown_server", f"MCP server '{server}' is not configured", path, hint=hint)
            why = around.servers.broken(server)
            if why is not None:
                # A broken server that no node uses does not disturb the run.
                tell = found.beyond if _is_wanted(found.graph, {name, server}) else found.warning
                tell("broken_server", f"MCP server '{server}' can't be used", path, hint=why)


def _is_wanted(graph: Graph, names: set[str]) -> bool:
    """Return True if a node lists tools of a server with one of these names, so that the run will connect to it."""
    tools = [tool for node in graph.nodes.values() if isinstance(node, LlmNode) for tool in node.tools]
    return any(tool.removeprefix(WHOLE) in names or _of_a_server(tool, sorted(names)) for tool in tools)


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
