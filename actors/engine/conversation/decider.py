"""What a conversation with a model decides: ask it, play the tools it calls, tell it the results, until it calls none.

    turn      look around (other tools?) if there is something to look at
              what children ask is put behind the results of calls
              what people have written meanwhile is the user's next words
              shorten the history if it has grown too long (a summary, then results that are cut), or end if it can't be
              ask the model
    reply     its calls are played, all of them at once; then the next turn
              without a call: the next turn, if people have written; or it goes on while its todo list has open items
    end       that, or a call that the caller of the run plays (`Offer.elsewhere`), or its bound of turns, or an error

A decider (`engine/driver`). A turn begins when no mail waits and nothing is paused (`WhenIdle`): so what was written to
a paused agent is read when it goes on. What people write while the model replies, or calls are played, is kept until
the next turn: nothing may stand between a call and its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from ....protocol import messages
from ....protocol.chat import AssistantTurn, Content, TextPart, ToolTurn, Turn, UserTurn
from ....protocol.chat import text_of as words_of
from ....protocol.effects import (
    Answer,
    CallModel,
    Effect,
    Emit,
    Finish,
    KeepResults,
    LookAround,
    Reject,
    Summarize,
    WhenIdle,
    WholeResult,
)
from ....protocol.errors import TurnsReached
from ....protocol.events import AgentContinued, AgentTold, HistoryCompacted, HistoryCompacting, Warned
from ....protocol.failure import Failure
from ....protocol.kernel.messages import Message
from ...work.agent.compaction import Compaction, CutResults, DoesNotFit, SumUp, too_large
from ...work.agent.todo import TodoList
from ...work.letters import Inbox
from ...work.record import Record
from ...work.tools.calls import RESULT_LIMIT
from ...work.tools.checking import AT_ROOT, Offer, RepeatGuard, tame
from ...work.tools.tool import text_of
from .rounds import Rounds

if TYPE_CHECKING:
    from .team import Team, TeamRules

LONGEST_TEXT = 4_000_000
"""Characters of one reply that are kept."""

CONTINUE = """[The todo list still has open items]
Go on with the next one now. Call tools; don't announce what you are about to do."""

ANEW = """[The program was ended and started again]
{servers} runs anew. What it had in its memory is gone (sessions, open files, pages, directories): look before you \
rely on it."""
"""What a conversation is told of its MCP servers."""

_READS_NO_MORE = "an agent at work reads nothing but what people say to it"


class OutOfTurns(TurnsReached):
    """A conversation's own bound was reached, not one of the run."""


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """What is settled about a conversation before it begins.

    Attributes:
        name: of its actor, for events.
        tools: what the model may call, by name.
        unlisted: what it may call though it is not offered it.
        max_turns: model replies to one message; the last one must call no tool.
        bound: how errors call that bound (`max_turns (200)`).
        agent: name of the agent.
        node: id of the graph node on whose account it goes.
        repeats: how often, and in how long chains, the same calls may come; see `RepeatGuard`.
        result_limit: characters of one result.
        looks_around: there are tools that may change.
        team: what the files say of its team; None if it may have none.
        mail: it may get letters.
        shortening: when its history is shortened.
        auto_continue: it goes on while its todo list has open items, so many times; 0 for never.
        continuation: the user's message that makes it go on.
    """

    name: str
    tools: Mapping[str, Offer]
    unlisted: Mapping[str, Offer] = {}
    max_turns: int
    bound: str = "max_turns"
    agent: str = ""
    node: str | None = None
    repeats: tuple[int, int] = AT_ROOT
    result_limit: int = RESULT_LIMIT
    looks_around: bool = False
    team: TeamRules | None = None
    mail: bool = False
    shortening: messages.Shortening = messages.Shortening()
    auto_continue: bool = False
    max_auto_continues: int = 0
    continuation: str = CONTINUE


class ConversationDecider:
    """See the module.

    Args:
        record: where turns, texts and calls are written down, so that they can be read whatever ends the conversation.

    Attributes:
        messages: the history, oldest first.
        record: what it has said and done.
        unfinished: what the model had said of a reply that did not come to its end.
        todos, inbox, team: its todo list, its letters, its children and tasks, where it has them.
    """

    def __init__(self, talk: Talk, record: Record | None = None) -> None:
        self.heard = True
        self.messages: list[Turn] = []
        self.unfinished = ""
        self._talk = talk
        self.record = Record() if record is None else record
        self.todos: TodoList | None = None
        self.inbox = Inbox() if talk.mail or talk.team is not None else None
        self.team: Team | None = None
        if talk.team is not None:
            from .team import Team

            self.team = Team(talk.team, self.record, self.inbox or Inbox())
        self._rounds = Rounds(talk.tools, talk.unlisted, RepeatGuard(*talk.repeats), talk.result_limit)
        self._shortening = talk.shortening
        self._compaction: Compaction | None = None
        self._cut: SumUp | CutResults | None = None  # how the history is being shortened
        self._written: list[messages.PersonSays] = []  # what people have written that is not in the history yet
        self._news: list[UserTurn] = []  # what else is to be told with the next request
        self._is_asking = False
        self._left = talk.max_turns
        self._said: list[str] = []
        self._looked = False
        self._after_calls = False
        self._handed_out = False
        self._continued = 0
        self._before = ("", "", 0)  # the answer, todo list and number of calls before it went on last

    def begin(self, request: messages.ConversationBegun) -> list[Effect]:
        """The first turn."""
        self.messages = list(request.turns)
        how = self._shortening = request.shortening or self._shortening
        if how.threshold is not None:
            self._compaction = Compaction(how.threshold, how.keep_last, window=how.window, fixed=how.fixed)
        if request.todos is not None or self._talk.auto_continue:
            self.todos = TodoList(request.todos)
        return self._turn()

    def on(self, message: Message) -> list[Effect]:
        """Something was done, or a person has written."""
        match message:
            case messages.Idle():
                return self._next()
            case messages.Replied():
                return self._replied(message)
            case messages.ToolDone():
                return self._call_ended(message)
            case messages.LookedAround():
                return self._looked_around(message)
            case messages.Summarized():
                return self._summarized(message)
            case messages.ResultsKept():
                return self._results_kept(message)
            case messages.WorkFailed():
                return self._failed(message)
            case messages.FamilyCalled():
                return self._family_called(message)
            case messages.Letter() if self.inbox is not None:
                self.inbox.put(message)
                return []
            case messages.Partial():
                self.unfinished = message.text
                self.record.texts.append(message.text)
                return []
            case messages.ServersAnew():
                return self._servers_anew(message)
            case messages.FromBelow() | messages.TimerFired() if self.team is not None:
                return self.team.on(message)
            case messages.PersonSays():
                self._written.append(message)
                return []
            case messages.Interrupted():
                self._call_over(message.key, failed=True)
                return []
        return [Reject(message, _READS_NO_MORE)]

    def remembers(self) -> tuple[object, ...]:
        """See `Decider`."""
        return (self.messages, self.record, self.inbox, self.todos)

    # --- a turn -------------------------------------------------------------------------------------------

    def _turn(self) -> list[Effect]:
        """A new turn, when there is nothing to read first."""
        if self._left <= 0:
            talk = self._talk
            return self._fail(Failure.of(OutOfTurns(f"the tool loop hit {talk.bound} ({talk.max_turns})")))
        self._left -= 1
        self._looked = not self._talk.looks_around
        return [WhenIdle("turn")]

    def _next(self) -> list[Effect]:
        """All mail is read, nothing is paused: the next step of this turn."""
        if not self._looked:
            self._looked = True
            return [LookAround(key=self._next_key())]
        if self._after_calls:
            self._after_calls = False
            notice = None if self.team is None else self.team.escalations.notice()
            if notice is not None:
                self._put_behind_results(text_of(notice))
        effects = self._hear()
        if self._compaction is not None:
            match self._compaction.step(self.messages):
                case SumUp() as found:
                    self._cut = found
                    turns = tuple(self.messages[: found.cut])
                    near = HistoryCompacting(
                        agent=self._talk.agent or self._talk.name, turns=found.cut, tokens=self._compaction.tokens
                    )
                    return [*effects, Emit(near), Summarize(key=self._next_key(), turns=turns)]
                case CutResults() as found:
                    self._cut = found
                    return [*effects, KeepResults(key=self._next_key(), results=self._whole(found.places))]
                case DoesNotFit() as found:
                    talk, how = self._talk, self._shortening
                    error = too_large(talk.agent or talk.name, how.model, how.window or 0, found)
                    return [*effects, *self._fail(Failure.of(error))]
        return [*effects, self._ask()]

    def _ask(self) -> CallModel:
        self.messages += self._news
        self._news = []
        self._is_asking = True
        return CallModel(key=self._next_key(), messages=tuple(self.messages))

    def _whole(self, places: tuple[int, ...]) -> tuple[WholeResult, ...]:
        results = (turn for place in places if isinstance(turn := self.messages[place], ToolTurn))
        return tuple(WholeResult(tool=turn.name, text=words_of(turn.content)) for turn in results)

    def _hear(self) -> list[Effect]:
        if not self._written:
            return []
        written, self._written = self._written, []
        self.messages += [UserTurn(message.text) for message in written]
        name = self._talk.name
        return [Emit(AgentTold(agent=name, text=message.text, by=message.by)) for message in written]

    def _servers_anew(self, message: messages.ServersAnew) -> list[Effect]:
        """Told before anything is begun again: a request that was under way is made with the news."""
        several = len(message.servers) > 1
        names = ", ".join(f"'{server}'" for server in message.servers)
        text = ANEW.format(servers=f"{'Each of the MCP servers' if several else 'The MCP server'} {names}")
        self._news.append(UserTurn(text))
        effects: list[Effect] = [Emit(Warned(code="servers_anew", message=text, node=self._talk.node))]
        return [*effects, self._ask()] if self._is_asking else effects

    def _looked_around(self, message: messages.LookedAround) -> list[Effect]:
        if message.offered is not None:
            listed: dict[str, Offer] = {tool.name: tool for tool in message.offered if tool.listed}
            unlisted: dict[str, Offer] = {tool.name: tool for tool in message.offered if not tool.listed}
            self._rounds.renew(listed, unlisted)
        return [WhenIdle("turn")]

    def _put_behind_results(self, notice: str) -> None:
        last = self.messages[-1]
        assert isinstance(last, ToolTurn)
        content: Content = last.content
        content = f"{content}\n\n{notice}" if isinstance(content, str) else (*content, TextPart(notice))
        self.messages[-1] = msgspec.structs.replace(last, content=content)

    def _next_key(self) -> int:
        self._rounds.key += 1
        return self._rounds.key

    # --- what came of it ----------------------------------------------------------------------------------

    def _replied(self, message: messages.Replied) -> list[Effect]:
        reply, record = message.reply, self.record
        text = reply.text[:LONGEST_TEXT]
        record.turns += 1
        if text:
            record.texts.append(text)
            self._said.append(text)
        calls = tame(reply.tool_calls)
        self.messages.append(AssistantTurn(text, calls, reply.thought_by))
        self._after_calls = self._is_asking = False
        if self._compaction is not None:
            self._compaction.count(reply.usage, self.messages)
        if not calls:
            return self._turn() if self._written else self._answered()
        own = tuple(call for call in calls if not self._rounds.elsewhere(call))
        self._handed_out = len(own) < len(calls)
        if not own:
            return self._answered()
        played = self._rounds.played
        effects = self._rounds.begin(own, heard=self.heard)
        record.tool_calls += self._rounds.played - played
        return effects if self._rounds.running else [*effects, *self._round_over()]

    def _call_ended(self, message: messages.ToolDone | messages.WorkFailed) -> list[Effect]:
        self._call_over(message.key, failed=isinstance(message, messages.WorkFailed))
        self._rounds.on(message)
        return [] if self._rounds.running else self._round_over()

    def _call_over(self, key: int, *, failed: bool) -> None:
        if self.team is not None:
            self.team.call_over(key, failed=failed)

    def _family_called(self, message: messages.FamilyCalled) -> list[Effect]:
        if message.name == "agent__check_inbox":
            assert self.inbox is not None
            letters = [letter.shown() for letter in self.inbox.drain()]
            return [Answer(message.key, {"messages": letters, "count": len(letters)})]
        if message.name.startswith("agent__"):
            assert self.team is not None
            return self.team.call(message)
        assert self.todos is not None
        return [Answer(message.key, self.todos.answer(message.name, message.arguments))]

    def _round_over(self) -> list[Effect]:
        if self._rounds.ending is not None:
            return self._fail(self._rounds.ending)
        self.messages += self._rounds.turns()
        self._after_calls = True
        return self._answered() if self._handed_out else self._turn()

    def _summarized(self, message: messages.Summarized) -> list[Effect]:
        compaction, cut = self._compaction, self._cut
        assert compaction is not None
        assert isinstance(cut, SumUp)
        pinned = self.todos.render() if self.todos is not None and self.todos.items else ""
        tokens = compaction.shorten(self.messages, cut.cut, message.summary, pinned)
        return self._compacted(turns=cut.cut, summary_tokens=tokens)

    def _results_kept(self, message: messages.ResultsKept) -> list[Effect]:
        compaction, cut = self._compaction, self._cut
        assert compaction is not None
        assert isinstance(cut, CutResults)
        compaction.cut(self.messages, cut.places, message.files)
        return self._compacted(results=len(cut.places))

    def _compacted(self, *, turns: int = 0, summary_tokens: int = 0, results: int = 0) -> list[Effect]:
        compaction = self._compaction
        assert compaction is not None
        self._cut = None
        event = HistoryCompacted(
            agent=self._talk.agent,
            turns=turns,
            tokens=compaction.tokens,
            summary_tokens=summary_tokens,
            results=results,
            tokens_now=compaction.size(self.messages),
        )
        return [Emit(event), WhenIdle("turn")]

    def _failed(self, message: messages.WorkFailed) -> list[Effect]:
        failure, cut = message.failure, self._cut
        self._is_asking = False
        if self._rounds.running:
            return self._call_ended(message)
        if not isinstance(cut, SumUp) or "ModelError" not in failure.kinds:
            return self._fail(failure)
        assert self._compaction is not None
        self._compaction.failed(self.messages, cut.cut)
        self._cut = None
        agent = self._talk.agent
        text = f"the older turns of '{agent}' could not be summed up, and it goes on without: {failure.text}"
        return [Emit(Warned(code="not_compacted", message=text, node=self._talk.node)), WhenIdle("turn")]

    # --- the end, or not yet ------------------------------------------------------------------------------

    def _answered(self) -> list[Effect]:
        """The model has given its answer, or waits for calls that others play."""
        if self._handed_out:
            return self._end("handed_out")
        return self._go_on() if self._talk.auto_continue else self._end("done")

    def _go_on(self) -> list[Effect]:
        """The model has given its answer: it goes on if its todo list has open items."""
        assert self.todos is not None
        talk, todos, open_todos = self._talk, self.todos.render(), len(self.todos.incomplete)
        now = ("\n".join(self._said), todos, self._rounds.played)
        if self._continued and now == self._before:
            return self._end("todo_stuck")
        if not open_todos:
            return self._end("done")
        if self._continued >= talk.max_auto_continues:
            return self._end("todo_limit")
        self._continued += 1
        self._before = now
        self._left, self._said = talk.max_turns, []
        self.messages.append(UserTurn(f"{talk.continuation}\n\n{todos}"))
        event = AgentContinued(agent=talk.agent, count=self._continued, most=talk.max_auto_continues, open=open_todos)
        return [Emit(event), *self._turn()]

    def _end(self, stop: messages.Stop) -> list[Effect]:
        return [*self._unread(), Finish(messages.ConversationEnded("\n".join(self._said), stop))]

    def _fail(self, failure: Failure) -> list[Effect]:
        return [*self._unread(), Finish(failure=failure)]

    def _unread(self) -> list[Effect]:
        return [Reject(message, "the conversation ended before it came to it") for message in self._written]
