"""External effects of a replayed run: their results are reconstructed from the messages in the rows."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
import trio

from .....protocol.chat import ChatReply, ChatRequest
from .....protocol.decoding import convert
from .....protocol.errors import CallboardError, NobodyToAsk, NodeFailed, TimedOut
from .....protocol.journal import AnyRow, Asked, MessageRow, Noted, decode_value
from .....protocol.knowledge import Hit, Retrieved
from .....protocol.messages import NodeDone, Replied, ResultsStored, Summarized, ToolDone, WorkDone, WorkFailed
from .....protocol.workflow_messages import CALL, CODE, NODE, NodeCodeDone
from .....supervisors.escalation import HOLD, Verdict
from ....work.journal.actor_journal import scope_of
from ....work.journal.run_journal import HOOK, REPLY, SERVER_TOOLS
from ....work.playback import PLAYED, PREVIEW, Asking, Beginning, OutsideEffect, Preview, RecordedReply
from ....work.tools.tool import VisibleResult
from .journal_index import failure_of

if TYPE_CHECKING:
    from .....protocol.kernel.questions import Answer, Question
    from .....protocol.settings import Settings
    from .....supervisors import Actor
    from .journal_index import JournalIndex
    from .sequencer import Sequencer

T = TypeVar("T")

_UNSAID = "the rows do not have its result"


class RowEffects:
    """Playback from the rows of a durable run.

    Args:
        index: the rows.
        sequencer: the order of the rows.
    """

    asks_the_world = False
    broken: CallboardError | None = None
    unused = ""

    def __init__(self, index: JournalIndex, sequencer: Sequencer) -> None:
        self.model = _first_model(index)
        self._index = index
        self._sequencer = sequencer

    def begins(self, actor: Actor, beginning: Beginning) -> None:
        del beginning
        self._sequencer.top = actor

    def policy(self, question: Question) -> Verdict:
        """Hold the question until the row with its answer is next."""
        del question
        return HOLD

    def answered(self, actor: Actor, question: Question, answer: Answer) -> None:
        """Forget the question, which is no longer open."""
        del actor, answer
        self._sequencer.open.pop(question.id, None)

    def unanswered(self, actor: Actor, question: Question, reason: str) -> None:
        """Forget the question, which is no longer open."""
        del actor, reason
        self._sequencer.open.pop(question.id, None)

    async def over(self, status: str, settings: Settings) -> None:
        """Do nothing: a replay writes no file."""

    async def chat(
        self, me: Actor, request: ChatRequest, asking: Asking, live: Callable[[], Awaitable[ChatReply]]
    ) -> ChatReply:
        """Return the recorded reply or summary, or raise the recorded failure."""
        del live
        path = _path(me)
        place = self._reply_of(path)
        end = self._end_of(path) if place is None else None
        row = None if place is None else self._index.row(place)
        reply = None if row is None else _reply(row)
        model = reply.model if reply is not None and reply.model else request.model or self.model
        played = RecordedReply(me, f"llm-{0 if place is None else place + 1}", model, request, asking)
        # The event of the request precedes the wait, as in the original run.
        played.asked()
        await self._sequencer.take(place if place is not None else end)
        if reply is not None:
            return played.answered(reply)
        message = None if row is None else row.message if isinstance(row, MessageRow) else None
        if row is None and end is not None:
            ended = self._index.row(end)
            message = ended.message if isinstance(ended, MessageRow) else None
        raise played.failed(_error(message))

    async def done(self, me: Actor, effect: OutsideEffect, kind: type[T], live: Callable[[], Awaitable[T]]) -> T:
        """Return the recorded result of an effect; an empty one if the rows have none."""
        del live
        value: Any
        match effect.kind:
            case "tool":
                value = await self._result(me)
            case "script":
                value = await self._completed(me, effect.name)
            case "retrieval":
                value = await self._retrieved(me)
            case "files":
                value = await self._files(me)
            case "code":
                value = await self._recorded_result(me, CODE.format(effect.name), kind)
            case "node":
                value = await self._recorded_result(me, NODE.format(effect.name), kind)
            case "condition" | "processor":
                value = await self._recorded_result(me, CALL, kind)
            case "memory":
                value = await self._found(me, effect.name)
            case "hook":
                value = await self._hook(me, effect.name, kind)
            case "server tools" | "server tools now":
                value = self._tools(me, effect)
            case _:  # The prompt built from these files is in the rows.
                value = "" if kind is str else None
        return cast("T", convert(value, kind) if effect.kind.startswith("server") else value)

    async def in_turn(self, me: Actor) -> None:
        """Wait until the end of this work is next. If it was not stored, wait for the end of the rows."""
        place = self._end_of(_path(me))
        if place is not None:
            await self._sequencer.take(place)
        elif not self._index.is_over:
            await trio.sleep_forever()

    def value(self, me: Actor | None, name: str, kind: type[T], find: Callable[[], T]) -> T:
        """Compute the value: its use is in messages, which come from the rows. Only previews and start times are
        recorded.
        """
        if me is not None and name == PREVIEW:
            return cast("T", self._preview(_path(me)))
        place = None if me is None or name != PLAYED else self._index.result_of(_path(me))
        if place is None:
            return find()
        row: Any = self._index.row(place)
        # The row has the time of the end; the work began earlier by its duration.
        return convert(row.at / 1000 - row.message.seconds, kind)

    def window(self, model: str, find: Callable[[], int | None]) -> int | None:
        """Return None: histories that were shortened are in the rows."""
        del model, find
        return None

    def _preview(self, path: str) -> Preview:
        """Return the recorded diff, or the failure of a call that was not shown to the user."""
        place = self._index.result_of(path)
        asked = self._index.asked(path, place)
        if asked:
            return Preview(diff=asked[0].question.diff)
        row: Any = None if place is None else self._index.row(place)
        failure = None if row is None else failure_of(row.message)
        return Preview(trouble="" if failure is None else failure.text)

    # --- lookup -------------------------------------------------------------------------------------------

    def _reply_of(self, path: str) -> int | None:
        """Mark as given and return the next reply at this path: a message to a conversation, or a reply noted by a
        node.
        """
        found = []
        # Work may have several deciders, one after another. The paths of the later ones end with `:2`, `:3`, and so on.
        for decider in (path, *(f"{path}:{number}" for number in range(2, 100))):
            if decider not in self._sequencer.actors and decider != path:
                break
            place = self._index.free(decider, _is_reply)
            if place is not None:
                found.append(place)
        if not found:
            return None
        place = min(found)
        self._index.take(place)
        return place

    def _end_of(self, path: str) -> int | None:
        """Mark as given and return the row with the end of this path's work."""
        place = self._index.result_of(path)
        if place is not None:
            self._index.take(place)
        return place

    async def _ended(self, me: Actor) -> WorkDone | None:
        path = _path(me)
        place = self._end_of(path)
        await self._ask_again(me, path, place)
        await self._sequencer.take(place)
        row = None if place is None else self._index.row(place)
        return row.message if isinstance(row, MessageRow) and isinstance(row.message, WorkDone) else None

    async def _ask_again(self, me: Actor, path: str, place: int | None) -> None:
        """Ask the questions that this path's effect asked before its end, so that their events appear again."""
        for row in self._index.asked(path, place):
            # The original effect has handled such a failure, and its result is in the row.
            with contextlib.suppress(NobodyToAsk, TimedOut):
                await me.ask_person(row.question)

    # --- results ------------------------------------------------------------------------------------------

    async def _result(self, me: Actor) -> Any:
        message = await self._ended(me)
        if not isinstance(message, ToolDone):
            raise _error(message)
        content = message.content
        # Images and files: the row has the parts that the model saw.
        if not isinstance(content, str):
            return VisibleResult(content)
        return _admitted(content)

    async def _completed(self, me: Actor, script: str) -> Any:
        from .....supervisors.process import Completed

        message = await self._ended(me)
        if not isinstance(message, NodeDone) or message.failure is None:
            written = dict(message.writes) if isinstance(message, NodeDone) else {}
            targets = message.targets if isinstance(message, NodeDone) else None
            # The row has the targets that were chosen; a script chooses by `_next` in its output.
            if targets is not None and len(targets) == 1:
                written["_next"] = targets[0]
            out = msgspec.json.encode(written)
            return Completed(status=0, signal=None, stderr_tail="", stdout=out, truncated=False)
        text = message.failure.text
        # The row has only the text of the failure: take the exit status and stderr out of it.
        how = re.match(rf"Script '{re.escape(script)}' failed with (exit code|signal) (-?\d+)(?::\n)?", text)
        if how is None:
            raise message.failure.restore()
        number = int(how[2])
        signal = number if how[1] == "signal" else None
        status = number if signal is None else -number
        return Completed(status=status, signal=signal, stderr_tail=text[how.end() :], stdout=b"", truncated=False)

    async def _retrieved(self, me: Actor) -> Any:
        message = await self._ended(me)
        if isinstance(message, NodeDone) and message.failure is not None:
            raise message.failure.restore()
        output = message.output if isinstance(message, NodeDone) else None
        if not isinstance(output, dict):
            return Retrieved()
        chunks = tuple(convert(each, Hit) for each in output.get("chunks", ()))
        return Retrieved(context=output.get("context", ""), sources=tuple(output.get("sources", ())), chunks=chunks)

    async def _recorded_result(self, me: Actor, begins: str, kind: type[Any]) -> Any:
        """Return the recorded result of a workflow's code: a note whose name begins so, or the end of its node."""
        path = _path(me)
        place = self._index.give(path, lambda row: isinstance(row, Noted) and row.name.startswith(begins))
        if place is not None:
            self._index.advance_within(path, place)
            if begins == CALL:  # Functions of edges ask questions on behalf of the whole workflow.
                self._index.advance_to_questions_above(path, place)
            await self._sequencer.take(place)
            noted = self._index.row(place)
            assert isinstance(noted, Noted)
            return decode_value(noted.value, kind)
        message: Any = await self._ended(me)
        failure = failure_of(message)
        if failure is not None:
            raise failure.restore()
        said = NodeCodeDone(0, outputs=message.outputs, trace=message.trace, unaccepted=message.unaccepted)
        return said.outputs[0].text if kind is str else said

    async def _found(self, me: Actor, name: str) -> list[str]:
        """Return the recorded result of a memory. If it could not be read, raise the recorded failure."""
        path = _path(me)
        place = self._index.give(path, lambda row: isinstance(row, Noted) and row.name == name)
        if place is None:
            if self._index.free(path, lambda row: isinstance(row, Noted | MessageRow | Asked)) is None:
                failure = failure_of(await self._ended(me))
                if failure is not None:
                    raise failure.restore()
            raise NodeFailed(_UNSAID)
        await self._sequencer.take(place)
        noted = self._index.row(place)
        assert isinstance(noted, Noted)
        return decode_value(noted.value, list[str])

    async def _hook(self, me: Actor, event: str, kind: type[Any]) -> Any:
        """Return the recorded result of hooks. For tool calls, it is contained in the calls' results."""
        name = HOOK.format(event)
        place = self._index.give(_path(me), lambda row: isinstance(row, Noted) and row.name == name)
        if place is None:
            return kind()
        await self._sequencer.take(place)
        noted = self._index.row(place)
        assert isinstance(noted, Noted)
        return decode_value(noted.value, kind)

    async def _files(self, me: Actor) -> Any:
        place = self._index.give(
            _path(me), lambda row: isinstance(row, MessageRow) and isinstance(row.message, ResultsStored)
        )
        await self._sequencer.take(place)
        row = None if place is None else self._index.row(place)
        message = row.message if isinstance(row, MessageRow) else None
        return list(message.files) if isinstance(message, ResultsStored) else []

    def _tools(self, me: Actor, effect: OutsideEffect) -> Any:
        name = f"{SERVER_TOOLS}{effect.name}"
        noted = [row for path, row in self._index.rows if not path and isinstance(row, Noted) and row.name == name]
        if effect.kind == "server tools":
            if not noted:
                place = self._index.result_of(_path(me))
                row = None if place is None else self._index.row(place)
                failure = failure_of(row.message) if isinstance(row, MessageRow) else None
                if failure is not None:  # The list was unavailable, and that is the failure of its node.
                    raise failure.restore()
                raise CallboardError(f"the rows do not have the tool list of MCP server '{effect.name}'")
            return decode_value(noted[-1].value, list[Any])
        return {"tools": decode_value(noted[-1].value, list[Any]) if noted else None}


def _path(me: Actor) -> str:
    scope = scope_of(me)
    return "" if scope is None else scope.path


def _is_reply(row: AnyRow) -> bool:
    if isinstance(row, Noted):
        return row.name == REPLY
    return isinstance(row, MessageRow) and isinstance(row.message, Replied | Summarized | WorkFailed)


def _reply(row: AnyRow) -> ChatReply | None:
    if isinstance(row, Noted):
        return decode_value(row.value, ChatReply)
    message = row.message if isinstance(row, MessageRow) else None
    if isinstance(message, Replied):
        return message.reply
    return ChatReply(text=message.summary) if isinstance(message, Summarized) else None


def _error(message: Any) -> CallboardError:
    failure = failure_of(message)
    return NodeFailed(_UNSAID) if failure is None else failure.restore()


def _admitted(text: str) -> Any:
    """Return an error result as its tool returned it, a dictionary, so that events report a failure; else the text."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
    failed = isinstance(value, dict) and (value.get("status") == "error" or value.get("isError") is True)
    return value if failed else text


def _first_model(index: JournalIndex) -> str:
    replies = (_reply(row) for _, row in index.rows if _is_reply(row))
    return next((reply.model for reply in replies if reply is not None and reply.model), "")
