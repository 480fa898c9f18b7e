"""Runs of a chat: subscriptions to live runs, and replay of past runs in their order.

The backlog of a chat arrives at once, but the events of each run arrive separately. So a past run is displayed when the
one before it has ended. Some runs are read ahead meanwhile (`AHEAD`), and new messages wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from ...protocol.control import chat, method_structs
from ...protocol.errors import CallboardError, ServerLost
from ...protocol.events import decode
from .client import ChatClient
from .display import ChatStory, ScreenOutput

AHEAD = 16
"""Past runs that are read ahead while another is displayed."""

ENDS_WITHIN = 10.0
"""Seconds to wait for the events of a past run; then the next run is displayed below it."""


class Following:
    """Subscriptions and replay.

    Args:
        begin: starts a coroutine as a background task.
        show: displays a chat message: a prompt with its run, or the output of a command.
    """

    def __init__(
        self,
        client: ChatClient,
        seen: ScreenOutput,
        begin: Callable[[Coroutine[Any, Any, object]], None],
        show: Callable[[chat.Told], None],
    ) -> None:
        self._client = client
        self._seen = seen
        self._begin = begin
        self._show = show
        self._subscriptions: dict[str, str] = {}
        self._ahead: dict[str, ChatStory] = {}
        self._waiting: deque[chat.Told] = deque()
        self._replaying = self._lost = False
        self._awaited: tuple[str, asyncio.Event] | None = None

    # --- runs -----------------------------------------------------------------------------------------------

    def begin(self, run: str) -> None:
        """Display a run from now on; subscribe to its events unless they were read ahead."""
        story = self._ahead.pop(run, None)
        self._seen.begin(run, story)
        if story is None:
            self._begin(self._follow(run))
        elif story.over:
            self._seen.ended.append(run)

    def lose(self) -> None:
        """Stop the replay of a lost connection; the next replay first completes the runs on the screen."""
        self.stop()
        self._lost = True

    async def leave(self) -> None:
        """Unsubscribe from all runs."""
        self.stop()
        self._seen.leave()
        subscriptions, self._subscriptions = list(self._subscriptions.values()), {}
        for each in subscriptions:
            await self._client.ask("_run/unsubscribe", method_structs.Unsubscribed, subscription=each)

    def event(self, told: method_structs.RunEvent) -> None:
        """Add an event to the display of its run. Skip events of other runs, and those displayed already."""
        story = self._story(told.run)
        event = decode(bytes(told.event)) if story is not None else None
        if story is not None and event is not None and event.seq > story.seq:
            story.seq = event.seq
            story.see(event)

    def ended(self, told: method_structs.RunEnded) -> None:
        """Mark a run as ended: the server sends no more events of it."""
        self._over(told.run)

    def lagged(self, told: method_structs.RunLagged) -> None:
        """Subscribe again after the server has dropped events, because this client read too slowly."""
        if self._story(told.run) is not None:
            self._begin(self._follow(told.run, told.after))

    def _story(self, run: str) -> ChatStory | None:
        return self._seen.stories.get(run) or self._ahead.get(run)

    async def _follow(self, run: str, after: int | None = None) -> None:
        try:
            followed = await self._client.ask("_run/subscribe", method_structs.Subscribed, run=run, after=after)
        except ServerLost:
            return  # the next connection subscribes again
        except CallboardError as error:
            self._seen.print(str(error), "error")
            self._over(run)
        else:
            if (story := self._story(run)) is not None and not story.over:
                self._subscriptions[run] = followed.subscription

    def _over(self, run: str) -> None:
        self._subscriptions.pop(run, None)
        if (story := self._story(run)) is not None:
            story.over = True
        if run in self._seen.stories:
            self._seen.ended.append(run)
        if self._awaited is not None and self._awaited[0] == run:
            self._awaited[1].set()

    # --- the past -------------------------------------------------------------------------------------------

    def waits(self, told: chat.Told) -> bool:
        """Queue a message if earlier ones are not displayed yet; return True if it was queued."""
        if self._replaying:
            self._waiting.append(told)
        return self._replaying

    async def replay(self, told: Iterable[chat.Told], live: str | None) -> None:
        """Display the backlog.

        Args:
            live: run that is still active.
        """
        self.stop()
        self._waiting = waiting = deque(told)
        self._replaying = True
        try:
            if self._lost:
                await self._show_rest(live)
            while waiting and waiting is self._waiting:
                self._read_ahead(live)
                each = waiting.popleft()
                self._replaying = False
                self._show(each)
                self._replaying = True
                if each.began is not None and each.began.run != live:
                    await self._end_of(each.began.run)
        finally:
            if waiting is self._waiting:
                self._replaying = False

    async def _show_rest(self, live: str | None) -> None:
        self._lost = False
        left = [(run, story) for run, story in self._seen.stories.items() if not story.over]
        for run, story in left:
            self._begin(self._follow(run, story.seq))
        for run, _ in left:
            if run != live:
                await self._end_of(run)

    def stop(self) -> None:
        """Abort the replay: the connection is lost, or the user has switched to another chat."""
        self._waiting, self._ahead, self._replaying = deque(), {}, False
        if self._awaited is not None:
            self._awaited[1].set()

    def _read_ahead(self, live: str | None) -> None:
        for each in list(self._waiting)[:AHEAD]:
            run = None if each.began is None else each.began.run
            if run is not None and run != live and self._story(run) is None:
                self._ahead[run] = self._seen.story()
                self._begin(self._follow(run))

    async def _end_of(self, run: str) -> None:
        story = self._story(run)
        if story is None or story.over:
            return
        over = asyncio.Event()
        self._awaited = run, over
        with suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), ENDS_WITHIN)
        if self._awaited == (run, over):
            self._awaited = None
