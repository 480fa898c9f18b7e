"""What can be subscribed to, as async iterators that survive a lost connection and a reader who was too slow.

Whatever ends a feed, they subscribe anew: a run's events from the last one that was delivered, the tree and the open
questions from a fresh picture, so that nothing is missed or comes twice.
"""

from __future__ import annotations

from collections import deque
from typing import Literal, NamedTuple

import msgspec

from ...protocol.control import own
from ...protocol.control.things import ActorInfo
from ...protocol.decoding import decode_json, json_decoder
from ...protocol.kernel.questions import Question
from .client import Client
from .connection import Feed, FeedCut


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
    """What the subscriptions share: the feed of the moment; None before it was begun, and when it has to be anew."""

    def __init__(self, client: Client, run: str | None) -> None:
        self._client = client
        self._run = run
        self._feed: Feed | None = None

    async def _heard(self) -> tuple[str, msgspec.Raw]:
        """The next notification; one without a name if the feed has ended."""
        assert self._feed is not None
        try:
            return await self._feed.get()
        except FeedCut:
            self._feed = None
            return "", msgspec.Raw()


class RunEvents(_Subscription):
    """The events of a run after a number, in order, each once, until the run's last: `async for event in ...`.

    Attributes:
        seq: number of the last event that was delivered.
        newest: number of the newest there was when the subscription began: what comes up to it is replayed.
        missing: how many the server could not keep, which are lost.
        status: how the run ended; "" before.
    """

    def __init__(self, client: Client, run: str, *, after: int = 0) -> None:
        super().__init__(client, run)
        self.seq = after
        self.newest = 0
        self.missing = 0
        self.status = ""

    async def begin(self) -> None:
        """Subscribe, unless that is done.

        Raises:
            CallboardError: there is no such run, or it is not ours to see.
        """
        if self._feed is None:
            begun, self._feed = await self._client.subscribe(
                "_run/subscribe", own.Subscribed, run=self._run, after=self.seq
            )
            self.newest = max(self.newest, begun.seq)

    def __aiter__(self) -> RunEvents:
        return self

    async def __anext__(self) -> bytes:
        """The next event in its wire form."""
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
                self._feed = None
            elif method == "_run/lost":
                lost = decode_json(params, own.RunLost)
                self.missing += max(lost.last - max(lost.first - 1, self.seq), 0)
                self.seq = max(self.seq, lost.last)
            elif method == "_run/ended":
                self.status = decode_json(params, own.RunEnded).status
        raise StopAsyncIteration


class TreeWatch(_Subscription):
    """The actors of a server, or of one run of it: each `await watch.change()` brings `actors` up to date.

    Attributes:
        actors: by path.
        memory: bytes that the server's process takes.
    """

    def __init__(self, client: Client, run: str | None, *, interval: float) -> None:
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
    """A question was raised, or one of those raised is closed, `by` whom."""

    what: Literal["asked", "closed"]
    question: Question
    by: str = ""


class QuestionWatch(_Subscription):
    """The open questions of a run, or of all: first those that are open, then every change: `async for change in ...`.

    Attributes:
        open: by id, as far as they were told.
    """

    def __init__(self, client: Client, run: str | None = None) -> None:
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
        """Changes while we were not connected show in the list, which comes after the subscription."""
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


async def open_questions(client: Client, run: str | None = None) -> list[Question]:
    """The questions of a run, or of all, that wait for an answer; oldest first."""
    return (await client.ask("_question/list", _Questions, run=run)).questions
