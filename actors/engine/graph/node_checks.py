"""Checks of single nodes, by type, and of the state keys that their templates read.

A template that reads a key that nothing writes would render as nothing; mostly the key is a typing error
(`check_keys`). The file declares most keys: `initial_state`, `reducers`, `state_updates`, properties of schemas, keys
of maps. Two kinds of nodes write keys that the file does not name. If the graph has one of them, only a near miss of a
known key is reported:

- scripts. Their output is known only at run time. But a script that prints a key mostly contains its name, or a helper
  in the same directory does. A key that occurs in one of these files is not reported.
- models and agents with an `output_schema` without properties.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path as FilePath

import msgspec

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
    MapNode,
    RagNode,
    Raw,
    ScriptNode,
)
from ....protocol.mcp.config import WHOLE
from ....protocol.problems import did_you_mean, slip_of, suggestion
from ....protocol.tree import Path
from ...io.file_fingerprints import record_read
from ...io.json_schema import schema_problem
from ...work.tools.registry import bare_name
from .findings import WRITING, CheckContext, Findings, listed
from .input_validation import parse_rule
from .templates import compile_template, name_character, root_of, separator

SCRIPT_EXTENSIONS = (".sh", ".py", ".ts")


def check_nodes(found: Findings, around: CheckContext | None) -> None:
    """Run all checks of single nodes and of the graph's model and MCP servers; add the problems to `found`.

    Args:
        around: the environment of the graph; None skips the checks that need it.
    """
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
            hint="let `next` name a script node, and let that one name several.",
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
                f"`mcp_tools` restricts the server '{name}', which is not among the graph's `mcp_servers`",
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


# --- state keys in templates ------------------------------------------------------------------------------


SCOPED = frozenset({"output", "choice", "input"})
"""Names that exist only while a node's `state_updates` are rendered."""

_SPACED = re.compile(rf"\{{\{{(?=[^{{}}]*\s)\s*((?:(?!\s){name_character('.[]-')})+)\s*\}}\}}")
_WORD = re.compile(r"[A-Za-z0-9_]+")
_NAME = re.compile(f"{name_character()}{name_character('-')}*")
_ENDINGS = (".sh", ".py", ".ts", ".js", ".mjs")
_MOST_FILES, _MOST_CHARACTERS = 200, 1_000_000
"""Most files that are read next to scripts, and most characters of each."""


def check_keys(found: Findings, around: CheckContext) -> None:
    """Warn about template paths whose state key nothing writes, and about text in braces that is no path."""
    graph = found.graph
    known = known_keys(graph)
    # Every writer declares its keys, so any unknown key is a mistake, not only a near miss.
    closed = found.readable(WRITING) and not writes_anything(graph)
    # lazy: the files are read at the first unknown key
    words = cache(partial(_words_of_scripts, graph, around.directory))
    names = sorted(known)
    items = {node.as_ for node in graph.nodes.values() if isinstance(node, MapNode)}
    told: dict[str, str | None] = {}
    for node in graph.nodes.values():
        for read in reads(node):
            # Saves compiling texts without templates.
            if "{{" not in read.text or not found.sound(read.path):
                continue
            for key in read.roots():
                if key in known or found.is_full("warning") or (key in SCOPED and found.compat.scoped_names_stay_null):
                    continue
                if key not in told:
                    # `over: "{{parts}}"` with `as: part` is the usual spelling of a map, not a typing error
                    one = key.removesuffix("s")
                    told[key] = slip_of(key, [name for name in names if name != one] if one in items else names)
                near = told[key]
                if (near or closed) and key not in words():
                    found.warning(
                        "unknown_key_read",
                        f"the template reads '{key}', which no node writes and `initial_state` does not have",
                        read.path,
                        expected="a key of `initial_state`, or a key that an earlier node writes",
                        hint=_how_to_have(key, near, graph),
                    )
            _check_spaces(found, read.text, read.path, known)


def _words_of_scripts(graph: Graph, directory: FilePath | None) -> frozenset[str]:
    """Return every word in the scripts of a graph and in the files next to them."""
    words: set[str] = set()
    if directory is None:
        return frozenset()
    scripts = [node.script for node in graph.nodes.values() if isinstance(node, ScriptNode)]
    left = _MOST_FILES
    for place in dict.fromkeys((directory / script).parent for script in scripts):
        files: list[FilePath] = []
        with suppress(OSError):  # a missing script is reported by another check
            files = sorted(file for file in record_read(place).iterdir() if file.suffix in _ENDINGS)[:left]
        left -= len(files)
        for file in files:
            with suppress(OSError), record_read(file).open(encoding="utf-8", errors="replace") as opened:
                text = opened.read(_MOST_CHARACTERS)
                words.update(_WORD.findall(text))
                words.update(_NAME.findall(text))
    return frozenset(words)


def _how_to_have(key: str, near: str | None, graph: Graph) -> str:
    if near:
        return suggestion(near)
    seed = f"`initial_state: {{{key}: ''}}`."
    if any(variable.name == key for variable in graph.variables):
        return (
            f"only scripts can read variables: let a script write it into the state, or give it a start value: {seed}"
        )
    return f"give it a start value: {seed}"


_FILTERED = re.compile(rf"\{{\{{\s*((?!\s){name_character()}{name_character('.[]-')}*)\s*[|(+*/?:][^{{}}]*\}}\}}")
_EXPRESSION = re.compile(
    rf"\{{\{{\s*((?!\s){name_character()}{name_character('.[]')}*)(?:\s+\S|{separator('.[]{}-')})[^{{}}]*\}}\}}"
)
"""Tokens that begin with a known key but are not paths: `{{a == 'b'}}`, `{{a - 1}}`, `{{a, b}}`."""


def _check_spaces(found: Findings, text: str, path: Path, known: Iterable[str]) -> None:
    for token in _FILTERED.finditer(text):
        if root_of(token.group(1)) in known and not found.is_full("error"):
            found.beyond(
                "template_filter",
                f"'{token.group(0)}' stays as it is, because templates have no filters and no expressions",
                path,
                expected="{{" + token.group(1) + "}}",
                hint="compute the value in a script node before this one, and read its state key here.",
            )
    for token in _EXPRESSION.finditer(text):
        if root_of(token.group(1)) in known and not _FILTERED.match(token.group(0)):
            found.warning(
                "template_expression",
                f"'{token.group(0)}' stays as it is, because templates have no expressions",
                path,
                expected="{{" + token.group(1) + "}}",
                hint="compute the value in a script node before this one, and read its state key here.",
            )
    for token in _SPACED.finditer(text):
        if root_of(token.group(1)) in known:
            found.warning(
                "template_spaces",
                f"'{token.group(0)}' stays as it is, because templates have no spaces between the braces",
                path,
                expected="{{" + token.group(1) + "}}",
                hint="remove the spaces between the braces.",
            )


class Read(msgspec.Struct, frozen=True):
    """Template in a node, with its position.

    Attributes:
        text: the template.
        path: its position in the file.
        update: True for a value of `state_updates`, which can read the names of `SCOPED`.
    """

    text: str
    path: Path
    update: bool = False

    def roots(self) -> list[str]:
        """Return the state keys that the template reads, without `output`, `choice` and `input` in an update."""
        keys = dict.fromkeys(root_of(path) for path in compile_template(self.text).paths)
        return [key for key in keys if not (self.update and key in SCOPED)]


def reads(node: AnyNode) -> Iterator[Read]:
    """Yield every template of a node."""
    base: Path = ("nodes", node.id)
    for name, text in _templated(node):
        yield Read(text, (*base, *name))
    for key, update in node.updates.items():
        text = update.raw if isinstance(update, Raw) else update
        yield Read(text, (*base, "state_updates", key), update=True)


_TEMPLATED: dict[type[AnyNode], tuple[str, ...]] = {
    LlmNode: ("prompt", "instructions"),
    AgentNode: ("prompt", "inputs"),
    ApprovalNode: ("question",),
    InputNode: ("question", "default"),
    RagNode: ("query",),
    MapNode: ("over", "max_concurrency"),
    EndNode: ("output", "error"),
}
"""Template keys by type of node; a key can also hold a mapping of templates."""


def _templated(node: AnyNode) -> Iterator[tuple[Path, str]]:
    for name in _TEMPLATED.get(type(node), ()):
        value = getattr(node, name)
        if isinstance(value, Mapping):
            yield from (((name, key), text) for key, text in value.items())
        elif isinstance(value, str):
            yield (name,), value


def declared_writes(node: AnyNode) -> list[str]:
    """Return the keys of `state_updates` and of `output_schema.properties`, without duplicates, as Loki's validator
    does.

    The keys that a script prints are not known here.
    """
    keys = dict.fromkeys(node.updates)
    if isinstance(node, LlmNode | AgentNode) and node.output_schema is not None:
        properties = node.output_schema.get("properties")
        if isinstance(properties, dict):
            keys.update(dict.fromkeys(properties))
    return list(keys)


def known_keys(graph: Graph) -> set[str]:
    """Return every state key that the file declares as written, seeded or passed to a branch."""
    keys = {"initial_prompt", *graph.initial_state, *graph.reducers}
    for node in graph.nodes.values():
        if node.on_error == "collect":
            keys.add("errors")
        keys.update(declared_writes(node))
        if isinstance(node, MapNode):
            keys.update((node.as_, node.collect_into, node.output_key))
    return keys


def writes_anything(graph: Graph) -> bool:
    """Return True if the graph has a node that can write keys which the file does not declare."""
    return any(
        (isinstance(node, ScriptNode) and not (isinstance(node, FunctionNode) and node.updates))
        or (isinstance(node, LlmNode | AgentNode) and node.output_schema and not node.output_schema.get("properties"))
        for node in graph.nodes.values()
    )
