"""The open questions, and who watches them: a front end of the desk at the root (`supervisors.escalation`)."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, final

import msgspec
import trio

from ....protocol.control.things import QuestionAsked, QuestionClosed
from ....protocol.errors import CallboardError
from ....protocol.kernel.questions import Question

Concerns: TypeAlias = Callable[[Question], bool]
Change: TypeAlias = QuestionAsked | QuestionClosed


class FeedLagged(CallboardError):
    """The reader was too slow, and the feed has ended; a new one begins with what there is then."""

    code = "lagged"


@final
class QuestionFeed:
    """`async for change in feed`; a reader more than `bound` changes behind gets `FeedLagged`.

    Args:
        first: the initial changes, which the bound ignores, so that a subscription can begin anew.
    """

    def __init__(self, bound: int, first: Iterable[Change] = ()) -> None:
        self._items: deque[Change] = deque(first)
        self._bound = bound + len(self._items)
        self._cut = False
        self._lot = trio.lowlevel.ParkingLot()

    def put(self, item: Change) -> None:
        """Never waits."""
        if len(self._items) >= self._bound:
            self._cut = True
            self._items.clear()
        if not self._cut:
            self._items.append(item)
        self._lot.unpark()

    def __aiter__(self) -> QuestionFeed:
        return self

    async def __anext__(self) -> Change:
        while not self._items:
            if self._cut:
                raise FeedLagged("the reader was too slow; subscribe again")
            await self._lot.park()
        return self._items.popleft()


class OpenQuestions:
    """Attributes:
    open: the questions on the desk, by id, oldest first, and those of runs that are dormant.
    held: the ids of the latter: they stay, whatever the desk says, until their run asks them again.
    """

    name = "control"

    def __init__(self, bound: int) -> None:
        self.open: dict[str, Question] = {}
        self.held: set[str] = set()
        self._let_go = trio.lowlevel.ParkingLot()
        self._bound = bound
        self._feeds: dict[QuestionFeed, Concerns] = {}

    @contextlib.contextmanager
    def watch(self, concerns: Concerns) -> Iterator[QuestionFeed]:
        """The open ones that concern the reader, then each as it is asked or closed."""
        asked = [_asked(question) for question in self.open.values() if concerns(question)]
        feed = QuestionFeed(self._bound, asked)
        self._feeds[feed] = concerns
        try:
            yield feed
        finally:
            del self._feeds[feed]

    def asked(self, question: Question) -> None:
        """The desk shows a question."""
        known, self.open[question.id] = question.id in self.held, question
        if known:
            self._lets_go(question.id)
        if self._feeds and not known:
            self._tell(question, _asked(question))

    def closed(self, question_id: str, by: str) -> None:
        """The desk closes one."""
        question = None if question_id in self.held else self.open.pop(question_id, None)
        if question is not None:
            self._tell(question, QuestionClosed(question_id, by))

    def hold(self, questions: Iterable[Question]) -> None:
        """The run of these is dormant, or about to be."""
        for question in questions:
            self.held.add(question.id)
            if question.id not in self.open:
                self.open[question.id] = question
                self._tell(question, _asked(question))

    def release(self, questions: Iterable[str], by: str) -> None:
        """Close those of these that are held still."""
        for id in questions:
            if id in self.held:
                self._lets_go(id)
                self.closed(id, by)

    async def none_held(self, questions: Iterable[str]) -> None:
        """Wait until none of these is held."""
        while not self.held.isdisjoint(questions):
            await self._let_go.park()

    def _lets_go(self, id: str) -> None:
        self.held.discard(id)
        self._let_go.unpark_all()

    def _tell(self, question: Question, change: Change) -> None:
        for feed, concerns in self._feeds.items():
            if concerns(question):
                feed.put(change)


def _asked(question: Question) -> QuestionAsked:
    return QuestionAsked(msgspec.to_builtins(question))
