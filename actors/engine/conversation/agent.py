"""LLM agent: system prompt, tools, conversation loop, and automatic continuation while todos are open.

An `AgentSetup` (definition of the agent, resolved) is made once and can run any number of times. The state of one run
(todo list, children, tasks, inbox) is made here, belongs to the agent's actor and ends with it. The transcript
remains in the `Record`.

    tools         its own file's, the global ones it lists, functions passed to the run, its MCP servers'
    todo__*       with `auto_continue`; otherwise the model is not offered them, and a call is refused
    agent__*      children and tasks with `can_spawn_agents`; team messages if it has a parent or children
    user__*       unless `can_ask_user: false`
    knowledge__*  with `knowledge: tool` or `both`, if there are documents
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ....protocol.agent import Agent
from ....protocol.chat import ChatRequest, Content, Part, TextPart
from ....protocol.errors import Unsupported, code_of
from ....protocol.events import AgentFinished, AgentStarted
from ....protocol.messages import Shortening, Stop
from ....supervisors import Actor
from ...io.imports import imported
from ...work.agent.history import PART, History, is_summary
from ...work.agent.prompt import blocks, filled_in, system_prompt
from ...work.agent.todo import TodoList, refusing_todo_tools, todo_tools
from ...work.agent.tool_families import explained, lookup_tool, renamed, user_tools
from ...work.context import CallingAgent
from ...work.opening_instructions import OpeningInstructions, Wish
from ...work.playback import OutsideEffect, done, playback, value
from ...work.tools.calls import RESULT_LIMIT, CallPlayer
from ...work.tools.checking import AS_CHILD, AT_ROOT
from ...work.tools.registry import AgentTools
from ...work.tools.tool import Tool
from ...work.transcript import Record
from .decider import CONTINUE
from .run import Conversation, ConversationSetup, RenewedTools

if TYPE_CHECKING:
    from ...work.agent.children import Children
    from ...work.context import RunContext
    from ...work.hooks import Hooks
    from ...work.knowledge.recipe import Recipe
    from ...work.labels.flow import Flow
    from ...work.mcp.tools.chosen import WantedServers
    from ...work.mcp.tools.tool_list import ConversationTools, OfferedTools
    from ...work.mcp.tools.view import ServersView as ServersTalk
    from ...work.team_messages import TeamPosition
    from ...work.workspace import AroundCalls
    from .team import TeamRules

HOOKS = (".actors.work.hooks",)
AROUND = ".actors.work.workspace"
_SERVERS = (".actors.work.mcp.tools.tool_list", ".actors.work.mcp.pool.servers")
_SPAWNING = (
    ".actors.work.agent.children",
    ".actors.work.agent.team_tools",
    ".actors.engine.conversation.team",
)


class AgentSetup(msgspec.Struct, frozen=True, kw_only=True):
    """Agent definition with all references resolved, ready to run.

    Attributes:
        agent: the agent file's content, with overrides from the environment.
        directory: the agent's directory; None if it has none.
        values: its variables, as models may see them.
        tools: its tools, without the built-in families and the tools of MCP servers.
        servers: the MCP servers that it requests; None for none.
        recipes: knowledge bases that the model can search with a tool.
    """

    agent: Agent
    directory: Path | None
    values: Mapping[str, str]
    tools: AgentTools
    servers: WantedServers | None = None
    recipes: tuple[Recipe, ...] = ()


async def run_agent(
    me: Actor,
    cast: AgentSetup,
    prompt: str,
    context: RunContext,
    depth: int = 0,
    record: Record | None = None,
    seat: TeamPosition | None = None,
    escalation_timeout: float | None = None,
    history: History | None = None,
    parts: tuple[Part, ...] = (),
) -> str:
    """Run an agent in the actor `me`, and return the text of all its replies.

    Args:
        depth: number of agents above this one.
        record: the transcript to write to.
        seat: address and inbox among siblings, if another agent spawned this one.
        escalation_timeout: seconds after which its questions expire; None for the value of its file. At the root
          questions do not expire.
        history: the conversation to continue; updated at the end, also after a failure.
        parts: content in addition to the prompt: images, files.

    Raises:
        OutOfTurns: the agent used up `max_turns`.
        CallboardError: any other failure that ended the agent.
    """
    record = record if record is not None else Record()
    if cast.agent.sandbox is not None:
        context.hold(me, cast.agent.sandbox)
    if cast.agent.can_spawn_agents:
        # Loaded only for agents that need them, and in a thread, so that the event loop does not stall.
        await imported(*_SPAWNING)
    if context.hooks is not None:
        await imported(*HOOKS)
    if context.workspace is not None:
        await imported(AROUND)
    agent = _Agent(me, cast, context, depth, record, seat, escalation_timeout, history or History())
    # Without a prompt the message consists of the attachments alone.
    said: Content = (*((TextPart(prompt),) if prompt else ()), *parts) if parts else prompt
    # MCP servers that the run's caller brings are offered to the root agent only.
    brings = depth == 0 and bool(context.servers)
    if cast.servers is None and not brings:
        return await agent.play(said)
    await imported(*_SERVERS)
    from ...work.mcp.tools.chosen import with_guests
    from ...work.mcp.tools.tool_list import servers_at_work

    model, timeout = cast.agent.model or "", cast.agent.tool_timeout
    with (
        servers_at_work(me, context, own=agent.permissions, model=model, timeout=timeout) as servers,
        servers.conversation(me) as talk,
    ):
        wanted = with_guests(cast.servers, context, talk.scope) if brings else cast.servers
        assert wanted is not None
        await agent.take_up(talk, wanted)
        return await agent.play(said)


@dataclass(eq=False, repr=False)
class _Agent:
    me: Actor
    cast: AgentSetup
    context: RunContext
    depth: int
    record: Record
    seat: TeamPosition | None
    escalation_timeout: float | None
    history: History

    def __post_init__(self) -> None:
        self._hooks = self.context.hooks
        self._flow: Flow | None = self.context.flow
        self._agent = self.history.overrides.of(self.cast.agent)
        self._todos = self.history.todos or TodoList()
        self._children: Children | None = None
        waits = self._agent.escalation_timeout if self.escalation_timeout is None else self.escalation_timeout
        # `elsewhere` tools are executed by the run's caller, which sees the calls of the root agent only.
        self._tools: list[Tool] = [
            tool for tool in self.cast.tools.tools.values() if self.depth == 0 or not tool.elsewhere
        ]
        self._of_servers: tuple[Tool, ...] = ()
        self._unlisted_of_servers: Mapping[str, Tool] = {}
        self._said_of_servers: list[str] = []
        self._offering: ConversationTools | None = None
        self._instructions = self._agent.instructions
        self._unlisted: Mapping[str, Tool] = {}
        self._said_about: list[str] = []
        self._told = OpeningInstructions()
        own, registry = self._agent.permissions, self.context.registry
        self.permissions = registry.permissions(own) if own and registry is not None else own
        # The root agent asks the user, who may take any time. A child asks its parent agent, which may never answer.
        self._add_families(None if self.depth == 0 else waits)
        self._add_workspace()
        self._add_synonyms()

    async def take_up(self, talk: ServersTalk, wanted: WantedServers) -> None:
        from ...work.mcp.tools.tool_list import ConversationTools

        self._offering = ConversationTools(talk, wanted, taken={tool.name for tool in self._tools})
        self._take(await self._offering.first(self.me))

    def _take(self, offered: OfferedTools) -> None:
        self._of_servers, self._unlisted_of_servers = offered.tools, offered.unlisted
        self._said_of_servers = offered.prompt_lines
        if self._flow is not None:  # server descriptions enter the model's context, so they carry taint labels
            self._flow.describes(offered.tools)

    @property
    def _offered(self) -> RenewedTools:
        unlisted = {**self._unlisted, **self._unlisted_of_servers} if self._unlisted_of_servers else self._unlisted
        return RenewedTools(tools=(*self._tools, *self._of_servers), unlisted=unlisted)

    async def _renewed(self, me: Actor) -> RenewedTools | None:
        """Return the new set of tools and prompt if a server has changed its tools, else None."""
        assert self._offering is not None
        offered = await self._offering.renewed(me)
        if offered is None:
            return None
        self._take(offered)
        # The system prompt can list the tools, so it is rendered again.
        return msgspec.structs.replace(self._offered, system=self._prompt())

    def _add_families(self, patience: float | None) -> None:
        agent, parent = self._agent, self.seat is not None
        if agent.can_spawn_agents:
            self._add_children()
        elif parent:
            from ...work.agent.team_tools import mail_tools

            assert self.seat is not None
            self._tools += mail_tools(self.seat)
        if agent.auto_continue:
            self._tools += todo_tools()
        else:
            # Not offered but callable: the refusal explains how to enable todos, "unknown tool" would not.
            self._unlisted = refusing_todo_tools()
        if agent.can_ask_user:
            self._tools += user_tools(timeout=patience)
        self._said_about = blocks(agent, teammates=parent or agent.can_spawn_agents, user=agent.can_ask_user)
        if self.cast.recipes:
            tool = lookup_tool(self.context.knowledge, self.cast.recipes)
            if self._flow is not None:
                tool = msgspec.structs.replace(tool, labels=self._flow.labels_of(self.cast.recipes))
            self._tools.append(tool)
            self._said_about.append(explained(self.cast.recipes))

    def _add_workspace(self) -> None:
        workspace = self.context.workspace
        if workspace is None and playback.get() is None:
            return
        # In playback the workspace can be absent: `value` returns the recorded instructions.
        find = (
            OpeningInstructions if workspace is None else partial(workspace.opening_instructions, Wish.of(self._agent))
        )
        self._told = told = value(self.me, "workspace", OpeningInstructions, find)
        self._said_about += told.blocks
        if told.skills:
            from ...work.skills import skill_tool

            self._tools.append(skill_tool(None if workspace is None else workspace.skills, told.skills))

    def _add_synonyms(self) -> None:
        """Accept the tool names of Loki's successor (`renamed`); offer one only if the instructions mention it."""
        others = renamed(self._tools)
        if self._children is not None:
            from ...work.agent.team_tools import available_tool

            others["agent__list_available"] = available_tool(self._children)
        said = self._agent.instructions
        self._tools += [tool for name, tool in others.items() if name in said]
        self._unlisted = {**others, **self._unlisted}

    def _add_children(self) -> None:
        from ...work.agent.children import Children
        from ...work.agent.team_tools import mail_tools, team_tools
        from ...work.team_messages import TeamPosition

        seat = self.seat = self.seat or TeamPosition()
        children = self._children = Children(
            self.me,
            self._agent,
            self.context,
            permissions=self.permissions,
            depth=self.depth,
            near=self.cast.directory or self.context.config_dir / "agents" / self._agent.name,
            seat=seat,
        )
        self._tools += [*team_tools(children), *mail_tools(seat, children.office)]
        self.me.policy = children.policy

    async def play(self, prompt: Content) -> str:
        me, agent = self.me, self._agent
        began = trio.current_time()
        # A root agent that can spawn agents has a seat without an id.
        child = (self.seat.id or None) if self.seat is not None else None
        if me.stream.heard:
            names = [tool.name for tool in self._offered.tools]
            me.emit(AgentStarted(agent=agent.name, depth=self.depth, tools=names, child=child))
        # Cancellation is no `Exception` and passes the handlers below, so it is the default.
        error, code = "interrupted", "cancelled"
        stop: Stop = "done"
        try:
            # A continued history can end with a turn that the model has not answered. The model then replies to it, and
            # no prompt hook runs, because there is no new prompt.
            goes_on = self.history.waits_for_the_model and not prompt
            if self._hooks is not None and self.depth == 0 and not goes_on:
                prompt = await self._hooked(self._hooks, prompt)
            talk = await self._conversation()
            if self._flow is not None and self.history.turns and self.depth == 0:
                await self._flow.follows(self.history.turns, talk.player.tools, is_summary)
            try:
                stop = (await (talk.reply(me) if goes_on else talk.say(me, prompt))).stop
                if self._hooks is not None and stop == "done":
                    stop = await self._ended(self._hooks, talk)
            finally:
                # Also after a failure or cancellation: the session continues from this history.
                self.history.over(talk.messages, talk.unfinished)
            # With calls left for the run's caller there is no final answer yet.
            if self.history.result is not None and stop != "handed_out":
                self.history.take_result(self.record.last)
            error = code = ""
        except Exception as failed:  # only for the event; the error is raised again
            error, code = str(failed) or repr(failed), code_of(failed)
            raise
        finally:
            if me.stream.heard:
                me.emit(
                    AgentFinished(
                        agent=agent.name,
                        seconds=trio.current_time() - began,
                        turns=self.record.turns,
                        tool_calls=self.record.tool_calls,
                        stop=stop,
                        error=error or None,
                        depth=self.depth,
                        child=child,
                        code=code,
                    )
                )
        return self.record.output

    async def _hooked(self, hooks: Hooks, prompt: Content) -> Content:
        """Return the prompt with the additions of hooks."""
        from ...work.hooks import at_beginning

        model = self.context.model_for(self._agent.model)
        heard = await at_beginning(hooks, self.me, prompt, is_new=not self.history.turns, model=model)
        if heard is not prompt and self._flow is not None:
            await self._flow.heard_of_hooks()
        return heard

    async def _ended(self, hooks: Hooks, talk: Conversation) -> Stop:
        """Run the stop hooks after each answer, and send the model what they ask for; return the final stop reason."""
        from ...work.hooks import at_end, over

        stop: Stop = "done"
        again = 0
        while stop == "done":
            why = await at_end(hooks, self.me, agent=self._agent.name, depth=self.depth, again=again)
            if why is None:
                break
            if self._flow is not None:
                await self._flow.heard_of_hooks()
            stop = (await talk.say(self.me, why)).stop
            again += 1
        if self.depth == 0 and not hooks.goes_on:
            await over(hooks, self.me)
        return stop

    async def _conversation(self) -> Conversation:
        agent, context, offered = self._agent, self.context, self._offered
        model = context.model_for(agent.model)
        limit = agent.max_tool_result_chars or RESULT_LIMIT
        system = await self._system()
        tools = {tool.spec.name: tool for tool in offered.tools}
        window = context.window(model)
        threshold = self._threshold(window)
        fixed = 0 if threshold is None else _size_of(system, offered.tools)
        talk = ConversationSetup(
            name=self.me.name,
            tools=tools,
            unlisted=offered.unlisted,
            max_turns=agent.max_turns,
            agent=agent.name,
            repeats=AT_ROOT if self.depth == 0 else AS_CHILD,
            result_limit=limit,
            looks_around=self._offering is not None,
            team=None if self._children is None else self._team_rules(self._children),
            mail=self.seat is not None,
            shortening=Shortening(
                threshold=threshold, keep_last=agent.compression_keep_last, window=window, fixed=fixed, model=model
            ),
            auto_continue=agent.auto_continue,
            max_auto_continues=agent.max_auto_continues,
            continuation=agent.continuation_prompt or CONTINUE,
            result=self.history.result,
        )
        player = CallPlayer(
            {**offered.unlisted, **tools},
            context.permissions,
            own=self.permissions,
            timeout=agent.tool_timeout,
            result_limit=limit,
            meter=context.meter,
            on_unknown=context.settles(agent.on_unknown),
            around=None if self._told == OpeningInstructions() else self._around(),
            hooks=self._hooks,
            flow=self._flow,
            agent=CallingAgent(
                context=context,
                name=agent.name,
                depth=self.depth,
                record=self.record,
                permissions=self.permissions,
                max_depth=agent.max_agent_depth,
            ),
        )
        result = self.history.result
        request = ChatRequest(
            model=model,
            messages=self.history.turns,
            system=system,
            response_schema=None if result is None else result.schema,
            temperature=agent.temperature,
            top_p=agent.top_p,
            reasoning_effort=agent.reasoning_effort,
            thinking_budget=agent.thinking_budget,
        )
        return Conversation(
            context,
            talk,
            player,
            self.history.overrides.asked(request),
            self.record,
            summarizer=context.model_for(agent.model, own=agent.summarization_model),
            todos=self._todos,
            children=self._children,
            address=None if self.seat is None else self.seat.address,
            renewal=None if self._offering is None else self._renewed,
        )

    def _around(self) -> AroundCalls:
        from ...work.workspace import AroundCalls

        return AroundCalls(self.context.workspace, self._told)

    def _team_rules(self, children: Children) -> TeamRules:
        from .team import TeamRules

        agent = self._agent
        return TeamRules(most=agent.max_concurrent_agents, spawnable=agent.spawnable_agents, too_deep=children.too_deep)

    async def _system(self) -> str:
        if self._agent.dynamic_instructions:
            ask = self.cast.tools.instructions
            if ask is None:
                raise Unsupported(
                    f"agent '{self._agent.name}' has `dynamic_instructions`, and its tools file has no function "
                    "`_instructions`"
                )
            me, effect = self.me, OutsideEffect("instructions", self._agent.name)
            if self._flow is not None:
                await self._flow.start(me, "_instructions", "the function `_instructions`")
            # Recorded as an effect: the function can return a different text in each run.
            self._instructions = await done(me, effect, str, partial(ask, me))
        return self._prompt()

    def _prompt(self) -> str:
        listed = [*self.cast.tools.tools.values(), *self._of_servers]
        context = self.context
        instructions = filled_in(self._instructions, self.cast.values, context.environ, listed, context.cwd, self.me)
        result = self.history.result
        about_result = [] if result is None else [result.hint]
        return system_prompt(instructions, [*self._said_about, *self._said_of_servers, *about_result])

    def _threshold(self, window: int | None) -> int | None:
        """Return the number of tokens at which the history is compacted; None for never."""
        threshold = self._agent.compression_threshold
        if threshold is None:
            threshold = None if window is None else int(window * PART)
        return threshold if threshold is not None and threshold > 0 else None


def _size_of(system: str, tools: Iterable[Tool]) -> int:
    """Estimate the tokens of system prompt and tools (4 characters per token)."""
    return (len(system) + sum(len(msgspec.json.encode(tool.spec)) for tool in tools)) // 4
