"""Plays one prompt as a run of the hub, and sends its events and questions to the client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never

import msgspec
import trio

from ....protocol.chat import ImagePart
from ....protocol.control.acp import StopReason
from ....protocol.control.errors import RUN_FAILED, Refused
from ....protocol.control.own import StartRun
from ....protocol.control.things import QuestionAsked
from ....protocol.errors import ConfigError, NobodyToAsk
from ....protocol.events.decode import decode
from ....protocol.outcome import Outcome
from ..control.logs.reading import LoggedEvent
from .questions import ask
from .updates import Updates, chunk

if TYPE_CHECKING:
    from ....supervisors import Actor, Ref
    from ..control.peer import Peer
    from .session import AcpSession

Json = Any

_REASONS: dict[str, StopReason] = {"max_turns": "max_turn_requests", "budget": "max_tokens", "refused": "refusal"}


class Shows(msgspec.Struct, frozen=True, kw_only=True):
    """What the client can show beside what all can: `forms`, `notices`."""

    forms: bool = False
    notices: bool = False


class Prompting:
    """A prompt that is played.

    Args:
        id: of the session.
        shows: what the client can show.

    Attributes:
        run: id of its run, once it has begun.
    """

    def __init__(self, peer: Peer, id: str, session: AcpSession, shows: Shows) -> None:
        self.run: str | None = None
        self._peer = peer
        self._hub = peer.hub
        self._id = id
        self._session = session
        self._shows = shows
        self._cancelled = False
        self._waiting = trio.CancelScope()
        self._asked: dict[str, Ref[Never, None]] = {}

    def cancel(self) -> None:
        """The client cancels it. The prompt is answered all the same, with `cancelled`."""
        self._cancelled = True
        if self.run is None:
            self._waiting.cancel()
        else:
            self._hub.cancel(self._peer.caller, self.run)

    async def play(self, wanted: StartRun, images: tuple[ImagePart, ...] = ()) -> StopReason:
        """Why it stopped.

        Args:
            images: what is shown beside the words.

        Raises:
            Refused: the run failed.
            CallboardError: it could not start.
        """
        with self._waiting:
            request = await self._hub.request(self._peer.caller, wanted)
            request = msgspec.structs.replace(self._session.workspace.applied_to(request), parts=images)
            info = await self._hub.sessions.start(self._peer.caller, self._id, request)
            self.run = info.run
        if self.run is None:
            return "cancelled"
        if self._cancelled:  # in the very moment in which it began
            self.cancel()
        try:
            outcome = await self._follow(self.run)
        except BaseException:
            self._hub.cancel(self._peer.caller, self.run)  # the reader is gone
            raise
        return self._reason(outcome)

    async def _follow(self, run: str) -> Outcome:
        session = self._session
        updates = Updates(self._window, cwd=session.workspace.cwd, notices=self._shows.notices, spent=session.spent)
        asking = self._peer.me.spawn(self._questions, run, name="questions", link=False)
        try:
            await self._tell(run, updates)
        finally:
            session.spent = updates.cost
            asking.cancel()  # and what it asks at the moment
        outcome = await self._hub.wait(self._peer.caller, run)
        if outcome.output and not updates.said:
            await self._update(chunk("agent_message_chunk", outcome.output))
        await self._hub.sessions.kept(run)
        return outcome

    async def _tell(self, run: str, updates: Updates) -> None:
        async def take(event: LoggedEvent) -> None:
            if (told := decode(event.data)) is not None:
                for update in updates.of(told):
                    await self._update(update)

        await self._hub.follow(self._peer.caller, run, take)

    async def _questions(self, me: Actor, run: str) -> None:
        """Body of the actor whose children put questions to the client."""
        with self._hub.watch_questions(self._peer.caller) as feed:
            async for each in feed:
                if isinstance(each, QuestionAsked):
                    if each.question.get("run") == run:
                        id = str(each.question["id"])
                        self._asked[id] = me.spawn(self._ask, id, each.question, name="question", link=False)
                elif each.question in self._asked:
                    self._asked.pop(each.question).cancel()

    async def _ask(self, _: Actor, id: str, question: dict[str, Json]) -> None:
        """Body of a question's actor; another front end's answer cancels it."""
        answer: str | list[str] | None = None
        try:
            answer = await ask(self._peer, self._id, question, forms=self._shows.forms)
        except NobodyToAsk as nobody:
            await self._update(chunk("agent_message_chunk", f"\n\n{nobody}\n"))
        self._asked.pop(id, None)
        if answer is None:
            self.cancel()
        else:
            self._hub.answer(self._peer.caller, id, answer)

    def _window(self, model: str) -> int | None:
        try:
            return self._hub.root.gateway.window(model)
        except ConfigError:
            return None

    async def _update(self, update: dict[str, Json]) -> None:
        await self._peer.notify("session/update", {"sessionId": self._id, "update": update})

    def _reason(self, outcome: Outcome) -> StopReason:
        if outcome.status == "cancelled" or self._cancelled:
            return "cancelled"
        if outcome.error is None:
            return "end_turn"
        reason = _REASONS.get(outcome.error.code)
        if reason is None:
            raise Refused(outcome.error.message, number=RUN_FAILED, data={"code": outcome.error.code})
        return reason
