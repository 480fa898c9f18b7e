"""Decider of a conversation: call the model, run its tool calls, send it the results, until a reply has no call.

    turn      refresh the tools, if some of them can change
              append notices about children's questions to the last result
              append messages that users sent meanwhile
              compact the history if it is too long (a summary, then cut results), or end if that does not suffice
              call the model
    reply     with calls: run all of them concurrently; then the next turn
              without a call: the next turn, if users have sent messages; or continue while todos are open
    end       the last reply, a call that the run's caller executes (`Offer.elsewhere`), `max_turns`, or an error

A turn begins when no mail waits and nothing is paused (`WhenIdle`), so a paused agent reads its messages when it is
resumed. Messages that users send during a reply or a round of calls wait for the next turn. Providers reject a
history in which anything separates a call from its result.

`Rounds` decides which calls of a reply run, and in which order. Each call results in a `ToolTurn` that the model reads:
the tool's result, or the error. A call fails if the tool is unknown, or if its arguments are not JSON or do not fit the
schema. It also fails on a denied permission, a repetition, a timeout, or a failure of the tool. None of these ends the
conversation. A limit of the run and the shutdown of the root end it (`_ENDS_ALL`), after the other calls of the round
have ended. `CallsDecider` runs one round without a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ....protocol import messages
from ....protocol.chat import AssistantTurn, Content, TextPart, ToolCall, ToolTurn, Turn, UserTurn
from ....protocol.chat import text_of as words_of
from ....protocol.effects import (
    AnswerCall,
    CallModel,
    CallTool,
    CheckTools,
    Effect,
    Emit,
    Finish,
    KeepResults,
    Reject,
    Summarize,
    WhenIdle,
    WholeResult,
)
from ....protocol.errors import TurnsReached
from ....protocol.events import (
    AgentContinued,
    AgentTold,
    HistoryCompacted,
    HistoryCompacting,
    ToolFinished,
    ToolStarted,
    Warned,
)
from ....protocol.json_values import UnfitValue
from ....protocol.kernel.messages import Message
from ....protocol.messages import Failure
from ...work.agent.history import Compaction, CutResults, DoesNotFit, SumUp, invalid, too_large
from ...work.agent.todo import TodoList
from ...work.team_messages import UnreadMessages
from ...work.tools.calls import EVENT_LIMIT, RESULT_LIMIT
from ...work.tools.checking import AT_ROOT, LONGEST_NAME, MOST_CALLS, Checks, Misfit, Offer, RepeatGuard, tame, unknown
from ...work.tools.tool import Json, shortened, text_of
from ...work.transcript import Record

if TYPE_CHECKING:
    from ...work.results import ResultType
    from .team import Team, TeamRules


LONGEST_TEXT = 4_000_000
"""Most characters of one reply that are stored."""

CONTINUE = """[The todo list still has open items]
Go on with the next one now. Call tools; don't announce what you are about to do."""

ANEW = """[The program was ended and started again]
{servers} runs anew. What it had in its memory is gone (sessions, open files, pages, directories): look before you \
rely on it."""
"""Notice to the model after recovery: its MCP servers have been restarted."""

NOT_A_RESULT = """Your answer can't be used: {wrong}.
Answer again with one JSON value that fits the JSON Schema, and nothing else."""
"""Message to a model whose answer does not fit the type of the result."""

ATTEMPTS = 3
"""Most answers that a model may give until one fits the type of the result, the first included."""

_READS_NO_MORE = "a running agent reads only messages of users"


class OutOfTurns(TurnsReached):
    """Turn limit of one conversation, as opposed to the limit of the run."""


class ConversationSetup(msgspec.Struct, frozen=True, kw_only=True):
    """Fixed settings of a conversation.

    Attributes:
        name: name of its actor, for events.
        tools: the tools offered to the model, by name.
        unlisted: tools that the model can call without an offer.
        max_turns: most model replies to one message; the last one must call no tool.
        bound: name of that limit in errors (`max_turns (200)`).
        agent: name of the agent.
        node: id of the graph node that its cost is attributed to.
        repeats: limits on repeated calls and on repeated chains of calls; see `RepeatGuard`.
        result_limit: most characters of one result.
        looks_around: some tools can change, so each turn first refreshes them.
        team: the team's rules; None if the agent can have no children.
        mail: the agent can receive team messages.
        shortening: thresholds of compaction.
        auto_continue: continue while the todo list has open items, at most `max_auto_continues` times (0 for never).
        continuation: the user message that continues it.
        result: type of the final answer; the model is asked again for an answer that does not fit.
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
    result: ResultType | None = None


class ConversationDecider:
    """Decider of one conversation.

    Args:
        record: transcript of turns, texts and calls, which survives any end of the conversation.

    Attributes:
        messages: the history, oldest first.
        record: the transcript.
        unfinished: the received text of a reply that was cut off.
        todos, inbox, team: the todo list, the received team messages, the children and tasks, if it has them.
    """

    def __init__(self, talk: ConversationSetup, record: Record | None = None) -> None:
        self.heard = True
        self.messages: list[Turn] = []
        self.unfinished = ""
        self._talk = talk
        self.record = Record() if record is None else record
        self.todos: TodoList | None = None
        self.inbox = UnreadMessages() if talk.mail or talk.team is not None else None
        self.team: Team | None = None
        if talk.team is not None:
            from .team import Team

            self.team = Team(talk.team, self.record, self.inbox or UnreadMessages())
        self._rounds = Rounds(talk.tools, talk.unlisted, RepeatGuard(*talk.repeats), talk.result_limit)
        self._shortening = talk.shortening
        self._compaction: Compaction | None = None
        self._cut: SumUp | CutResults | None = None  # the compaction under way
        self._written: list[messages.PersonSays] = []  # messages of users that are not in the history yet
        self._news: list[UserTurn] = []  # notices to send with the next request
        self._is_asking = False
        self._left = talk.max_turns
        self._said: list[str] = []
        self._looked = False
        self._after_calls = False
        self._handed_out = False
        self._continued = 0
        self._misfits = 0
        self._before = ("", "", 0)  # answer, todo list and number of calls at the last automatic continuation

    def begin(self, request: messages.ConversationBegun) -> list[Effect]:
        """Return the effects of the first turn."""
        self.messages = list(request.turns)
        how = self._shortening = request.shortening or self._shortening
        if how.threshold is not None:
            self._compaction = Compaction(how.threshold, how.keep_last, window=how.window, fixed=how.fixed)
        if request.todos is not None or self._talk.auto_continue:
            self.todos = TodoList(request.todos)
        return self._turn()

    def on(self, message: Message) -> list[Effect]:
        match message:
            case messages.Idle():
                return self._next()
            case messages.Replied():
                return self._replied(message)
            case messages.ToolDone():
                return self._call_ended(message)
            case messages.ToolsChecked():
                return self._tools_refreshed(message)
            case messages.Summarized():
                return self._summarized(message)
            case messages.ResultsStored():
                return self._results_stored(message)
            case messages.WorkFailed():
                return self._failed(message)
            case messages.FamilyCalled():
                return self._family_called(message)
            case messages.TeamMessage() if self.inbox is not None:
                self.inbox.put(message)
                return []
            case messages.Partial():
                self.unfinished = message.text
                self.record.texts.append(message.text)
                return []
            case messages.ServersRestarted():
                return self._servers_restarted(message)
            # After `Partial` and `ServersRestarted`, which are subclasses of `FromBelow` too.
            case messages.FromBelow() | messages.TimerFired() if self.team is not None:
                return self.team.on(message)
            case messages.PersonSays():
                self._written.append(message)
                return []
            case messages.Interrupted():
                # An interrupted call may have removed a child's result, which must become available again.
                self._call_over(message.key, failed=True)
                return []
        return [Reject(message, _READS_NO_MORE)]

    def remembers(self) -> tuple[object, ...]:
        return (self.messages, self.record, self.inbox, self.todos)

    # --- a turn -------------------------------------------------------------------------------------------

    def _turn(self) -> list[Effect]:
        """Begin a turn once no mail waits; if the turn limit is used up, end with `OutOfTurns`."""
        if self._left <= 0:
            talk = self._talk
            return self._fail(
                Failure.of(
                    OutOfTurns(
                        f"the model still calls tools after the last reply that {talk.bound} ({talk.max_turns}) allows"
                    )
                )
            )
        self._left -= 1
        self._looked = not self._talk.looks_around
        return [WhenIdle("turn")]

    def _next(self) -> list[Effect]:
        """Return the next effects of this turn; called when no mail waits and nothing is paused."""
        if not self._looked:
            self._looked = True
            # Refresh before the request, which must offer current tools. Mail that arrives during the refresh is read
            # before the request, because `_tools_refreshed` waits for an idle mailbox again.
            return [CheckTools(key=self._next_key())]
        if self._after_calls:
            self._after_calls = False
            notice = None if self.team is None else self.team.escalations.notice()
            if notice is not None:
                self._put_behind_results(text_of(notice))
        effects = self._hear()
        if self._compaction is not None:
            # The end of each compaction step leads back here through `WhenIdle`, until no step applies.
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

    def _servers_restarted(self, message: messages.ServersRestarted) -> list[Effect]:
        """Queue a notice for the model; repeat the request if one was under way.

        Recovery sends this before any work restarts, so an interrupted request is made again with the notice.
        """
        several = len(message.servers) > 1
        names = ", ".join(f"'{server}'" for server in message.servers)
        text = ANEW.format(servers=f"{'Each of the MCP servers' if several else 'The MCP server'} {names}")
        self._news.append(UserTurn(text))
        effects: list[Effect] = [Emit(Warned(code="servers_anew", message=text, node=self._talk.node))]
        return [*effects, self._ask()] if self._is_asking else effects

    def _tools_refreshed(self, message: messages.ToolsChecked) -> list[Effect]:
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

    # --- results ------------------------------------------------------------------------------------------

    def _replied(self, message: messages.Replied) -> list[Effect]:
        reply, record = message.reply, self.record
        text = reply.text[:LONGEST_TEXT]
        record.turns += 1
        record.last = text
        if text:
            record.texts.append(text)
            self._said.append(text)
        # Bounded and with unique ids: a provider rejects a history with calls that it could not have produced.
        calls = tame(reply.tool_calls)
        self.messages.append(AssistantTurn(text, calls, reply.thought_by))
        self._after_calls = self._is_asking = False
        if self._compaction is not None:
            self._compaction.count(reply.usage, self.messages)
        # A user has sent a message meanwhile: the model must read it before its answer counts as final.
        if not calls:
            return self._turn() if self._written else self._answered()
        own = tuple(call for call in calls if not self._rounds.is_for_caller(call))
        # The run ends after this round; its caller executes the other calls and continues with their results.
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
            letters = [letter.for_model() for letter in self.inbox.drain()]
            return [AnswerCall(message.key, {"messages": letters, "count": len(letters)})]
        if message.name.startswith("agent__"):
            assert self.team is not None
            return self.team.call(message)
        assert self.todos is not None
        return [AnswerCall(message.key, self.todos.answer(message.name, message.arguments))]

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

    def _results_stored(self, message: messages.ResultsStored) -> list[Effect]:
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
        # During a round every failed work is a call; its failure is a result for the model.
        if self._rounds.running:
            return self._call_ended(message)
        # A failed summary does not end the agent: compaction tries again when those turns are twice as long.
        if not isinstance(cut, SumUp) or "ModelError" not in failure.kinds:
            return self._fail(failure)
        assert self._compaction is not None
        self._compaction.failed(self.messages, cut.cut)
        self._cut = None
        agent = self._talk.agent
        text = (
            f"the older turns of '{agent}' could not be summarised, so it continues without a summary: {failure.text}"
        )
        return [Emit(Warned(code="not_compacted", message=text, node=self._talk.node)), WhenIdle("turn")]

    # --- end or continuation ------------------------------------------------------------------------------

    def _answered(self) -> list[Effect]:
        """End, or continue: the model has given its answer, or its caller must execute a call."""
        if self._handed_out:
            return self._end("handed_out")
        return self._continue_or_finish() if self._talk.auto_continue else self._end("done")

    def _continue_or_finish(self) -> list[Effect]:
        """Continue while the todo list has open items.

        End with `todo_stuck` if the last continuation changed neither the answer, the todo list nor the number of
        calls.
        """
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
        # Each continuation has the full turn limit; `max_auto_continues` bounds their number.
        self._left, self._said = talk.max_turns, []
        self.messages.append(UserTurn(f"{talk.continuation}\n\n{todos}"))
        event = AgentContinued(agent=talk.agent, count=self._continued, most=talk.max_auto_continues, open=open_todos)
        return [Emit(event), *self._turn()]

    def _end(self, stop: messages.Stop) -> list[Effect]:
        if self._talk.result is not None and stop != "handed_out":
            try:
                self._talk.result.read(self.record.last)
            except UnfitValue as misfit:
                return self._ask_again(misfit)
        return [*self._unread(), Finish(messages.ConversationEnded("\n".join(self._said), stop))]

    def _ask_again(self, misfit: UnfitValue) -> list[Effect]:
        """Request another answer; fail after `ATTEMPTS` unfit answers in all."""
        self._misfits += 1
        if self._misfits >= ATTEMPTS:
            return self._fail(Failure.of(invalid(self.record.last, misfit)))
        self.messages.append(UserTurn(NOT_A_RESULT.format(wrong=misfit)))
        return self._turn()

    def _fail(self, failure: Failure) -> list[Effect]:
        return [*self._unread(), Finish(failure=failure)]

    def _unread(self) -> list[Effect]:
        return [
            Reject(message, "the conversation ended before the agent read this message") for message in self._written
        ]


# --- rounds of tool calls -------------------------------------------------------------------------------

ORDERED = "ordered"
"""Lane of calls that run one after another."""

_ENDS_ALL = {
    "BudgetReached",
    "TurnsReached",
    "ShuttingDown",
    "JournalError",
    "UnknownOutcome",
    "HookRefused",
    "ToolRaised",
}


class Rounds:
    """Decider for the calls of one conversation, one round after another.

    Args:
        tools: the callable tools, by name.
        unlisted: tools that the model can call without an offer.
        guard: detects repeated calls.
        result_limit: most characters of one result.

    Attributes:
        played: number of calls that reached a tool.
        key: key of the conversation's last work.
    """

    def __init__(
        self, tools: Mapping[str, Offer], unlisted: Mapping[str, Offer], guard: RepeatGuard, result_limit: int
    ) -> None:
        self.played = 0
        self.key = 0
        self._tools = tools
        self._unlisted = unlisted
        self._guard = guard
        self._limit = result_limit
        self._checks = Checks()
        self._calls: Sequence[ToolCall] = ()
        self._running: dict[int, int] = {}  # key of the work -> index of the call
        self._results: dict[int, tuple[Content, bool]] = {}
        self._ending: dict[int, Failure] = {}

    def copy(self) -> Rounds:
        """Return a copy with the same call history; valid only between two rounds."""
        copied = Rounds(self._tools, self._unlisted, self._guard.copy(), self._limit)
        copied.key, copied.played = self.key, self.played
        return copied

    def renew(self, tools: Mapping[str, Offer], unlisted: Mapping[str, Offer]) -> None:
        """Replace the callable tools, between two rounds."""
        self._tools = tools
        self._unlisted = unlisted
        self._checks.clear()

    def is_for_caller(self, call: ToolCall) -> bool:
        """Return True if the run's caller executes this call."""
        tool = self._tools.get(call.name)
        return tool is not None and tool.elsewhere

    @property
    def running(self) -> bool:
        """True if calls of this round have no result yet."""
        return bool(self._running)

    def begin(self, calls: Sequence[ToolCall], *, heard: bool) -> list[Effect]:
        """Begin a round: return an effect per accepted call, and events of the refusals if `heard`."""
        self._calls = calls
        self._results = {}
        self._ending = {}
        effects: list[Effect] = []
        looked_at: set[tuple[str, str]] = set()
        for number, call in enumerate(calls):
            decided = self._decided(number, call, looked_at)
            if isinstance(decided, CallTool):
                effects.append(decided)
            else:
                self._refuse(number, decided, effects if heard else [])
        return effects

    def on(self, message: messages.ToolDone | messages.WorkFailed) -> None:
        """Record the end of a call."""
        number = self._running.pop(message.key)
        if isinstance(message, messages.ToolDone):
            self._results[number] = (message.content, False)
            return
        if not _ENDS_ALL.isdisjoint(message.failure.kinds):
            self._ending[number] = message.failure
        told = result_of_failure(message.failure, self._calls[number].name)
        self._results[number] = (shortened(text_of(told), self._limit), True)

    @property
    def ending(self) -> Failure | None:
        """Failure that ends the conversation, from the first such call of the round."""
        # The first in the order of the calls, not of their ends, so that replay selects the same failure.
        return self._ending[min(self._ending)] if self._ending else None

    def turns(self) -> list[ToolTurn]:
        """Return the results of the round, in the order of its calls."""
        return [
            ToolTurn(call=call.id, name=call.name, content=content, error=failed)
            for number, call in enumerate(self._calls)
            for content, failed in [self._results[number]]
        ]

    def _decided(self, number: int, call: ToolCall, looked_at: set[tuple[str, str]]) -> CallTool | dict[str, Json]:
        if number >= MOST_CALLS:
            return _refused(f"more than {MOST_CALLS} calls at once")
        tool = self._tools.get(call.name) or self._unlisted.get(call.name)
        if tool is None:
            return _refused(unknown(call.name, self._tools, self._unlisted))
        try:
            arguments = self._checks.arguments(tool, call)
        except Misfit as misfit:
            return _refused(str(misfit))
        # Calls that wait for others (`agent__collect`) repeat legitimately, so the guard ignores them.
        if not tool.waits:
            seen = (call.name, text_of(call.arguments))
            if seen not in looked_at:  # identical calls within one turn count once
                looked_at.add(seen)
                alert = self._guard.alert(call)
                if alert is not None:
                    assert isinstance(alert, dict)
                    return alert
        self.played += 1
        self.key += 1
        self._running[self.key] = number
        name, lane = tool.spec.name, ORDERED if tool.ordered else None
        return CallTool(key=self.key, name=name, lane=lane, call=call.id, tool=call.name, arguments=arguments)

    def _refuse(self, number: int, why: dict[str, Json], effects: list[Effect]) -> None:
        call, text = self._calls[number], text_of(why)
        self._results[number] = (shortened(text, self._limit), True)
        name = shortened(call.name, LONGEST_NAME)
        arguments, error = shortened(text_of(call.arguments), EVENT_LIMIT), shortened(text, EVENT_LIMIT)
        tool = self._tools.get(call.name) or self._unlisted.get(call.name)
        origin = "builtin" if tool is None else tool.origin
        effects.append(Emit(ToolStarted(tool=name, arguments=arguments, origin=origin), id=call.id))
        effects.append(Emit(ToolFinished(tool=name, seconds=0.0, error=error, code="refused"), id=call.id))


class CallsDecider:
    """Decider of a single round of tool calls."""

    def __init__(self, rounds: Rounds) -> None:
        self.heard = True
        self._rounds = rounds

    def begin(self, request: messages.CallsBegun) -> list[Effect]:
        """Return an effect per accepted call; if all calls are refused, the end of the round."""
        effects = self._rounds.begin(request.calls, heard=self.heard)
        return effects if self._rounds.running else [*effects, *self._over()]

    def on(self, message: Message) -> list[Effect]:
        if isinstance(message, messages.Interrupted):
            return []
        if not isinstance(message, messages.ToolDone | messages.WorkFailed):
            return [
                Reject(
                    message,
                    "the message was not delivered: this actor only executes tool calls, and no model reads messages",
                )
            ]
        self._rounds.on(message)
        return [] if self._rounds.running else self._over()

    def remembers(self) -> tuple[object, ...]:
        return ()

    def _over(self) -> list[Effect]:
        ending = self._rounds.ending
        return [Finish(self._rounds.turns()) if ending is None else Finish(failure=ending)]


def result_of_failure(failure: Failure, name: str) -> dict[str, Json]:
    """Return the result that the model reads for a failed call of the tool `name`: `{"tool_call_error": reason}`."""
    if "WorkCancelled" in failure.kinds:
        return _refused(f"Tool call '{name}' {failure.text.removeprefix('it ')}")
    if "WorkCrashed" in failure.kinds:
        return _refused(f"Tool call '{name}' crashed: {failure.text}")
    told = _refused(failure.text)
    if "ToolFailed" in failure.kinds:
        for key in ("stderr", "output"):
            if failure.attributes.get(key):
                told[key] = failure.attributes[key].rstrip()
    return told


def _refused(why: str) -> dict[str, Json]:
    return {"tool_call_error": why}
