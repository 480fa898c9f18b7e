"""Prepares an agent for a run: resolves variables, finds tools, compiles the graph, refuses what can't run.

The same for the agent that the user named and for those that other agents call (`children`).
"""

from __future__ import annotations

import os
from collections.abc import Coroutine, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ...protocol.agent import Agent
from ...protocol.chat import Part
from ...protocol.errors import CallboardError, RunFailed, TimedOut
from ...protocol.graph.model import Graph, LlmNode, OwnLimits, RagNode
from ...protocol.place import Branch, Place
from ...protocol.problems import Problem
from ..engine.conversation.agent import Cast, run_agent
from ..engine.graph.compat import MODES
from ..engine.graph.compile import compile_graph
from ..engine.graph.decider import GraphResult
from ..engine.graph.nodes.map import run_branch
from ..engine.graph.plan import Plan
from ..engine.graph.run import run_graph
from ..io.imports import imported
from ..work.agent.history import History
from ..work.journal.scope import here, noted
from ..work.record import Record
from ..work.spending.accounts import Account, Amount, as_failure
from ..work.tools.registry import tools_of_agent
from ..work.variables import Values, overridden, resolve_variables
from .files import task_of
from .node_tools import asks, files_of_nodes, refuse_spawning, tools_of_nodes, wishes_of
from .target import GraphAgent, Loaded, LoopAgent, WorkflowAgent

if TYPE_CHECKING:
    from ...supervisors import Actor, End, Ref
    from ..engine.workflow.plan import Plan as Flow
    from ..work.context import RunContext
    from ..work.knowledge.recipe import Recipe
    from ..work.letters import Seat
    from ..work.mcp.tools.chosen import Wanted


_KNOWLEDGE = ("numpy", "tantivy", "usearch.index", "tokenizers", ".actors.work.knowledge.of_run")


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent begins its work with.

    Attributes:
        prompt: the user's words, or those of the agent that calls.
        state: replaces keys of a graph's `initial_state`.
        recipes: knowledge bases to look the prompt up in (`--kb`).
        files: what is put before it (`-f`).
        attachments: what a workflow's task comes with (`--attach`).
        parts: what an LLM agent gets beside the prompt.
        workspace: where a workflow's python nodes work; None for a directory that goes with the run.
        branch: the item of a map that is all that is played of a graph; None for the whole.
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
    """An agent, ready to be played any number of times.

    Attributes:
        name: of the agent; the last part of its actor's path.
        model: what its models are by default, "" if it does not say.
        models: every model id that its nodes name.
        needs_default: whether something in it asks a model without naming one.
        tool_names: what its models may call, the families and the tools of MCP servers aside.
        absent: warnings about MCP servers that it names and that are not configured.
        recipes: what it looks things up in: per rag node, or the agent's `documents`.
        place: where its file has it played if another agent calls it.

    Raises:
        UsageError: a variable has no value, or there is none of that name.
        ConfigError: a variable's default names a secret that is not there.
        InvalidFile: a tool file has errors, or a node lists a tool that is not there.
        Unsupported: it uses what this version can't run yet.
    """

    def __init__(self, agent: Loaded, variables: Mapping[str, str], compat: str | None, context: RunContext) -> None:
        self.name = agent.name
        self.models: AbstractSet[str] = frozenset()
        self.needs_default = False
        self.model = ""
        self.tool_names: AbstractSet[str] = frozenset()
        self.recipes: dict[str, Recipe] = {}
        self._limits: OwnLimits | None = None
        self.place: Place | None = None
        self._files: set[Path] = set()
        self.absent: tuple[Problem, ...] = ()
        self._cast: Cast | None = None
        self._plan: Plan | None = None
        self._flow: Flow | None = None
        compat = compat if compat in MODES else None
        if isinstance(agent, WorkflowAgent):  # its variables were put in when it was read
            from ..engine.workflow.plan import compile_workflow

            self._flow = compile_workflow(agent.workflow, agent.path, context.environ)
            return
        file = agent.graph if isinstance(agent, GraphAgent) else agent.agent
        self._limits, self.place = file.limits, file.place
        resolved = resolve_variables(
            agent.name, file.variables, variables, os.environ, secrets=context.vault, source=file.source
        )
        if isinstance(agent, GraphAgent):
            self._prepare_graph(agent, resolved.real, compat, context)
        else:
            self._prepare_agent(agent, resolved, compat, context)

    def _prepare_graph(
        self, agent: GraphAgent, values: Mapping[str, str], compat: str | None, context: RunContext
    ) -> None:
        refuse_spawning(agent.graph)
        graph = overridden(agent.graph, os.environ)
        servers: Mapping[str, Wanted] = {}
        gone: Mapping[str, str] = {}
        if graph.mcp_servers:
            from ..work.mcp.tools.chosen import absent, wanted_by_nodes

            servers = wanted_by_nodes(graph, context)
            gone = absent(graph.mcp_servers, context)
            self.absent = _told(agent.file, gone, compat or graph.settings.compat)
        if context.registry is not None and graph.permissions:
            graph = msgspec.structs.replace(graph, permissions=context.registry.permissions(graph.permissions))
        tools = tools_of_nodes(agent, graph, values, context, servers, gone)
        self.tool_names = {tool.name for found in tools.values() for tool in found}
        self._files = files_of_nodes(agent, graph, tools)
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
        settled = overridden(agent.agent, os.environ)
        found = tools_of_agent(
            context,
            name=agent.name,
            directory=agent.directory,
            listed=settled.global_tools,
            values=resolved.real,
            timeout=settled.tool_timeout,
        )
        self.tool_names = found.tools.keys()
        self._files = {tool.file for tool in found.tools.values() if tool.file is not None}
        if settled.documents:
            self.recipes = _recipes_of(settled, agent.directory, context, compat)
        wanted: Wanted | None = None
        if settled.mcp_servers:
            from ..work.mcp.tools.chosen import absent, wanted_by_agent

            wanted = wanted_by_agent(settled, context)
            self.absent = _told(agent.file, absent(settled.mcp_servers, context), compat)
        said = resolved.shown
        self._cast = Cast(agent=settled, directory=agent.directory, values=said, tools=found, servers=wanted)
        if settled.summarization_model:
            self.models = {settled.summarization_model}
        self.needs_default = True
        self.model = settled.model or ""

    @property
    def servers(self) -> set[str]:
        """The MCP servers it uses, by name."""
        wanted = list(self._plan.servers.values()) if self._plan is not None else []
        if self._cast is not None and self._cast.servers is not None:
            wanted.append(self._cast.servers)
        return {choice.server.name for each in wanted for choice in each.choices}

    @property
    def parts(self) -> dict[str, str]:
        """The texts of the files that a workflow consists of beside its own, by absolute path."""
        if self._flow is None:
            return {}
        from .flows import parts_of

        return parts_of(self._flow.workflow.graph, self._flow.workflow.graph.source.file)

    @property
    def in_place(self) -> list[Path]:
        """The files that are executed where they stand: scripts, tool files, and files of a workflow's functions."""
        if self._flow is None:
            return sorted(self._files)
        from .flows import files_of_functions

        return files_of_functions(self._flow.file.parent)

    def new_result(self) -> GraphResult:
        """Where its result goes."""
        if self._flow is None:
            return GraphResult()
        from ..engine.workflow.plan import WorkflowResult

        return WorkflowResult()

    def play(
        self,
        me: Actor,
        input: Input,
        context: RunContext,
        *,
        depth: int = 0,
        result: GraphResult | None = None,
        record: Record | None = None,
        seat: Seat | None = None,
        escalation_timeout: float | None = None,
        history: History | None = None,
    ) -> Coroutine[Any, Any, GraphResult]:
        """Run it as a child of `me` and wait for its end; what went wrong is the result's `error`.

        Its knowledge bases are seen to first.

        Args:
            history: the conversation that this goes on with; a graph or a workflow knows nothing of what was said.
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
        input: Input,
        context: RunContext,
        depth: int,
        result: GraphResult,
        record: Record,
        seat: Seat | None,
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
        self._judge(await _its_end(me, ref), result)
        if self._cast is None and result.error is None and not record.failures:
            history.pair(input.prompt, result.output)
        return result

    async def _begin_graph(
        self,
        me: Actor,
        prompt: str,
        input: Input,
        context: RunContext,
        depth: int,
        result: GraphResult,
        record: Record,
    ) -> Ref[Any]:
        if self._plan is not None and input.branch is not None:
            return me.spawn(
                run_branch, self._plan, input.branch, context, depth, result, record, name=self.name, link=False
            )
        if self._plan is not None:
            return me.spawn(
                run_graph, self._plan, prompt, context, depth, input.state, result, record, name=self.name, link=False
            )
        await imported(".actors.engine.workflow.play")
        from ..engine.workflow.plan import WorkflowResult
        from ..engine.workflow.play import run_workflow

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
            name=self.name.replace("/", "_"),  # a part of a path; a workflow's may hold anything
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

    async def _consult(self, me: Actor, input: Input, context: RunContext) -> tuple[str, tuple[Recipe, ...]]:
        """The prompt with what was found for it, and the bases that the agent may look into by itself."""
        prompt, asked = input.prompt, input.recipes
        if self._cast is not None:
            asked = (*self.recipes.values(), *asked)
        if not asked and not self.recipes and not input.files:
            return prompt, ()
        await imported(*_KNOWLEDGE)
        knowledge = context.knowledge
        await knowledge.ready(me, (*self.recipes.values(), *input.recipes))
        how = self._cast.agent.knowledge if self._cast is not None else "prompt"

        async def looked_up() -> str:
            attached = await knowledge.attached(me, input.files, prompt)
            found = await knowledge.prompt(me, asked, prompt) if how != "tool" and (prompt or input.files) else prompt
            return f"{attached}\n\n{found}".strip() if attached else found

        return await noted(me, "prompt", str, looked_up), asked if how != "prompt" else ()


def _told(file: str, absent: Mapping[str, str], compat: str | None) -> tuple[Problem, ...]:
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
    """In a durable run that goes on: what the agent has spent in earlier lives counts."""
    scope = here(me)
    for each in () if scope is None else scope.spent():
        account.charge(Amount(each.tokens, each.cost), each.turns)


async def _its_end(me: Actor, ref: Ref[Any]) -> End:
    """Wait for the child's end; a cancelled caller stops the child first."""
    try:
        return await ref.wait()
    except trio.Cancelled:
        ref.cancel()
        with me.cleanup():
            await ref.wait()
        raise
