"""An LLM agent at work: its system prompt, its tools and families, its loop, and going on while todos are open.

What the agent brings along (`Cast`) is made once and played any number of times; what it has while it works (todo list,
children, tasks, inbox) is made here, belongs to its actor and goes with it. What it said stays in the `Record`.

    tools         its own file's, the global ones it lists, functions given to the run, those of its MCP servers
    todo__*       with `auto_continue`; without, they are not offered and refuse
    agent__*      children and tasks with `can_spawn_agents`; messages where there is somebody to write to
    user__*       unless `can_ask_user: false`
    knowledge__*  with `knowledge: tool` or `both`, where there are documents
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
from ....protocol.chat import ChatRequest, Content, Part, TextPart, text_of
from ....protocol.errors import Unsupported, code_of
from ....protocol.events import AgentFinished, AgentStarted
from ....protocol.messages import Shortening, Stop
from ....supervisors import Actor
from ...io.imports import imported
from ...work.agent.compaction import PART
from ...work.agent.family import renamed
from ...work.agent.history import History
from ...work.agent.prompt import blocks, filled_in, system_prompt
from ...work.agent.todo import TodoList, refusing_todo_tools, todo_tools
from ...work.agent.user import user_tools
from ...work.labels.labels import NOTHING, Labels
from ...work.playback.playback import Effect, done, playback, value
from ...work.record import Record
from ...work.told import Told, Wish
from ...work.tools.calls import RESULT_LIMIT, Player
from ...work.tools.checking import AS_CHILD, AT_ROOT
from ...work.tools.registry import AgentTools
from ...work.tools.tool import Tool
from .decider import CONTINUE
from .play import Conversation, Renewed, Talk

if TYPE_CHECKING:
    from ...work.agent.children import Children
    from ...work.around import AroundCalls
    from ...work.context import RunContext
    from ...work.hooks.hooks import Hooks
    from ...work.knowledge.recipe import Recipe
    from ...work.labels.flow import Flow
    from ...work.letters import Seat
    from ...work.mcp.tools.chosen import Wanted
    from ...work.mcp.tools.offer import Offered, Offering
    from ...work.mcp.tools.view import Talk as ServersTalk
    from .team import TeamRules

HOOKS = tuple(f".actors.work.hooks.{name}" for name in ("calls", "session"))
AROUND = ".actors.work.around"
_SERVERS = (".actors.work.mcp.tools.offer", ".actors.work.mcp.pool.servers")
_SPAWNING = (
    *(f".actors.work.agent.{name}" for name in ("children", "mail", "team_tools")),
    ".actors.engine.conversation.team",
)


class Cast(msgspec.Struct, frozen=True, kw_only=True):
    """An agent, ready to be played.

    Attributes:
        agent: as its file says, with the environment's overrides.
        directory: where it stands; None for one that has no directory.
        values: its variables, as models may see them.
        tools: what it may call beside the families and the tools of servers.
        servers: the MCP servers it asks for; None for none.
        recipes: the knowledge bases that it may look into by itself.
    """

    agent: Agent
    directory: Path | None
    values: Mapping[str, str]
    tools: AgentTools
    servers: Wanted | None = None
    recipes: tuple[Recipe, ...] = ()


async def run_agent(
    me: Actor,
    cast: Cast,
    prompt: str,
    context: RunContext,
    depth: int = 0,
    record: Record | None = None,
    seat: Seat | None = None,
    escalation_timeout: float | None = None,
    history: History | None = None,
    parts: tuple[Part, ...] = (),
) -> str:
    """Body of an agent's actor: all it said.

    Args:
        depth: how many agents stand above it.
        record: where it is written down what it does.
        seat: its place among siblings, if an agent spawned it.
        escalation_timeout: seconds its questions may wait; None for what its file says. At the root they wait.
        history: the conversation that this goes on with.
        parts: what is said beside the prompt: images, files.

    Raises:
        OutOfTurns: it went on for `max_turns`.
        CallboardError: what ended it.
    """
    record = record if record is not None else Record()
    if cast.agent.sandbox is not None:
        context.hold(me, cast.agent.sandbox)
    if cast.agent.can_spawn_agents:
        await imported(*_SPAWNING)
    if context.hooks is not None:
        await imported(*HOOKS)
    if context.workspace is not None:
        await imported(AROUND)
    agent = _Agent(me, cast, context, depth, record, seat, escalation_timeout, history or History())
    said: Content = (*((TextPart(prompt),) if prompt else ()), *parts) if parts else prompt
    brings = depth == 0 and bool(context.servers)
    if cast.servers is None and not brings:
        return await agent.play(said)
    await imported(*_SERVERS)
    from ...work.mcp.tools.chosen import with_guests
    from ...work.mcp.tools.offer import servers_at_work

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
    cast: Cast
    context: RunContext
    depth: int
    record: Record
    seat: Seat | None
    escalation_timeout: float | None
    history: History

    def __post_init__(self) -> None:
        self._hooks = self.context.hooks
        self._flow: Flow | None = None
        if self.context.flow is not None:
            carried = Labels(untrusted=("documents",)) if self.cast.recipes else NOTHING
            self._flow = self.context.flow.below(carried)
            self.context = self.context.carrying(self._flow)
        self._agent = self.history.overrides.of(self.cast.agent)
        self._todos = self.history.todos or TodoList()
        self._children: Children | None = None
        waits = self._agent.escalation_timeout if self.escalation_timeout is None else self.escalation_timeout
        self._tools: list[Tool] = [
            tool for tool in self.cast.tools.tools.values() if self.depth == 0 or not tool.elsewhere
        ]
        self._of_servers: tuple[Tool, ...] = ()
        self._unlisted_of_servers: Mapping[str, Tool] = {}
        self._said_of_servers: list[str] = []
        self._offering: Offering | None = None
        self._instructions = self._agent.instructions
        self._unlisted: Mapping[str, Tool] = {}
        self._said_about: list[str] = []
        self._told = Told()
        own, registry = self._agent.permissions, self.context.registry
        self.permissions = registry.permissions(own) if own and registry is not None else own
        self._add_families(None if self.depth == 0 else waits)
        self._add_workspace()
        self._add_synonyms()

    async def take_up(self, talk: ServersTalk, wanted: Wanted) -> None:
        from ...work.mcp.tools.offer import Offering

        self._offering = Offering(talk, wanted, taken={tool.name for tool in self._tools})
        self._take(await self._offering.first(self.me))

    def _take(self, offered: Offered) -> None:
        self._of_servers, self._unlisted_of_servers = offered.tools, offered.unlisted
        self._said_of_servers = offered.said
        strange = [tool.name for tool in offered.tools if "outside" in tool.labels]
        if strange and self._flow is not None:  # the model reads what their servers say of them
            self._flow.add(Labels(untrusted=(f"what MCP servers say of {strange[0]} and the like",)))

    @property
    def _offered(self) -> Renewed:
        unlisted = {**self._unlisted, **self._unlisted_of_servers} if self._unlisted_of_servers else self._unlisted
        return Renewed(tools=(*self._tools, *self._of_servers), unlisted=unlisted)

    async def _renewed(self, me: Actor) -> Renewed | None:
        """What there is to call, if a server has other tools by now."""
        assert self._offering is not None
        offered = await self._offering.renewed(me)
        if offered is None:
            return None
        self._take(offered)
        return msgspec.structs.replace(self._offered, system=self._prompt())

    def _add_families(self, patience: float | None) -> None:
        agent, parent = self._agent, self.seat is not None
        if agent.can_spawn_agents:
            self._add_children()
        elif parent:
            from ...work.agent.mail import mail_tools

            assert self.seat is not None
            self._tools += mail_tools(self.seat)
        if agent.auto_continue:
            self._tools += todo_tools()
        else:
            self._unlisted = refusing_todo_tools()
        if agent.can_ask_user:
            self._tools += user_tools(timeout=patience)
        self._said_about = blocks(agent, teammates=parent or agent.can_spawn_agents, user=agent.can_ask_user)
        if self.cast.recipes:
            from ...work.agent.lookup import explained, lookup_tool

            self._tools.append(lookup_tool(self.context.knowledge, self.cast.recipes))
            self._said_about.append(explained(self.cast.recipes))

    def _add_workspace(self) -> None:
        """What it is told of the directory that it works in."""
        workspace = self.context.workspace
        if workspace is None and playback.get() is None:
            return
        find = Told if workspace is None else partial(workspace.told, Wish.of(self._agent))
        self._told = told = value(self.me, "workspace", Told, find)
        self._said_about += told.blocks
        if told.skills:
            from ...work.skills.tool import skill_tool

            self._tools.append(skill_tool(None if workspace is None else workspace.skills, told.skills))

    def _add_synonyms(self) -> None:
        """Tools by the names that Loki's successor has for them; see `family`."""
        others = renamed(self._tools)
        if self._children is not None:
            from ...work.agent.team_tools import available_tool

            others["agent__list_available"] = available_tool(self._children)
        said = self._agent.instructions
        self._tools += [tool for name, tool in others.items() if name in said]
        self._unlisted = {**others, **self._unlisted}

    def _add_children(self) -> None:
        from ...work.agent.children import Children
        from ...work.agent.mail import mail_tools
        from ...work.agent.team_tools import team_tools
        from ...work.letters import Seat

        seat = self.seat = self.seat or Seat()
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
        child = (self.seat.id or None) if self.seat is not None else None
        if me.stream.heard:
            names = [tool.name for tool in self._offered.tools]
            me.emit(AgentStarted(agent=agent.name, depth=self.depth, tools=names, child=child))
        if self._flow is not None and self.depth == 0:
            self._flow.prompt = text_of(prompt)
        error, code = "interrupted", "cancelled"
        stop: Stop = "done"
        try:
            goes_on = self.history.waits_for_the_model and not prompt
            if self._hooks is not None and self.depth == 0 and not goes_on:
                prompt = await self._hooked(self._hooks, prompt)
            talk = await self._conversation()
            try:
                stop = (await (talk.reply(me) if goes_on else talk.say(me, prompt))).stop
                if self._hooks is not None and stop == "done":
                    stop = await self._ended(self._hooks, talk)
            finally:
                self.history.over(talk.messages, talk.unfinished)
                if self._flow is not None:
                    self._flow.over(talk.messages, talk.player.tools)
            error = code = ""
        except Exception as failed:  # only to tell it; it goes on
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
        """The prompt, with what hooks add to it."""
        from ...work.hooks.session import at_beginning

        model = self.context.model or self._agent.model or ""
        return await at_beginning(hooks, self.me, prompt, is_new=not self.history.turns, model=model)

    async def _ended(self, hooks: Hooks, talk: Conversation) -> Stop:
        """Go on as long as hooks want it."""
        from ...work.hooks.session import at_end, over

        stop: Stop = "done"
        again = 0
        while stop == "done":
            why = await at_end(hooks, self.me, agent=self._agent.name, depth=self.depth, again=again)
            if why is None:
                break
            stop = (await talk.say(self.me, why)).stop
            again += 1
        if self.depth == 0 and not hooks.goes_on:
            await over(hooks, self.me)
        return stop

    async def _conversation(self) -> Conversation:
        agent, context, offered = self._agent, self.context, self._offered
        model = context.model or agent.model or ""
        limit = agent.max_tool_result_chars or RESULT_LIMIT
        system = await self._system()
        tools = {tool.name: tool for tool in offered.tools}
        window = context.window(model)
        threshold = self._threshold(window)
        fixed = 0 if threshold is None else _size_of(system, offered.tools)
        talk = Talk(
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
        )
        player = Player(
            {**offered.unlisted, **tools},
            context.permissions,
            own=self.permissions,
            timeout=agent.tool_timeout,
            result_limit=limit,
            meter=context.meter,
            on_unknown=context.settles(agent.on_unknown),
            around=None if self._told == Told() else self._around(),
            hooks=self._hooks,
            flow=self._flow,
        )
        request = ChatRequest(
            model=model,
            messages=self.history.turns,
            system=system,
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
            summarizer=agent.summarization_model or model,
            todos=self._todos,
            children=self._children,
            address=None if self.seat is None else self.seat.address,
            renewal=None if self._offering is None else self._renewed,
        )

    def _around(self) -> AroundCalls:
        from ...work.around import AroundCalls

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
            me, effect = self.me, Effect("instructions", self._agent.name)
            self._instructions = await done(me, effect, str, partial(ask, me))
        return self._prompt()

    def _prompt(self) -> str:
        listed = [*self.cast.tools.tools.values(), *self._of_servers]
        context = self.context
        instructions = filled_in(self._instructions, self.cast.values, context.environ, listed, context.cwd, self.me)
        return system_prompt(instructions, [*self._said_about, *self._said_of_servers])

    def _threshold(self, window: int | None) -> int | None:
        """Tokens from which on the history is shortened; None for never."""
        threshold = self._agent.compression_threshold
        if threshold is None:
            threshold = None if window is None else int(window * PART)
        return threshold if threshold is not None and threshold > 0 else None


def _size_of(system: str, tools: Iterable[Tool]) -> int:
    """Tokens, roughly, of what is sent beside the history."""
    return (len(system) + sum(len(msgspec.json.encode(tool.spec)) for tool in tools)) // 4
