"""The agent loop: ask the model, play the tools it calls, tell it the results, until it calls none.

A `Conversation` is that loop and its history, whoever holds it: an LLM agent (`agent`), or an llm node of a graph with
its own short one. It belongs to one actor, which passes itself in; calls are that actor's children.

How it may end: the model answers without a call (`Conversation.say` returns); its own bound of turns or a limit of the
run is reached, the model can't be had (it raises). All that was said until then is in the `record`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ....protocol.chat import (
    AssistantTurn,
    ChatReply,
    ChatRequest,
    Content,
    Delta,
    Restarted,
    TextDelta,
    TextPart,
    ToolTurn,
    Turn,
    UserTurn,
)
from ....protocol.errors import TurnsReached
from ....protocol.events import AgentTold
from ....protocol.messages import PersonSays
from ..record import Record
from ..tools.calls import tame
from ..tools.rendering import text_of

if TYPE_CHECKING:
    from ....supervisors import Actor
    from ..context import RunContext
    from ..models.retry import Attempts
    from ..tools.calls import Calls
    from ..tools.tool import Tool
    from .compaction import Compaction

LONGEST_TEXT = 4_000_000
"""Characters of one reply that are kept."""


class OutOfTurns(TurnsReached):
    """A conversation's own bound was reached, not one of the run."""


Notice = Callable[[], Any]
"""Asked after each round of calls for something the model should be told beside the results; None for nothing."""


class Renewed(msgspec.Struct, frozen=True, kw_only=True):
    """What the model may call from now on.

    Attributes:
        tools, unlisted: as those of `Calls`.
        system: the system prompt, which may name them; None for the one there is.
    """

    tools: tuple[Tool, ...]
    unlisted: Mapping[str, Tool]
    system: str | None = None


Renewal = Callable[["Actor"], Awaitable[Renewed | None]]
"""Asked before each turn whether there are other tools by now; None for no."""


class Conversation:
    """See the module.

    Args:
        context: the run.
        calls: its tools.
        request: model, system prompt and sampling of every request; its messages are how the history begins.
        record: where it is written down.
        max_turns: model replies in one `say`; the last one must call no tool.
        bound: how errors call that bound (`max_turns (200)`).
        node: id of the graph node on whose account it goes.
        attempts: tries per request where errors may pass.
        need_text: an answer without a word counts as an error that may pass.
        compaction: shortens the history when it has grown too long.
        notice: see `Notice`.
        renewal: see `Renewal`.

    Attributes:
        messages: the history, oldest first.
        unfinished: what the model had said of a reply that did not come to its end.
        handed_out: whether it ended with calls that the caller of the run has to play (`Tool.elsewhere`).
    """

    def __init__(
        self,
        context: RunContext,
        calls: Calls,
        request: ChatRequest,
        record: Record,
        *,
        max_turns: int,
        bound: str = "max_turns",
        node: str | None = None,
        attempts: int | Attempts = 3,
        need_text: bool = False,
        compaction: Compaction | None = None,
        notice: Notice | None = None,
        renewal: Renewal | None = None,
    ) -> None:
        self.messages: list[Turn] = list(request.messages)
        self.unfinished = ""
        self.handed_out = False
        self._context = context
        self._calls = calls
        self._request = msgspec.structs.replace(request, tools=tuple(tool.spec for tool in calls.tools.values()))
        self._record = record
        self._max_turns = max_turns
        self._bound = bound
        self._node = node
        self._attempts = attempts
        self._need_text = need_text
        self._compaction = compaction
        self._notice = notice
        self._renewal = renewal

    async def say(self, me: Actor, content: Content) -> str:
        """Say something to the model; all it said in return, until it called no more tools.

        Raises:
            OutOfTurns: it still called tools in its last turn.
            TurnsReached, BudgetReached, ModelError, ConfigError: see `RunContext.chat`.
        """
        self.messages.append(UserTurn(content))
        return await self.reply(me)

    async def reply(self, me: Actor) -> str:
        """Like `say`, to what the history ends with."""
        said: list[str] = []
        for _ in range(self._max_turns):
            self._hear(me)
            reply = await self._turn(me)
            if reply.text:
                said.append(reply.text)
            if self.handed_out or (not reply.tool_calls and not self._hear(me)):
                return "\n".join(said)
        raise OutOfTurns(f"the tool loop hit {self._bound} ({self._max_turns})")

    def _hear(self, me: Actor) -> bool:
        """What people have written to the actor meanwhile is the user's next words. Whether there was something."""
        heard = False
        while me.has_mail:
            message = me.take_mail()
            if isinstance(message, PersonSays):
                heard = True
                self.messages.append(UserTurn(message.text))
                me.emit(AgentTold(agent=me.name, text=message.text, by=message.by))
            else:
                me.dead_letter(message, "an agent at work reads nothing but what people say to it")
        return heard

    async def _turn(self, me: Actor) -> ChatReply:
        """One reply of the model, its calls played."""
        if self._compaction is not None:
            await self._compaction.shorten(me, self.messages)
        if me.root.pauses is not None:  # what is written to a paused agent is read when it goes on
            await me.root.pauses.passed(me)
            self._hear(me)
        if self._renewal is not None and (renewed := await self._renewal(me)) is not None:
            self._renew(renewed)
        request = msgspec.structs.replace(self._request, messages=tuple(self.messages))
        reply = await self._ask(me, request)
        text = reply.text[:LONGEST_TEXT]
        self._record.turns += 1
        if text:
            self._record.texts.append(text)
        calls = tame(reply.tool_calls)
        self.messages.append(AssistantTurn(text, calls))
        if self._compaction is not None:
            self._compaction.count(reply.usage, self.messages)
        own = tuple(call for call in calls if not self._calls.elsewhere(call))
        self.handed_out = len(own) < len(calls)
        if own:
            before = self._calls.played
            try:
                results = await self._calls.play(me, own)
            finally:
                played = self._calls.played - before
                self._record.tool_calls += played
                self._context.meter.tool_calls += played
            self.messages.extend(self._with_notice(results))
        return msgspec.structs.replace(reply, text=text, tool_calls=calls)

    def _renew(self, renewed: Renewed) -> None:
        self._calls.renew(renewed.tools, renewed.unlisted)
        system = self._request.system if renewed.system is None else renewed.system
        specs = tuple(tool.spec for tool in self._calls.tools.values())
        self._request = msgspec.structs.replace(self._request, tools=specs, system=system)

    async def _ask(self, me: Actor, request: ChatRequest) -> ChatReply:
        """The model's reply; of one that does not come to its end, what was said of it is kept."""
        pieces: list[str] = []

        def hears(delta: Delta) -> None:
            if isinstance(delta, TextDelta):
                pieces.append(delta.text)
            elif isinstance(delta, Restarted):
                pieces.clear()

        try:
            return await self._context.chat(
                me, request, node=self._node, attempts=self._attempts, need_text=self._need_text, hears=hears
            )
        except BaseException:  # cancelled too: what was said is kept
            if pieces:
                self.unfinished = "".join(pieces)[:LONGEST_TEXT]
                self._record.texts.append(self.unfinished)
            raise

    def _with_notice(self, results: list[ToolTurn]) -> list[ToolTurn]:
        notice = None if self._notice is None else self._notice()
        if notice is None:
            return results
        last = results[-1]
        said = text_of(notice)
        content = last.content
        more = f"{content}\n\n{said}" if isinstance(content, str) else (*content, TextPart(said))
        told = msgspec.structs.replace(last, content=more)
        return [*results[:-1], told]
