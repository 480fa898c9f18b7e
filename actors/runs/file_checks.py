"""Checks of the names in an agent's file: tools, its own tools file, MCP servers, documents, models, child agents with
their variables, and parameters of models.

Missing keys and missing weights of models are no errors of the file: the run reports them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from ...protocol.agent import Agent
from ...protocol.chat import models_of
from ...protocol.errors import CallboardError, ConfigError, CredentialsError, InvalidFile
from ...protocol.graph import AgentNode, Graph, LlmNode, RagNode, Variable
from ...protocol.mcp.config import WHOLE, McpConfig, spelled_out
from ...protocol.permissions import denies
from ...protocol.problems import Problem, did_you_mean, slip_of, suggestion
from ...protocol.settings import Settings
from ...protocol.tree import Path as Keys
from ...protocol.tree import plain
from ...protocol.yaml_tree import Source, parse_mapping
from ..io.file_fingerprints import record_read
from ..io.settings import load_settings
from ..io.tenancy import environ
from ..work.tools.registry import AICHAT_FILE, ToolRegistry, agent_file, agent_files, read_tool_file
from ..work.variables import lacking_values

if TYPE_CHECKING:
    from ...protocol.workflow.model import AgentConfig, Workflow
    from ...protocol.workflow.model import Graph as WorkflowGraph
    from ...protocol.workflow.model import Node as WorkflowNode
    from ..work.models.catalog import Task


def own_tools(directory: Path) -> tuple[list[str], list[Problem]]:
    """Return the names in the tools file of the agent in `directory`, and the file's problems."""
    try:
        path = agent_file(directory)
    except InvalidFile as error:
        return [], [Problem(severity="error", file=str(directory), code="tool_files", message=str(error))]
    if path is None:
        return [], []
    file = read_tool_file(path, agent=True)
    problems = list(file.problems)
    if others := [other.name for other in agent_files(directory) if other != path]:
        what = f"{path.name} has the agent's tools, as in aichat; not used: {', '.join(others)}"
        problems.append(Problem(severity="warning", file=str(path), code="tool_files", message=what))
    return [declaration.name for declaration in file.declarations], problems


class KnownServers:
    """MCP servers of a configuration directory; `mcp.json` is read at the first lookup. Implements `ServersSeen`."""

    def __init__(self, base: Path, settings: Settings) -> None:
        self._base = base
        self._settings = settings

    @cached_property
    def _config(self) -> McpConfig:
        # Not at the top: most agents name no server, and the import loads the MCP package.
        from ..work.mcp.files import load_mcp

        return load_mcp(self._base)

    def spelled_out(self, names: Iterable[str]) -> list[str]:
        names = list(names)
        if not names:
            return []
        there = [name for name, server in self._config.servers.items() if not server.disabled]
        return spelled_out(names, self._settings.mapping_mcp_servers, there)

    def missing(self, name: str) -> str | None:
        """Return a remedy if the server is not configured, else None.

        If MCP is off, which is an error of its own, no server counts as missing.
        """
        from ..work.mcp.tools.names import remedy

        if not self._settings.mcp_server_support or name in self._config.servers or name in self._config.broken:
            return None
        return remedy(name, self._config, self._settings.mapping_mcp_servers)

    def broken(self, name: str) -> str | None:
        why = self._config.broken.get(name) if self._settings.mcp_server_support else None
        return None if why is None else f"its entry in {self._config.file}: {why}"

    @property
    def cut_short(self) -> bool:
        """True if `mcp.json` cannot be read to its end, so that it may have a server that is not found."""
        return bool(self._config.problems_of(()))

    def behind(self, tool: str) -> str | None:
        from ..work.mcp.tools.names import owner_of

        named = tool.removeprefix(WHOLE)
        known = [*self._config.servers, *self._settings.mapping_mcp_servers]
        return named if named in known else owner_of(tool, self._config.servers)


def check_listed(
    agent: Agent | Graph,
    own: Sequence[str],
    registry: ToolRegistry,
    servers: KnownServers | None = None,
    *,
    silent: bool = False,
) -> list[Problem]:
    """Return warnings about names in `global_tools` or `permissions` without a tool, and about missing MCP servers.

    Servers are checked for agents in `config.yaml` only; the check of graphs reports theirs.

    Args:
        own: names of the agent's own tools.
        registry: the global tools.
        silent: do not report MCP servers that are not configured (see `Compat`).
    """
    problems = []
    servers = servers or KnownServers(registry.config_dir, registry.settings)
    for number, listed in enumerate(agent.global_tools):
        for name, hint in registry.unknown([listed]):
            if name not in own:
                # Other agent programs list tools of MCP servers here; the hint names the key that does it.
                server = servers.behind(name)
                if server is not None:
                    hint = f"for the tools of MCP server '{server}': `mcp_servers: [{server}]`"
                lists = "`global_tools` lists" if agent.source.file else "its list of tools has"
                text = f"{lists} '{name}', and there is no such tool"
                problems.append(
                    agent.source.problem("warning", "unknown_tool", text, ("global_tools", number), hint=hint)
                )
    for name, hint in registry.strangers(agent.permissions, own):
        if _has_others_below(agent) and denies(agent.permissions[name]) and not hint.startswith("did you mean"):
            continue  # the name may be a tool of a child agent
        text = f"`permissions` names '{name}', and there is no such tool"
        problems.append(agent.source.problem("warning", "unknown_tool", text, ("permissions", name), hint=hint))
    return [*problems, *_unknown_servers(agent, servers, silent=silent)]


def _has_others_below(agent: Agent | Graph) -> bool:
    """Return whether other agents can work below it; its permissions may deny tools of such agents."""
    if isinstance(agent, Agent):
        return agent.can_spawn_agents
    return any(isinstance(node, AgentNode) for node in agent.nodes.values())


def _unknown_servers(agent: Agent | Graph, servers: KnownServers, *, silent: bool) -> list[Problem]:
    problems = []
    for number, listed in enumerate(agent.mcp_servers if isinstance(agent, Agent) else ()):
        for name in servers.spelled_out([listed]):
            path = ("mcp_servers", number)
            hint = None if silent else servers.missing(name)
            if hint is not None:
                text = f"MCP server '{name}' is not configured"
                problems.append(agent.source.problem("warning", "unknown_server", text, path, hint=hint))
            why = servers.broken(name)
            if why is not None:
                text = f"MCP server '{name}' can't be used"
                problems.append(agent.source.problem("error", "broken_server", text, path, hint=why))
    lists = agent.mcp_tools if isinstance(agent.mcp_tools, dict) else {}
    named = servers.spelled_out(agent.mcp_servers) if lists else []
    for name in lists:
        if set(named).isdisjoint(servers.spelled_out([name])):
            text = f"`mcp_tools` has an entry for '{name}', which is not in the agent's `mcp_servers`"
            hint = did_you_mean(name, named) or f"add '{name}' to `mcp_servers`."
            problems.append(
                agent.source.problem("warning", "unknown_server", text, ("mcp_tools", name), at_key=True, hint=hint)
            )
    return problems


def check_user(allowed: Iterable[str], own: Sequence[str], registry: ToolRegistry, settings: Settings) -> list[Problem]:
    """Return a warning for each missing tool that the user's own permissions name.

    Settings may name tools in other agents' files, so there only near misses are reported.

    Args:
        allowed: names given with `--allow`.
        own: names of tools that are not global.
    """
    strange = [("--allow", "command line", name, hint) for name, hint in registry.strangers(allowed, own)]
    strange += [
        ("`permissions`", settings.file, name, hint)
        for name, hint in registry.strangers(settings.permissions, own)
        if hint.startswith("did you mean")
    ]
    return [
        Problem(
            severity="warning",
            code="unknown_tool",
            message=f"{what} names '{name}', and there is no such tool",
            file=file,
            hint=hint,
        )
        for what, file, name, hint in strange
    ]


def registry_of(base: Path) -> ToolRegistry:
    """Return the global tools of a configuration directory. Unreadable settings count as empty."""
    try:
        settings, _ = load_settings(base)
    except ConfigError:
        settings = Settings()  # the run reports the error
    return ToolRegistry(base, settings, environ())


_ELSEWHERE = re.compile(r"[*?\[{:;]")
"""Globs, URLs, loaders, and several paths in one line: they are only resolved when documents are read."""


def check_inputs(
    graph: Graph, near: Sequence[Path], directory: Path, environ: Mapping[str, str], *, only_warn: bool = False
) -> list[Problem]:
    """Return problems of `inputs` in agent nodes: variables without a value, and inputs that the agent does not
    declare.

    Without this check, the node would fail when it is reached, after the nodes before it have been paid for. So a run
    is refused, as for a missing agent.

    Args:
        near: directories of agents, searched in order.
        directory: the graph's directory; an `agent` that names a file is relative to it.
        environ: the environment, in which `<AGENT>_VARIABLES` may set values.
        only_warn: report warnings instead of errors (see `Compat.extra_checks_only_warn`).
    """
    problems: list[Problem] = []
    severity: Literal["error", "warning"] = "warning" if only_warn else "error"
    for node in graph.nodes.values():
        found = _declared(node.agent, near, directory) if isinstance(node, AgentNode) else None
        if found is None or not isinstance(node, AgentNode):
            continue
        agent, declared = found
        names = [variable.name for variable in declared]
        for name in [name for name in node.inputs if name not in names]:
            path: Keys = ("nodes", node.id, "inputs", name)
            hint = did_you_mean(name, names) or f"it has: {', '.join(names) or 'none'}"
            what = f"agent '{node.agent}' has no variable '{name}'"
            problems.append(graph.source.problem(severity, "unknown_input", what, path, node=node.id, hint=hint))
        for name in lacking_values(agent, declared, node.inputs, environ):
            hint = f"write `inputs: {{{name}: ...}}` in the node, or {_DEFAULT}."
            what = _lacks(node.agent, name, f"node '{node.id}' gives none")
            problems.append(
                graph.source.problem(severity, "missing_input", what, ("nodes", node.id), node=node.id, hint=hint)
            )
    return problems


def _near(config: AgentConfig, places: Sequence[Path]) -> str:
    there = [path.name for place in places if record_read(place).is_dir() for path in place.iterdir() if path.is_dir()]
    return did_you_mean(config.name, there) or "create it, or name another agent."


_DEFAULT = "give the variable a default in the agent's file"


def _lacks(agent: str, variable: str, why: str) -> str:
    return f"agent '{agent}' needs a value for its variable '{variable}', and {why}"


def check_called(
    workflow: Workflow, near: Sequence[Path], directory: Path, environ: Mapping[str, str]
) -> list[Problem]:
    """Return problems of agents that nodes with `provider: callboard` name. For the arguments see `check_inputs`.

    A missing agent is a warning. Variables without a value are errors, because a workflow cannot set them.
    """
    from ...protocol.workflow.model import AgentConfig

    problems: list[Problem] = []
    for graph in _graphs(workflow):
        for node in graph.nodes:
            config = node.config
            if not isinstance(config, AgentConfig) or config.provider != "callboard" or "${" in config.name:
                continue
            path: Keys = (*node.path, "config", "name")
            found = _declared(config.name, near, directory)
            if not config.name.endswith((".yaml", ".yml")) and not any(
                record_read(p / config.name).is_dir() for p in near
            ):
                what = f"there is no agent '{config.name}' in {near[0]} or {near[1]}, and none is built in"
                problems.append(
                    graph.source.problem("warning", "missing_agent", what, path, node=node.id, hint=_near(config, near))
                )
            for name in lacking_values(*found, (), environ) if found is not None else ():
                what = _lacks(config.name, name, "a workflow gives none")
                hint = f"{_DEFAULT}, or name it in a graph with an agent node, which has `inputs`."
                problems.append(graph.source.problem("error", "missing_input", what, path, node=node.id, hint=hint))
    return problems


def _declared(agent: str, near: Sequence[Path], directory: Path) -> tuple[str, list[Variable]] | None:
    """Return the name and the variables in an agent's file; None if it cannot be read, or is a workflow."""
    if agent.endswith((".yaml", ".yml")):
        files = [directory / agent]
    else:
        files = [place / agent / name for place in near for name in ("config.yaml", "graph.yaml", AICHAT_FILE)]
    try:
        file = next((file for file in files if record_read(file).is_file()), None)
        root = None if file is None else parse_mapping(record_read(file).read_text(encoding="utf-8"), str(file))[0]
    except (OSError, UnicodeDecodeError):
        return None
    if root is None or "name" not in root.entries:
        return None
    entry, name = root.entries.get("variables"), plain(root.entries["name"].value)
    listed = plain(entry.value) if entry is not None else []
    variables = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return str(name), [
        Variable(name=str(each["name"]), default=None if each.get("default") is None else str(each["default"]))
        for each in variables
        if "name" in each
    ]


_MOST_TEMPERATURE, _MOST_TOP_P = 2.0, 1.0
"""The widest ranges of any provider; many accept a temperature of at most 1."""


def check_sampling(thing: Agent | Graph | Workflow) -> list[Problem]:
    """Return warnings about values of `temperature` and `top_p` that no provider accepts, and misspelt names in
    `params`.
    """
    if not isinstance(thing, Agent | Graph):
        return [problem for graph in _graphs(thing) for node in graph.nodes for problem in _of_params(graph, node)]
    found = _out_of_range(thing.source, thing, (), None)
    for node in thing.nodes.values() if isinstance(thing, Graph) else ():
        if isinstance(node, LlmNode):
            found += _out_of_range(thing.source, node, ("nodes", node.id), node.id)
    return found


def _out_of_range(source: Source, values: object, path: Keys, node: str | None) -> list[Problem]:
    problems = []
    for key, most in (("temperature", _MOST_TEMPERATURE), ("top_p", _MOST_TOP_P)):
        value = values.get(key) if isinstance(values, dict) else getattr(values, key, None)
        if isinstance(value, int | float) and not isinstance(value, bool) and not 0 <= value <= most:
            what = f"`{key}` is {value:g}, which no provider accepts"
            expected = f"a number from 0 to {most:g}"
            problems.append(source.problem("warning", "out_of_range", what, (*path, key), node=node, expected=expected))
    return problems


def _graphs(workflow: Workflow) -> list[WorkflowGraph]:
    from ..engine.workflow.plan import graphs_of

    return graphs_of(workflow.graph)


def _of_params(graph: WorkflowGraph, node: WorkflowNode) -> list[Problem]:
    from ...protocol.workflow.model import AgentConfig

    config = node.config
    if not isinstance(config, AgentConfig) or not config.params:
        return []
    from ..engine.workflow.agent_request import ModelParams

    known = {*ModelParams.__struct_fields__, *_OF_PROVIDERS}
    path: Keys = (*node.path, "config", "params")
    problems = _out_of_range(graph.source, config.params, path, node.id)
    for name in config.params:
        slip = None if name in known else slip_of(name, sorted(known))
        if slip is not None:
            what = f"`params` has '{name}', which is sent to the provider unchanged"
            problems.append(
                graph.source.problem(
                    "warning", "unknown_param", what, (*path, name), node=node.id, at_key=True, hint=suggestion(slip)
                )
            )
    return problems


_OF_PROVIDERS: Final = (
    *("top_k", "min_p", "n", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias"),
    *("logprobs", "top_logprobs", "user", "metadata", "store", "service_tier", "response_format", "reasoning"),
    *("reasoning_effort", "verbosity", "modalities", "parallel_tool_calls", "stop_sequences", "candidate_count"),
    *("thinking", "thinking_config", "safety_settings", "response_mime_type", "extra_body", "extra_headers"),
)
"""Parameters that some provider accepts, and that are therefore not misspelt."""


def check_documents(agent: Agent | Graph, directory: Path) -> list[Problem]:
    """Return a warning for each missing file or directory among the documents.

    Args:
        directory: base of relative paths.
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
            if record_read(path).exists():
                continue
            near = [entry.name for entry in record_read(path.parent).iterdir()] if path.parent.is_dir() else []
        except (OSError, RuntimeError):  # The reader of the document reports why it cannot be read.
            continue
        problems.append(
            agent.source.problem(
                "warning",
                "missing_document",
                f"the document '{document}' does not exist",
                (*keys, number),
                node=node,
                expected=f"a file or directory in {directory}",
                hint=did_you_mean(path.name, near) or "paths are relative to the agent's directory.",
            )
        )
    return problems


class KnownModels:
    """Models of the clients that settings and environment define."""

    def __init__(self, settings: Settings) -> None:
        from ..work.models.catalog import ModelCatalog

        self._catalog = ModelCatalog(settings, environ())

    def why_not(self, model: str, task: Task | Literal["chat"] = "chat") -> str | None:
        """Return the reason why no model with this id can be used for the task; None if one can.

        A chat `model` can name fallback models too; each of them must be usable. A missing key is no reason.
        """
        names = models_of(model) if task == "chat" else (model,)
        for name in names:
            try:
                with suppress(CredentialsError):
                    self._catalog.named(name) if task == "chat" else self._catalog.access(name, task)
            except CallboardError as error:
                which = f"'{name}': " if len(names) > 1 else ""
                return f"{which}{_SAID.sub('', str(error))}."
        return None


_SAID = re.compile(r"^unknown \w+ model '[^']*'[:;] ")
"""Prefix of an error that the problem's own message repeats."""


def check_models(thing: Agent | Graph, known: KnownModels) -> list[Problem]:
    """Return an error for each model id in the file that `known` cannot use for its task.

    Chat models of a graph are not checked here, because the check of graphs does it.
    """
    named: list[tuple[Keys, str | None, str | None, Task | Literal["chat"]]] = []
    if isinstance(thing, Agent):
        named += [(("model",), None, thing.model, "chat")]
        named += [(("summarization_model",), None, thing.summarization_model, "chat")]
    else:
        for node in thing.nodes.values():
            if isinstance(node, RagNode):
                path = ("nodes", node.id)
                named += [((*path, "embedding_model"), node.id, node.embedding_model, "embedding")]
                named += [((*path, "reranker_model"), node.id, node.reranker_model, "reranker")]
    return [
        thing.source.problem(
            "error",
            "unknown_model",
            f"unknown model '{model}'",
            keys,
            node=node_id,
            expected="client:model, with a client that is configured",
            hint=hint,
        )
        for keys, node_id, model, task in named
        if model and (hint := known.why_not(model, task)) is not None
    ]
