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
from ....protocol.errors import ConfigError, NobodyToAsk, UsageError
from ....protocol.events.decode import decode
from ....protocol.outcome import Outcome
from ..control.subscription import Lagged
from .asking import ask
from .updates import Updates, chunk

if TYPE_CHECKING:
    from ....supervisors import Actor, Ref
    from ..control.peer import Peer
    from ..control.sessions import HubSessions
    from .surroundings import Surroundings

Json = Any

_REASONS: dict[str, StopReason] = {"max_turns": "max_turn_requests", "budget": "max_tokens", "refused": "refusal"}


class Shows(msgspec.Struct, frozen=True, kw_only=True):
    """What the client can show beside what all can: `forms`, `notices`."""

    forms: bool = False
    notices: bool = False


class Prompting:
    """A prompt that is played.

    Args:
        around: where it is played.
        shows: what the client can show.

    Attributes:
        run: id of its run, once it has begun.
        spent: what the session has cost on this connection, in USD.
    """

    def __init__(self, peer: Peer, session: str, around: Surroundings, shows: Shows, spent: float) -> None:
        self.run: str | None = None
        self.spent = spent
        self._peer = peer
        self._hub = peer.hub
        self._session = session
        self._around = around
        self._shows = shows
        self._cancelled = False
        self._waiting = trio.CancelScope()
        self._asked: dict[str, Ref[Never, None]] = {}

    def cancel(self) -> None:
        """The client has called it off. The prompt is answered all the same, with `cancelled`."""
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
            request = msgspec.structs.replace(self._around.put_into(request), parts=images)
            info = await self._sessions.start(self._peer.caller, self._session, request)
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
        updates = Updates(self._window, cwd=self._around.cwd, notices=self._shows.notices, spent=self.spent)
        asking = self._peer.me.spawn(self._questions, run, name="questions", link=False)
        try:
            await self._tell(run, updates)
        finally:
            self.spent = updates.cost
            asking.cancel()  # and what it asks at the moment
        outcome = await self._hub.wait(self._peer.caller, run)
        if outcome.output and not updates.said:
            await self._update(chunk("agent_message_chunk", outcome.output))
        await self._sessions.kept(run)
        return outcome

    async def _tell(self, run: str, updates: Updates) -> None:
        after = 0
        while True:
            try:
                with self._hub.subscribe(self._peer.caller, run, after) as events:
                    async for event in events:
                        if (told := decode(event.data)) is not None:
                            for update in updates.of(told):
                                await self._update(update)
                        after = event.seq
                return
            except Lagged as lagged:
                after = lagged.after

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
            answer = await ask(self._peer, self._session, question, forms=self._shows.forms)
        except NobodyToAsk as nobody:
            await self._update(chunk("agent_message_chunk", f"\n\n{nobody}\n"))
        self._asked.pop(id, None)
        if answer is None:
            self.cancel()
        else:
            self._hub.answer(self._peer.caller, id, answer)

    @property
    def _sessions(self) -> HubSessions:
        sessions: HubSessions | None = self._hub.sessions  # type: ignore[assignment]  # the hub's own
        if sessions is None:
            raise UsageError("there are no sessions here")
        return sessions

    def _window(self, model: str) -> int | None:
        try:
            return self._hub.root.gateway.window(model)
        except ConfigError:
            return None

    async def _update(self, update: dict[str, Json]) -> None:
        await self._peer.notify("session/update", {"sessionId": self._session, "update": update})

    def _reason(self, outcome: Outcome) -> StopReason:
        if outcome.status == "cancelled" or self._cancelled:
            return "cancelled"
        if outcome.error is None:
            return "end_turn"
        reason = _REASONS.get(outcome.error.code)
        if reason is None:
            raise Refused(outcome.error.message, number=RUN_FAILED, data={"code": outcome.error.code})
        return reason
