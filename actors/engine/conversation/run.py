"""Conversation within an actor: runs its decider on the actor's mail and executes the effects.

An LLM agent has one (`agent`). An llm node of a graph and an agent node of a workflow each have a short one. Each
tool call is a child of that actor; its own task waits for the model's replies.

`CallRounds` executes rounds of tool calls without a model, for `callboard tools call` and `callboard mcp call`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol import messages
from ....protocol.chat import (
    AssistantTurn,
    ChatRequest,
    Content,
    Delta,
    Restarted,
    TextDelta,
    ToolCall,
    ToolTurn,
    Turn,
    UserTurn,
)
from ....protocol.effects import CallModel, CallTool, CheckTools, Effect, KeepResults, Summarize, Work
from ....protocol.events import CacheMissed
from ....protocol.messages import CallsBegun
from ....protocol.permissions import Permissions as Rules
from ....supervisors import Actor, Retry
from ...io.imports import imported
from ...io.json_schema import LIBRARY, surely_fits
from ...work import playback as play
from ...work.agent.history import RECORD, summary_request
from ...work.agent.todo import TodoList
from ...work.labels.flow import RULES
from ...work.tools.calls import RESULT_LIMIT, CallPlayer
from ...work.tools.checking import AT_ROOT, MOST_CALLS, RepeatGuard
from ...work.tools.permissions import Permissions
from ...work.tools.stored_results import READERS
from ...work.tools.tool import Tool
from ...work.transcript import Record
from ..driver import Driver, Performer
from .decider import LONGEST_TEXT, CallsDecider, ConversationDecider, ConversationSetup, OutOfTurns, Rounds

if TYPE_CHECKING:
    from ...work.agent.children import Children
    from ...work.context import RunContext
    from ...work.journal.actor_journal import JournalPlayer as Kept
    from ...work.journal.actor_journal import OpenChildren
    from ...work.team_messages import Address


_JUDGING = (".actors.work.tools.shell_rules", *RULES)
"""Modules that judge calls; imported in a thread once a reply has calls."""

__all__ = ["Conversation", "ConversationSetup", "OutOfTurns", "Renewal", "RenewedTools"]


class RenewedTools(msgspec.Struct, frozen=True, kw_only=True):
    """New set of tools for the following turns.

    Attributes:
        tools: tools offered to the model.
        unlisted: tools that it can call without an offer, by name.
        system: the new system prompt, which may name tools; None to leave it unchanged.
    """

    tools: tuple[Tool, ...]
    unlisted: Mapping[str, Tool]
    system: str | None = None


Renewal = Callable[["Actor"], Awaitable[RenewedTools | None]]
"""Called before each turn; returns None if no tool has changed."""


@dataclass(eq=False, repr=False)
class Conversation:
    """Conversation of one actor with a model.

    Args:
        context: the run.
        talk: its fixed settings.
        player: executes the tool calls.
        request: model, system prompt and sampling of every request; its messages begin the history.
        record: the transcript.
        attempts: tries per request for errors that may be transient.
        need_text: an empty reply without tool calls is an error (see `Gateway.chat`).
        summarizer: the model that compacts the history; "" for the conversation's own model.
        todos: the initial todo list; updated when the conversation ends.
        children: executes the effects on child agents.
        address: receives team messages.
        renewal: see `Renewal`.

    Attributes:
        messages: the history, oldest first.
        decider: the current decider, or the last one.
        unfinished: the received text of a reply that was cut off.
    """

    context: RunContext
    talk: ConversationSetup
    player: CallPlayer
    request: ChatRequest
    record: Record
    _: KW_ONLY
    attempts: int | Retry = 3
    need_text: bool = False
    summarizer: str = ""
    todos: TodoList | None = None
    children: Children | None = None
    address: Address | None = None
    renewal: Renewal | None = None

    def __post_init__(self) -> None:
        self.messages: Sequence[Turn] = self.request.messages
        self.decider: ConversationDecider | None = None
        self.unfinished = ""
        self._tell: Callable[[messages.FromBelow], None]
        self._offer(self.player.tools[name] for name in self.talk.tools)

    def say(self, me: Actor, content: Content) -> Coroutine[Any, Any, messages.ConversationEnded]:
        """Send content to the model; return its replies, up to the first without a tool call.

        Raises:
            OutOfTurns: the last permitted reply still calls tools.
            TurnsReached, BudgetReached, ModelError, ConfigError: from `RunContext.chat`.
        """
        self.messages = [*self.messages, UserTurn(content)]
        return self.reply(me)

    async def reply(self, me: Actor) -> messages.ConversationEnded:
        """Request a reply to the history as it is, without new content; otherwise like `say`."""
        talk = self.talk
        decider = self.decider = ConversationDecider(talk, self.record)
        self.player.said = lambda: decider.messages
        performers: dict[type[Work], Performer] = {
            CallModel: self._ask,
            CallTool: self.player.play,
            Summarize: self._summarize,
            KeepResults: self._keep_results,
            CheckTools: self._refresh_tools,
        }
        children = self.children
        driver = Driver(
            me,
            decider,
            performers,
            limit=MOST_CALLS,
            fresh=partial(ConversationDecider, talk),
            background=self,
        )
        self._tell = driver.deliver
        if children is not None:
            children.begin(driver.deliver, driver.player)
        if self.address is not None:
            player = driver.player
            self.address.open(me.ref, () if player is None else player.undelivered_messages())
        todos = self.todos
        # The decider has its own copy, so that its state follows from its messages alone.
        now = None if todos is None else todos.as_todos()
        begun = messages.ConversationBegun(tuple(self.messages), now, talk.shortening)
        try:
            ended: messages.ConversationEnded = await driver.run(begun)
        finally:
            del self._tell  # break the reference cycle: the driver refers to this object
            self.messages, self.unfinished = decider.messages, decider.unfinished
            if todos is not None and decider.todos is not None:
                todos.become(decider.todos.as_todos() or messages.Todos())
        return ended

    # --- interface for the driver (`BackgroundWork`) ----------------------------------------------------------

    @property
    def executors(self) -> Mapping[type[Effect], Callable[[Any], None]]:
        """Executors of effects on child agents."""
        return {} if self.children is None else self.children.at_once

    def resume(self, player: Kept, left: OpenChildren, *, ends: bool) -> None:
        """Resume after recovery: restore the inbox and children, and report restarted MCP servers."""
        decider = self.decider
        assert decider is not None
        if self.address is not None and decider.inbox is not None:
            self.address.unread += decider.inbox.texts
        if self.children is not None:
            self.children.resume(left, ends=ends)
        if servers := player.servers():
            self._tell(messages.ServersRestarted(servers=servers))

    async def caught_up(self) -> None:
        """Wait until all children are recovered."""
        if self.children is not None:
            await self.children.caught_up()

    # --- performers -----------------------------------------------------------------------------------------

    async def _ask(self, me: Actor, work: CallModel) -> messages.Replied:
        """Request the model's reply; store the received text if the request fails or is cancelled."""
        said = _StreamedText()
        request = msgspec.structs.replace(self.request, messages=work.messages)
        # A forced tool choice holds for the first reply only; otherwise the model could never answer with text.
        if request.tool_choice != "auto" and _answers(work.messages) > _answers(self.request.messages):
            request = msgspec.structs.replace(request, tool_choice="auto")
        node, attempts, need_text = self.talk.node, self.attempts, self.need_text
        try:
            reply = await self.context.chat(me, request, node=node, attempts=attempts, need_text=need_text, hears=said)
        except BaseException:  # also on cancellation: store the received text
            if said:
                self._tell(messages.Partial(text="".join(said)[:LONGEST_TEXT]))
            raise
        if reply.tool_calls:  # the arguments are validated next; import in a thread, not in the loop
            await imported(*(LIBRARY if self._need_library(reply.tool_calls) else ()), *_JUDGING)
        elif self.talk.result is not None:
            await imported(*LIBRARY)
        return messages.Replied(work.key, reply=reply)

    def _need_library(self, calls: Sequence[ToolCall]) -> bool:
        """Return True if `Checks` needs jsonschema for these calls; that import must run in a thread."""
        tools = self.player.tools
        return not all(
            (tool := tools.get(call.name)) is not None
            and not tool.synonyms
            and surely_fits(call.arguments, tool.spec.parameters)
            for call in calls
        )

    async def _summarize(self, me: Actor, work: Summarize) -> messages.Summarized:
        model = self.summarizer or self.request.model
        window = self.context.window(model)
        if self.context.hooks is not None:
            from ...work.hooks import before_shortening

            await before_shortening(self.context.hooks, me)
        request = summary_request(model, work.turns, RECORD if window is None else min(RECORD, 2 * window))
        reply = await self.context.chat(me, request, node=self.talk.node, need_text=True)
        return messages.Summarized(work.key, summary=reply.text.strip())

    async def _keep_results(self, me: Actor, work: KeepResults) -> messages.ResultsStored:
        """Write cut results to files, for models that have a tool to read files; return no paths for others."""
        kept = None if READERS.isdisjoint(self.talk.tools) else self.context.results()
        if kept is None:
            return messages.ResultsStored(work.key, files=("",) * len(work.results))
        named = [(result.tool, result.text) for result in work.results]
        keep = partial(trio.to_thread.run_sync, kept.keep, named)
        files = await play.done(
            me, play.OutsideEffect("files", "results", [tool for tool, _ in named]), list[str], keep
        )
        return messages.ResultsStored(work.key, files=tuple(files))

    async def _refresh_tools(self, me: Actor, work: CheckTools) -> messages.ToolsChecked:
        renewed = None if self.renewal is None else await self.renewal(me)
        return messages.ToolsChecked(work.key, offered=None if renewed is None else self._renew(me, renewed))

    def _renew(self, me: Actor, renewed: RenewedTools) -> tuple[messages.OfferedTool, ...]:
        """Install a new set of tools; return their descriptions for the decider."""
        before = self.request
        self.player.tools = {**renewed.unlisted, **{tool.name: tool for tool in renewed.tools}}
        self._offer(renewed.tools)
        if renewed.system is not None:
            self.request = msgspec.structs.replace(self.request, system=renewed.system)
        # A changed prefix invalidates the provider's prompt cache, so the whole history is billed again.
        changed = [name for name in ("tools", "system") if getattr(self.request, name) != getattr(before, name)]
        if changed and self.decider is not None and len(self.decider.messages) > 1:
            me.emit(CacheMissed(agent=self.talk.agent, changed=changed))
        listed = [_offered(tool, tool.name, listed=True) for tool in renewed.tools]
        return (*listed, *(_offered(tool, name, listed=False) for name, tool in renewed.unlisted.items()))

    def _offer(self, tools: Iterable[Tool]) -> None:
        self.request = msgspec.structs.replace(self.request, tools=tuple(tool.spec for tool in tools))


class _StreamedText(list[str]):
    """Collector of the text of a streamed reply; called with each delta."""

    __slots__ = ()

    def __call__(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self.append(delta.text)
        elif isinstance(delta, Restarted):
            self.clear()


def _answers(turns: Sequence[Turn]) -> int:
    return sum(isinstance(turn, AssistantTurn) for turn in turns)


def _offered(tool: Tool, name: str, *, listed: bool) -> messages.OfferedTool:
    return messages.OfferedTool(
        name=name,
        spec=tool.spec,
        origin=tool.origin,
        ordered=tool.ordered,
        elsewhere=tool.elsewhere,
        waits=tool.waits,
        synonyms=dict(tool.synonyms),
        listed=listed,
    )


class CallRounds:
    """Executor of rounds of calls with one repeat guard; `CallPlayer` and `Rounds` document the arguments."""

    def __init__(
        self,
        tools: Iterable[Tool],
        permissions: Permissions,
        *,
        unlisted: Mapping[str, Tool] | None = None,
        own: Rules | None = None,
        guard: RepeatGuard | None = None,
        timeout: float | None = None,
        result_limit: int = RESULT_LIMIT,
    ) -> None:
        listed = {tool.name: tool for tool in tools}
        others = unlisted or {}
        self._player = CallPlayer(
            {**others, **listed}, permissions, own=own, timeout=timeout, result_limit=result_limit
        )
        self._rounds = Rounds(listed, others, guard or RepeatGuard(*AT_ROOT), result_limit)

    async def play(self, me: Actor, calls: Sequence[ToolCall]) -> list[ToolTurn]:
        """Execute these calls as children of `me`; return the results in the order of the calls.

        Raises:
            BudgetReached, TurnsReached, ShuttingDown: the run has ended.
        """
        # A recorder's second decider must start with the same call history.
        before = self._rounds.copy()
        decider = CallsDecider(self._rounds)
        performers: dict[type[Work], Performer] = {CallTool: self._player.play}
        driver = Driver(me, decider, performers, limit=MOST_CALLS, fresh=lambda: CallsDecider(before.copy()))
        turns: list[ToolTurn] = await driver.run(CallsBegun(tuple(calls)))
        return turns
