"""Preparation of an agent for a run: resolves variables, finds tools, compiles the graph, and refuses what cannot run.

The agent that the user named and the agents that it calls (`begin`) are prepared alike. The functions at the
end find the tools of a graph's llm nodes, and the workspace files that those nodes use.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ...protocol.agent import Agent
from ...protocol.chat import Part
from ...protocol.errors import CallboardError, InvalidFile, ResultInvalid, RunFailed, TimedOut, Unsupported
from ...protocol.graph import AgentNode, AnyNode, FunctionNode, Graph, LlmNode, OwnLimits, RagNode, ScriptNode
from ...protocol.placement import Branch, Place
from ...protocol.problems import Problem
from ..engine.conversation.agent import AgentSetup, run_agent
from ..engine.graph.compat import MODES
from ..engine.graph.result import GraphResult
from ..io.imports import imported
from ..work.agent.history import History
from ..work.agent.tool_families import renamed, user_tools
from ..work.journal.actor_journal import noted, scope_of
from ..work.opening_instructions import Wish
from ..work.spending.accounts import Account, Amount, as_failure
from ..work.tools.registry import tools_of_agent
from ..work.tools.tool import Tool
from ..work.transcript import Record
from ..work.variables import Values, overridden, resolve_variables
from .files import task_of
from .target import GraphAgent, Loaded, LoopAgent, WorkflowAgent

if TYPE_CHECKING:
    from ...supervisors import Actor, End, Ref
    from ..engine.graph.plan import GraphPlan
    from ..engine.workflow.plan import WorkflowPlan as Flow
    from ..work.context import RunContext
    from ..work.knowledge.recipe import Recipe
    from ..work.mcp.tools.chosen import WantedServers
    from ..work.team_messages import TeamPosition


_NONE: frozenset[str] = frozenset()
_KNOWLEDGE = ("numpy", "tantivy", "usearch.index", "tokenizers", ".actors.work.knowledge.run_knowledge")


class AgentInput(msgspec.Struct, frozen=True, kw_only=True):
    """Input of one execution of an agent.

    Attributes:
        prompt: text of the user or of the calling agent.
        state: replaces keys of a graph's `initial_state`.
        recipes: knowledge bases in which the prompt is looked up (`--kb`).
        files: files inserted before the prompt (`-f`).
        attachments: files of a workflow's task (`--attach`).
        parts: parts that an LLM agent gets in addition to the prompt.
        workspace: directory in which a workflow's python nodes work; None for a directory removed with the run.
        branch: the item of a map to execute instead of the whole graph; None for the whole graph.
    """

    prompt: str = ""
    state: dict[str, Any] = {}
    recipes: tuple[Recipe, ...] = ()
    files: tuple[str, ...] = ()
    attachments: tuple[Path, ...] = ()
    parts: tuple[Part, ...] = ()
    workspace: Path | None = None
    branch: Branch | None = None


class Prepared:
    """Agent that is ready to be executed any number of times.

    Attributes:
        name: name of the agent; the last part of its actor's path.
        model: default model of the agent; "" if its file names none.
        models: every model id that its nodes name.
        needs_default: True if a part of the agent asks a model without naming one.
        tool_names: tools that its models may call, except families and tools of MCP servers.
        absent: warnings about MCP servers that it names and that are not configured.
        recipes: its knowledge bases: by rag node, or the agent's `documents`.
        place: placement that its file asks for when another agent calls it.

    Raises:
        UsageError: a variable has no value, or a value was passed for an undeclared variable.
        ConfigError: a variable's default names a secret that does not exist.
        InvalidFile: a tool file has errors, or a node lists a tool that does not exist.
        Unsupported: it uses a feature that this version cannot run yet.
    """

    def __init__(self, agent: Loaded, variables: Mapping[str, str], compat: str | None, context: RunContext) -> None:
        self.name = agent.name
        self.models: AbstractSet[str] = _NONE
        self.needs_default = False
        self.model = ""
        self.tool_names: AbstractSet[str] = _NONE
        self.recipes: dict[str, Recipe] = {}
        self._limits: OwnLimits | None = None
        self.place: Place | None = None
        self._files: Sequence[Path] = ()
        self.absent: tuple[Problem, ...] = ()
        self._cast: AgentSetup | None = None
        self._plan: GraphPlan | None = None
        self._flow: Flow | None = None
        compat = compat if compat in MODES else None
        if isinstance(agent, WorkflowAgent):  # The reader of the workflow has already replaced its variables.
            from ..engine.workflow.plan import compile_workflow

            self._flow = compile_workflow(agent.workflow, agent.path, context.environ)
            return
        file = agent.graph if isinstance(agent, GraphAgent) else agent.agent
        self._limits, self.place = file.limits, file.place
        # The environment has no effect on an agent that a program made.
        made = agent.made if isinstance(agent, GraphAgent) else agent.directory is None
        own_environ: Mapping[str, str] = {} if made else context.environ
        resolved = resolve_variables(
            agent.name, file.variables, variables, own_environ, secrets=context.vault, source=file.source
        )
        if isinstance(agent, GraphAgent):
            self._prepare_graph(agent, resolved.real, compat, context)
        else:
            self._prepare_agent(agent, resolved, compat, context)

    def _prepare_graph(
        self, agent: GraphAgent, values: Mapping[str, str], compat: str | None, context: RunContext
    ) -> None:
        from ..engine.graph.compile import compile_graph

        refuse_spawning(agent.graph)
        graph = agent.graph if agent.made else overridden(agent.graph, context.environ)
        servers: Mapping[str, WantedServers] = {}
        gone: Mapping[str, str] = {}
        if graph.mcp_servers:
            from ..work.mcp.tools.chosen import absent, wanted_by_nodes

            servers = wanted_by_nodes(graph, context)
            gone = absent(graph.mcp_servers, context)
            self.absent = _absent_servers(agent.file, gone, compat or graph.settings.compat)
        if context.registry is not None and graph.permissions:
            graph = msgspec.structs.replace(graph, permissions=context.registry.permissions(graph.permissions))
        tools = tools_of_nodes(agent, graph, values, context, servers, gone)
        self.tool_names = {tool.name for found in tools.values() for tool in found}
        self._files = sorted(files_of_nodes(agent, graph, tools))
        if any(isinstance(node, RagNode) for node in graph.nodes.values()):
            self.recipes = _recipes_of(graph, agent.directory, context, compat)
        self._plan = compile_graph(
            graph,
            agent.directory,
            compat=compat,
            values=values,
            tools=tools,
            servers=servers,
            recipes=self.recipes,
            wishes=wishes_of(graph),
            compiled=agent.compiled,
        )
        self.models = {node.model for node in graph.nodes.values() if isinstance(node, LlmNode) and node.model}
        self.needs_default = any(asks(node) and not getattr(node, "model", None) for node in graph.nodes.values())
        self.model = graph.model or ""

    def _prepare_agent(self, agent: LoopAgent, resolved: Values, compat: str | None, context: RunContext) -> None:
        settled = agent.agent if agent.directory is None else overridden(agent.agent, context.environ)
        found = tools_of_agent(
            context,
            name=agent.name,
            directory=agent.directory,
            listed=settled.global_tools,
            values=resolved.real,
            timeout=settled.tool_timeout,
            functions=agent.functions,
        )
        self.tool_names = found.tools.keys()
        self._files = tuple({tool.file: None for tool in found.tools.values() if tool.file is not None})
        if settled.documents:
            self.recipes = _recipes_of(settled, agent.directory, context, compat)
        wanted: WantedServers | None = None
        if settled.mcp_servers:
            from ..work.mcp.tools.chosen import absent, wanted_by_agent

            wanted = wanted_by_agent(settled, context)
            self.absent = _absent_servers(agent.file, absent(settled.mcp_servers, context), compat)
        said = resolved.shown
        self._cast = AgentSetup(agent=settled, directory=agent.directory, values=said, tools=found, servers=wanted)
        if settled.summarization_model:
            self.models = {settled.summarization_model}
        self.needs_default = True
        self.model = settled.model or ""

    @property
    def servers(self) -> set[str]:
        """The names of the MCP servers that the agent uses."""
        wanted = list(self._plan.servers.values()) if self._plan is not None else []
        if self._cast is not None and self._cast.servers is not None:
            wanted.append(self._cast.servers)
        return {choice.server.name for each in wanted for choice in each.choices}

    @property
    def parts(self) -> dict[str, str]:
        """The texts of the files of a workflow's subgraphs, by absolute path; its own file is not included."""
        if self._flow is None:
            return {}
        from .devall_loader import parts_of

        return parts_of(self._flow.workflow.graph, self._flow.workflow.graph.source.file)

    @property
    def in_place(self) -> list[Path]:
        """The files that are executed in place: scripts, tool files, and files of a workflow's functions."""
        if self._flow is None:
            return sorted(self._files)
        from .devall_loader import files_of_functions

        return files_of_functions(self._flow.file.parent)

    def new_result(self) -> GraphResult:
        """Return an empty result of the type that this kind of agent fills."""
        if self._flow is None:
            return GraphResult()
        from ..engine.workflow.run import WorkflowResult

        return WorkflowResult()

    def play(
        self,
        me: Actor,
        input: AgentInput,
        context: RunContext,
        *,
        depth: int = 0,
        result: GraphResult | None = None,
        record: Record | None = None,
        seat: TeamPosition | None = None,
        escalation_timeout: float | None = None,
        history: History | None = None,
    ) -> Coroutine[Any, Any, GraphResult]:
        """Run the agent as a child of `me` and wait for its end; a failure is the `error` of the returned result.

        Its knowledge bases are updated first.

        Args:
            history: the conversation that this run continues; graphs and workflows do not read it.
        """
        result = result if result is not None else self.new_result()
        record = record if record is not None else Record()
        history = history or History()
        if context.meter.keeps_book and context.agent != self.name:
            context = context.played_by(self.name)
        if self._limits is None:
            return self._play(me, input, context, depth, result, record, seat, escalation_timeout, history)
        own = context.limited(f"agent '{self.name}'", self._limits)
        if own is not context and own.account is not None:
            _restore(own.account, me)
        playing = self._play(me, input, own, depth, result, record, seat, escalation_timeout, history)
        return self._within(me, self._limits, playing, result, own, context)

    async def _within(
        self,
        me: Actor,
        limits: OwnLimits,
        playing: Coroutine[Any, Any, GraphResult],
        result: GraphResult,
        own: RunContext,
        context: RunContext,
    ) -> GraphResult:
        # Two limits can end the agent: its own (`limits:` of its file) and the run's. `as_failure` names the account
        # that ran out.
        if limits.timeout is None:
            await playing
        else:
            with me.time_limit(trio.move_on_after(limits.timeout)) as clock:
                await playing
            if clock.cancelled_caught:
                late = f"agent '{self.name}' did not end within {limits.timeout:g} s (`limits: timeout`)"
                result.error = TimedOut(late)
                return result
        if result.error is not None:
            result.error = as_failure(result.error, own.account, context.account)
        return result

    async def _play(
        self,
        me: Actor,
        input: AgentInput,
        context: RunContext,
        depth: int,
        result: GraphResult,
        record: Record,
        seat: TeamPosition | None,
        escalation_timeout: float | None,
        history: History,
    ) -> GraphResult:
        try:
            prompt, at_hand = await self._consult(me, input, context)
            ref: Ref[Any]
            if self._cast is None:
                ref = await self._begin_graph(me, prompt, input, context, depth, result, record)
            else:
                cast = msgspec.structs.replace(self._cast, recipes=at_hand)
                ref = me.spawn(
                    run_agent,
                    cast,
                    prompt,
                    context,
                    depth,
                    record,
                    seat,
                    escalation_timeout,
                    history,
                    input.parts,
                    name=self.name,
                    link=False,
                )
        except CallboardError as error:
            result.error = error
            return result
        # The end of a graph is judged before its result is read: a failed graph has no output to check.
        self._judge(await _its_end(me, ref), result)
        if self._cast is None and result.error is None:
            try:
                history.take_result(result.output)
            except ResultInvalid as error:
                result.error = error
                return result
        if self._cast is None and result.error is None and not record.failures:
            history.pair(input.prompt, result.output)
        return result

    async def _begin_graph(
        self,
        me: Actor,
        prompt: str,
        input: AgentInput,
        context: RunContext,
        depth: int,
        result: GraphResult,
        record: Record,
    ) -> Ref[Any]:
        if self._plan is not None and input.branch is not None:
            from ..engine.graph.nodes.map import run_branch

            return me.spawn(
                run_branch, self._plan, input.branch, context, depth, result, record, name=self.name, link=False
            )
        if self._plan is not None:
            from ..engine.graph.run import run_graph

            return me.spawn(
                run_graph, self._plan, prompt, context, depth, input.state, result, record, name=self.name, link=False
            )
        await imported(".actors.engine.workflow.run")
        from ..engine.workflow.run import WorkflowResult, run_workflow

        assert self._flow is not None
        assert isinstance(result, WorkflowResult)
        return me.spawn(
            run_workflow,
            self._flow,
            await task_of(prompt, input.attachments),
            context,
            depth,
            result,
            record,
            input.workspace,
            input.attachments,
            # The name becomes a part of an actor path, and a workflow's name may contain `/`.
            name=self.name.replace("/", "_"),
            link=False,
        )

    def _judge(self, end: End, result: GraphResult) -> None:
        if self._cast is not None:
            result.output = str(end.value or "")
        if end.error is not None:
            crash = RunFailed(f"'{self.name}' crashed: {end.error!r}")
            crash.__cause__ = end.error
            result.error = end.error if isinstance(end.error, CallboardError) else crash
        elif end.reason != "normal":
            result.error = RunFailed(f"'{self.name}' was {end.reason}")

    async def _consult(self, me: Actor, input: AgentInput, context: RunContext) -> tuple[str, tuple[Recipe, ...]]:
        """Return the prompt with the passages found for it, and the knowledge bases that the agent may search."""
        prompt, asked = input.prompt, input.recipes
        if self._cast is not None:
            asked = (*self.recipes.values(), *asked)
        if not asked and not self.recipes and not input.files:
            return prompt, ()
        from ..work.labels.flow import RULES

        await imported(*_KNOWLEDGE, *RULES)
        knowledge = context.knowledge
        await knowledge.ready(me, (*self.recipes.values(), *input.recipes))
        how = self._cast.agent.knowledge if self._cast is not None else "prompt"

        flow = context.flow
        if flow is not None:
            flow.add(flow.paths.of_any(input.files, "the attached file", base=Path.cwd()))
            if how != "tool":
                flow.knows(asked)

        async def prompt_with_passages() -> str:
            attached = await knowledge.attached(me, input.files, prompt)
            found = await knowledge.prompt(me, asked, prompt) if how != "tool" and (prompt or input.files) else prompt
            return f"{attached}\n\n{found}".strip() if attached else found

        # The result is noted in the journal: a later incarnation must see the same passages, even if the documents
        # have changed.
        return await noted(me, "prompt", str, prompt_with_passages), asked if how != "prompt" else ()


def _absent_servers(file: str, absent: Mapping[str, str], compat: str | None) -> tuple[Problem, ...]:
    if compat in MODES and MODES[compat].missing_servers_are_silent:
        return ()
    return tuple(
        Problem(
            severity="warning",
            code="unknown_server",
            message=f"MCP server '{name}' is not configured",
            file=file,
            hint=hint,
        )
        for name, hint in absent.items()
    )


def _recipes_of(
    agent: Graph | Agent, directory: Path | None, context: RunContext, compat: str | None
) -> dict[str, Recipe]:
    from ..work.knowledge.recipe import recipes_of

    return recipes_of(agent, directory, context.config_dir, context.environ, compat=compat)


def _restore(account: Account, me: Actor) -> None:
    """Charge the spending of earlier incarnations, so that the agent's own limits hold for the whole run."""
    scope = scope_of(me)
    for each in () if scope is None else scope.spent():
        account.charge(Amount(each.tokens, each.cost), each.turns)


async def _its_end(me: Actor, ref: Ref[Any]) -> End:
    """Wait for the child's end. If the caller is cancelled, stop the child first."""
    try:
        return await ref.wait()
    except trio.Cancelled:
        ref.cancel()
        with me.cleanup():
            await ref.wait()
        raise


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
