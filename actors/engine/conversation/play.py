"""A conversation as part of an actor: its decider played on the actor's mail, and those who do what it decides.

An LLM agent (`agent`) has one, and an llm node of a graph or an agent node of a workflow its own short one. Each call
is a child of that actor; the model's replies are waited for in the actor's own task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol import messages
from ....protocol.chat import ChatRequest, Content, Delta, Restarted, TextDelta, Turn, UserTurn
from ....protocol.effects import CallModel, CallTool, Effect, KeepResults, LookAround, Summarize, Work
from ....protocol.events import CacheMissed
from ....supervisors import Actor, Retry
from ...io.imports import imported
from ...io.json_schema import LIBRARY
from ...work.agent.compaction import RECORD, summary_request
from ...work.agent.todo import TodoList
from ...work.playback import playback as play
from ...work.record import Record
from ...work.tools.calls import Player
from ...work.tools.checking import MOST_CALLS
from ...work.tools.kept_results import READERS
from ...work.tools.tool import Tool
from ..driver import Driver, Performer
from .decider import LONGEST_TEXT, ConversationDecider, OutOfTurns, Talk

if TYPE_CHECKING:
    from ...work.agent.children import Children
    from ...work.context import RunContext
    from ...work.journal.family import FamilyLeft
    from ...work.journal.scope import Player as Kept
    from ...work.letters import Address

_JUDGING = (
    *("tree_sitter", "tree_sitter_bash", ".actors.work.tools.shell_rules"),
    *(".actors.work.labels.sources", ".actors.work.labels.sinks"),
)
"""What calls are judged with."""

__all__ = ["Conversation", "OutOfTurns", "Renewal", "Renewed", "Talk"]


class Renewed(msgspec.Struct, frozen=True, kw_only=True):
    """What the model may call from now on.

    Attributes:
        tools: what it is offered.
        unlisted: what it may call besides, by name.
        system: the system prompt, which may name them; None for the one there is.
    """

    tools: tuple[Tool, ...]
    unlisted: Mapping[str, Tool]
    system: str | None = None


Renewal = Callable[["Actor"], Awaitable[Renewed | None]]
"""Asked before each turn whether there are other tools by now; None for no."""


@dataclass(eq=False, repr=False)
class Conversation:
    """See the module.

    Args:
        context: the run.
        talk: what is settled about it.
        player: plays the calls.
        request: model, system prompt and sampling of every request; its messages are how the history begins.
        record: where it is written down.
        attempts: tries per request where errors may pass.
        need_text: see `Gateway.chat`.
        summarizer: the model that shortens the history; "" for the one that is talked to.
        todos: the todo list that it begins with, and that is as it has left it when it ends.
        children: plays its children.
        address: where its letters go.
        renewal: see `Renewal`.

    Attributes:
        messages: the history, oldest first.
        decider: the one that is played, or was last.
        unfinished: what the model had said of a reply that did not come to its end.
    """

    context: RunContext
    talk: Talk
    player: Player
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
        """Say something to the model; all it said in return, until it called no more tools.

        Raises:
            OutOfTurns: it still called tools in its last turn.
            TurnsReached, BudgetReached, ModelError, ConfigError: see `RunContext.chat`.
        """
        self.messages = [*self.messages, UserTurn(content)]
        return self.reply(me)

    async def reply(self, me: Actor) -> messages.ConversationEnded:
        """Like `say`, to what the history ends with."""
        talk = self.talk
        decider = self.decider = ConversationDecider(talk, self.record)
        self.player.said = lambda: decider.messages
        performers: dict[type[Work], Performer] = {
            CallModel: self._ask,
            CallTool: self.player.play,
            Summarize: self._summarize,
            KeepResults: self._keep_results,
            LookAround: self._look_around,
        }
        children = self.children
        driver = Driver(
            me,
            decider,
            performers,
            at_once=MOST_CALLS,
            afresh=partial(ConversationDecider, talk),
            beside=self,
        )
        self._tell = driver.tell
        if children is not None:
            children.begin(driver.tell, driver.player)
        if self.address is not None:
            player = driver.player
            self.address.open(me.ref, () if player is None else player.letters())
        todos = self.todos
        now = None if todos is None else todos.told()
        begun = messages.ConversationBegun(tuple(self.messages), now, talk.shortening)
        try:
            ended: messages.ConversationEnded = await driver.play(begun)
        finally:
            del self._tell  # it holds the driver, which holds this
            self.messages, self.unfinished = decider.messages, decider.unfinished
            if todos is not None and decider.todos is not None:
                todos.become(decider.todos.told() or messages.Todos())
        return ended

    # --- beside its work (see `engine/driver`) ------------------------------------------------------------

    @property
    def at_once(self) -> Mapping[type[Effect], Callable[[Any], None]]:
        """Who carries out what it wants of its children."""
        return {} if self.children is None else self.children.at_once

    def go_on(self, player: Kept, left: FamilyLeft, *, ends: bool) -> None:
        """It was told its past."""
        decider = self.decider
        assert decider is not None
        if self.address is not None and decider.inbox is not None:
            self.address.unread += decider.inbox.texts
        if self.children is not None:
            self.children.go_on(left, ends=ends)
        if servers := player.servers():
            self._tell(messages.ServersAnew(servers=servers))

    async def caught_up(self) -> None:
        """Until its children are where they were."""
        if self.children is not None:
            await self.children.caught_up()

    # --- who does it --------------------------------------------------------------------------------------

    async def _ask(self, me: Actor, work: CallModel) -> messages.Replied:
        """The model's reply; of one that does not come to its end, what was said of it is kept."""
        said = _Said()
        request = msgspec.structs.replace(self.request, messages=work.messages)
        node, attempts, need_text = self.talk.node, self.attempts, self.need_text
        try:
            reply = await self.context.chat(me, request, node=node, attempts=attempts, need_text=need_text, hears=said)
        except BaseException:  # cancelled too: what was said is kept
            if said:
                self._tell(messages.Partial(text="".join(said)[:LONGEST_TEXT]))
            raise
        if reply.tool_calls:  # whose arguments are checked next
            await imported(*LIBRARY, *_JUDGING)
        return messages.Replied(work.key, reply=reply)

    async def _summarize(self, me: Actor, work: Summarize) -> messages.Summarized:
        model = self.summarizer or self.request.model
        window = self.context.window(model)
        if self.context.hooks is not None:
            from ...work.hooks.session import before_shortening

            await before_shortening(self.context.hooks, me)
        request = summary_request(model, work.turns, RECORD if window is None else min(RECORD, 2 * window))
        reply = await self.context.chat(me, request, node=self.talk.node, need_text=True)
        return messages.Summarized(work.key, summary=reply.text.strip())

    async def _keep_results(self, me: Actor, work: KeepResults) -> messages.ResultsKept:
        """Only a model that can read files is told where its results are, and only for such are they written."""
        kept = None if READERS.isdisjoint(self.talk.tools) else self.context.results()
        if kept is None:
            return messages.ResultsKept(work.key, files=("",) * len(work.results))
        named = [(result.tool, result.text) for result in work.results]
        keep = partial(trio.to_thread.run_sync, kept.keep, named)
        files = await play.done(me, play.Effect("files", "results", [tool for tool, _ in named]), list[str], keep)
        return messages.ResultsKept(work.key, files=tuple(files))

    async def _look_around(self, me: Actor, work: LookAround) -> messages.LookedAround:
        renewed = None if self.renewal is None else await self.renewal(me)
        return messages.LookedAround(work.key, offered=None if renewed is None else self._renew(me, renewed))

    def _renew(self, me: Actor, renewed: Renewed) -> tuple[messages.OfferedTool, ...]:
        """Play and offer these from now on; what the decider is told of them."""
        before = self.request
        self.player.tools = {**renewed.unlisted, **{tool.name: tool for tool in renewed.tools}}
        self._offer(renewed.tools)
        if renewed.system is not None:
            self.request = msgspec.structs.replace(self.request, system=renewed.system)
        changed = [name for name in ("tools", "system") if getattr(self.request, name) != getattr(before, name)]
        if changed and self.decider is not None and len(self.decider.messages) > 1:
            me.emit(CacheMissed(agent=self.talk.agent, changed=changed))
        listed = [_offered(tool, tool.name, listed=True) for tool in renewed.tools]
        return (*listed, *(_offered(tool, name, listed=False) for name, tool in renewed.unlisted.items()))

    def _offer(self, tools: Iterable[Tool]) -> None:
        self.request = msgspec.structs.replace(self.request, tools=tuple(tool.spec for tool in tools))


class _Said(list[str]):
    """What a model has said of a reply that is not at its end; called with its pieces."""

    __slots__ = ()

    def __call__(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self.append(delta.text)
        elif isinstance(delta, Restarted):
            self.clear()


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
