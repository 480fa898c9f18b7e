"""Open questions and their watchers: the front end of the root's question registry (`supervisors.escalation`).

Questions of dormant runs are held: their actors have ended, but clients must still see them as open. A question leaves
the held set when its run asks it again, or when `release` closes it.
"""

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
    """Error for a reader that was too slow, which ends its feed. A new feed begins with the questions open by then."""

    code = "lagged"


@final
class QuestionFeed:
    """Asynchronous iterator over question changes; a reader more than `bound` changes behind gets `FeedLagged`.

    Args:
        first: initial changes, not counted by `bound`, so that a reader can always subscribe again.
    """

    def __init__(self, bound: int, first: Iterable[Change] = ()) -> None:
        self._items: deque[Change] = deque(first)
        self._bound = bound + len(self._items)
        self._cut = False
        self._lot = trio.lowlevel.ParkingLot()

    def put(self, item: Change) -> None:
        """Add a change without waiting; beyond the bound, drop all and end the feed."""
        if len(self._items) >= self._bound:
            # The reader cannot catch up without a gap, so its queued changes are useless: free them now.
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
    """Open questions of all runs.

    Attributes:
        open: open questions by id, oldest first, including the questions of dormant runs.
        held: ids of dormant runs' questions. These stay open, whatever the registry reports, until their run asks
            them again.
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
        """Yield a feed of the open questions of interest, then each change."""
        asked = [_asked(question) for question in self.open.values() if concerns(question)]
        feed = QuestionFeed(self._bound, asked)
        self._feeds[feed] = concerns
        try:
            yield feed
        finally:
            del self._feeds[feed]

    def asked(self, question: Question) -> None:
        """Add a question that the registry shows; a held one is not announced again."""
        # The run of a held question has woken and asks again with the same id.
        known, self.open[question.id] = question.id in self.held, question
        if known:
            self._lets_go(question.id)
        if self._feeds and not known:
            self._notify(question, _asked(question))

    def closed(self, question_id: str, by: str) -> None:
        """Remove a question that the registry closes, unless it is held."""
        question = None if question_id in self.held else self.open.pop(question_id, None)
        if question is not None:
            self._notify(question, QuestionClosed(question_id, by))

    def hold(self, questions: Iterable[Question]) -> None:
        """Hold the questions of a run that is dormant or becoming so."""
        for question in questions:
            self.held.add(question.id)
            if question.id not in self.open:
                self.open[question.id] = question
                self._notify(question, _asked(question))

    def release(self, questions: Iterable[str], by: str) -> None:
        """Close the given questions if they are still held."""
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

    def _notify(self, question: Question, change: Change) -> None:
        for feed, concerns in self._feeds.items():
            if concerns(question):
                feed.put(change)


def _asked(question: Question) -> QuestionAsked:
    return QuestionAsked(msgspec.to_builtins(question))
