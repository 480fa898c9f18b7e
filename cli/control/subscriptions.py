"""Subscriptions as async iterators that survive lost connections and slow readers.

After the end of a feed they subscribe again: a run's events from the last delivered one, the actor tree and the open
questions from a fresh snapshot. So nothing is missed or repeated.
"""

from __future__ import annotations

from collections import deque
from typing import Literal, NamedTuple

import msgspec

from ...protocol.control import own
from ...protocol.control.things import ActorInfo
from ...protocol.decoding import decode_json, json_decoder
from ...protocol.kernel.questions import Question
from .client import ControlClient
from .connection import FeedCut, NotificationFeed


class _Place(msgspec.Struct):
    seq: int


class _Questions(msgspec.Struct):
    questions: list[Question]


class _Asked(msgspec.Struct):
    question: Question


_EVENT = json_decoder(own.RunEvent)
_PLACE = json_decoder(_Place)
_CHANGED = json_decoder(own.ActorsChanged)


class _Subscription:
    """Common state of subscriptions: the current feed; None before the first and between two feeds."""

    def __init__(self, client: ControlClient, run: str | None) -> None:
        self._client = client
        self._run = run
        self._feed: NotificationFeed | None = None

    async def _heard(self) -> tuple[str, msgspec.Raw]:
        """Return the next notification; one with an empty method if the feed has ended."""
        assert self._feed is not None
        try:
            return await self._feed.get()
        except FeedCut:
            self._feed = None
            return "", msgspec.Raw()


class RunEvents(_Subscription):
    """Events of a run after a number, in order and each once, until the run's last: `async for event in ...`.

    Attributes:
        seq: number of the last delivered event.
        newest: highest event number when the subscription began; events up to it are replayed.
        missing: number of events that the server did not store, which are lost.
        status: final status of the run; "" before.
    """

    def __init__(self, client: ControlClient, run: str, *, after: int = 0) -> None:
        super().__init__(client, run)
        self.seq = after
        self.newest = 0
        self.missing = 0
        self.status = ""

    async def begin(self) -> None:
        """Subscribe. Idempotent.

        Raises:
            CallboardError: there is no such run, or the client may not see it.
        """
        if self._feed is None:
            begun, self._feed = await self._client.subscribe(
                "_run/subscribe", own.Subscribed, run=self._run, after=self.seq
            )
            self.newest = max(self.newest, begun.seq)

    def __aiter__(self) -> RunEvents:
        return self

    async def __anext__(self) -> bytes:
        """Return the next event in wire form."""
        while not self.status:
            await self.begin()
            method, params = await self._heard()
            if method == "_run/event":
                event = _EVENT.decode(params).event
                seq = _PLACE.decode(event).seq
                if seq > self.seq:
                    self.seq = seq
                    return bytes(event)
            elif method == "_run/lagged":
                # The server has dropped this slow reader: subscribe again after the last delivered event.
                self._feed = None
            elif method == "_run/lost":
                lost = decode_json(params, own.RunLost)
                # The range may begin with events that were delivered: count only the others.
                self.missing += max(lost.last - max(lost.first - 1, self.seq), 0)
                self.seq = max(self.seq, lost.last)
            elif method == "_run/ended":
                self.status = decode_json(params, own.RunEnded).status
        raise StopAsyncIteration


class TreeWatch(_Subscription):
    """Actors of a server or of one run: each `await watch.change()` updates `actors`.

    Attributes:
        actors: actors by path.
        memory: bytes of memory of the server's process.
    """

    def __init__(self, client: ControlClient, run: str | None, *, interval: float) -> None:
        super().__init__(client, run)
        self.actors: dict[str, ActorInfo] = {}
        self.memory = 0
        self._interval = interval

    async def change(self) -> None:
        """Wait for the next change; the first is the whole tree."""
        while True:
            if self._feed is None:
                tree, self._feed = await self._client.subscribe(
                    "_actor/subscribe", own.WatchingTree, run=self._run, interval=self._interval
                )
                self.actors = {actor.path: actor for actor in tree.actors}
                self.memory = tree.memory
                return
            method, params = await self._heard()
            if method == "_actor/changed":
                change = _CHANGED.decode(params)
                for path in change.gone:
                    self.actors.pop(path, None)
                self.actors.update((actor.path, actor) for actor in change.changed)
                self.memory = change.memory
                return


class QuestionChange(NamedTuple):
    """New question, or end of one; `by` is the client that answered it."""

    what: Literal["asked", "closed"]
    question: Question
    by: str = ""


class QuestionWatch(_Subscription):
    """Open questions of a run, or of all: first the open ones, then every change: `async for change in ...`.

    Attributes:
        open: open questions by id, as far as they were delivered.
    """

    def __init__(self, client: ControlClient, run: str | None = None) -> None:
        super().__init__(client, run)
        self.open: dict[str, Question] = {}
        self._untold: deque[QuestionChange] = deque()

    def __aiter__(self) -> QuestionWatch:
        return self

    async def __anext__(self) -> QuestionChange:
        while not self._untold:
            if self._feed is None:
                await self._begin()
                continue
            method, params = await self._heard()
            if method == "_question/asked":
                self._asked(decode_json(params, _Asked).question)
            elif method == "_question/closed":
                closed = decode_json(params, own.Closed)
                self._closed(closed.question, closed.by)
            elif method == "_question/lagged":
                self._feed = None
        return self._untold.popleft()

    async def _begin(self) -> None:
        """Subscribe, then list: the list contains all changes that happened while there was no connection."""
        _, self._feed = await self._client.subscribe("_question/subscribe", own.Watching)
        now = await open_questions(self._client, self._run)
        for id in self.open.keys() - {question.id for question in now}:
            self._closed(id, "")
        for question in now:
            self._asked(question)

    def _asked(self, question: Question) -> None:
        if question.id not in self.open and self._run in (None, question.run):
            self.open[question.id] = question
            self._untold.append(QuestionChange("asked", question))

    def _closed(self, id: str, by: str) -> None:
        if (question := self.open.pop(id, None)) is not None:
            self._untold.append(QuestionChange("closed", question, by))


async def open_questions(client: ControlClient, run: str | None = None) -> list[Question]:
    """Return the open questions of a run, or of all runs, oldest first."""
    return (await client.ask("_question/list", _Questions, run=run)).questions
