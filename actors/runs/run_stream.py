"""Runs that a program follows while they are under way.

    async with root.stream("researcher", "What is a callboard?") as run:
        async for text in run.text():
            print(text, end="")
        outcome = await run.outcome()

The run goes its own pace, and the program reads its events at another, perhaps in another event loop. A run must never
wait for its reader: it holds connections and places of a limiter. So events wait in a buffer with two bounds. Pieces of
text that follow each other are joined while they wait, so that a slow reader gets fewer and longer ones, and the whole
text. Of other events the older half is left out when `MOST` are waiting. The reader gets a `run.warning` with the code
`events_left_out` in their place, and `dropped` counts them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, final

import msgspec
from outcome import Error, Value
from outcome import Outcome as Result

from ...protocol.errors import UsageError
from ...protocol.events import AgentStarted, Event, LlmDelta, LlmReasoning, RunStarted, Warned
from ...protocol.outcome import Outcome
from ...supervisors.event_loops import Reply, new_reply
from .begin import new_id
from .execution import INTERRUPTED
from .run import RunOptions, Target, callback_of, run_under

if TYPE_CHECKING:
    from ...supervisors.event_loops import Call
    from .root import Root

MOST = 10_000
"""Events that wait for the reader."""


@final
class RunStream:
    """One run, its events and its outcome: made by `root.stream`, and started by `async with`.

    Leaving the block cancels the run, and returns when nothing of it is left. Its methods are for one task at a time.

    Attributes:
        id: the run's.
        dropped: events that were left out because the program read too slowly.
    """

    def __init__(self, root: Root, target: Target, prompt: str, options: RunOptions) -> None:
        self.id: str = options.get("id") or new_id()
        self.dropped = 0
        self._root = root
        self._callback = callback_of(options)
        options["id"] = self.id
        self._start = partial(run_under, root, target, prompt, options, self._callback, self._put)
        self._call: Call[Outcome] | None = None
        self._lock = threading.Lock()
        self._buffer = _Buffer(MOST)
        self._result: Outcome | BaseException | None = None
        self._reading: set[Reply[None]] = set()  # tasks that wait for an event
        self._ending: set[Reply[None]] = set()  # tasks that wait for the end
        self._cancelled = False
        self._raised = False
        self._home = ""
        self._is_agent = False

    async def __aenter__(self) -> Self:
        if self._call is not None:
            raise UsageError("this run was started before: call root.stream once for each `async with`")
        self._call = self._root.start(self._start, self._over)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()
        await self._wait_over(lambda _: None)  # a cancelled task waits, too
        if kind is None and not self._raised and isinstance(self._result, BaseException):
            raise self._result  # the program has not asked what became of the run, which could not start

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        """The next event.

        Raises:
            StopAsyncIteration: the run is over.
            UsageError, InvalidFile, Unsupported, ConfigError: it could not start.
        """
        while True:
            with self._lock:
                event, dropped = self._buffer.take()
                over = self._result is not None
            self.dropped += dropped
            if event is not None:
                return event
            if over:
                if isinstance(self._result, BaseException):
                    await self.outcome()
                raise StopAsyncIteration
            await self._wait_more()

    async def text(self) -> AsyncIterator[str]:
        """The text of the run's agent, in pieces as they arrive; of a graph or a workflow, that of all its models.

        Raises: as `__anext__`.
        """
        async for event in self:
            if isinstance(event.data, LlmDelta) and (not self._is_agent or event.actor == self._home):
                yield event.data.text

    async def outcome(self) -> Outcome:
        """Wait until the run is over. A cancelled one has an outcome too; see `callboard.run` for what it raises."""
        await self._wait_over(_deliver)
        if isinstance(self._result, BaseException):
            self._raised = True
            raise self._result
        assert self._result is not None
        if self._callback is not None:
            self._callback.check()
        return self._result

    def cancel(self) -> None:
        """Cancel the run; returns at once. From any thread. Its outcome has the status `cancelled`."""
        loop = self._root.kernel.loop
        if self._call is not None and self._result is None and loop is not None:
            loop.post(self._interrupt)

    # --- in the root's loop -------------------------------------------------------------------------------------------

    def _interrupt(self) -> None:
        self._cancelled = True
        actor = self._root.kernel.actor.child(self.id)
        if actor is not None:
            actor.interrupt()  # the run ends with an outcome
        elif self._call is not None:
            self._call.scope.cancel()

    def _put(self, event: Event) -> None:
        if isinstance(event.data, RunStarted):
            self._is_agent = event.data.dialect == "agent"
        elif isinstance(event.data, AgentStarted) and not self._home:
            self._home = event.actor
        with self._lock:
            self._buffer.put(event)
        self._wake()

    def _over(self, result: Result[Outcome]) -> None:
        ended: Outcome | BaseException
        if isinstance(result, Value):
            ended = result.value
        elif self._cancelled:  # before the run had an actor
            ended = Outcome(run_id=self.id, status="cancelled", exit_code=INTERRUPTED)
        else:
            assert isinstance(result, Error)
            ended = result.error
        with self._lock:
            self._result = ended
        self._wake()

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        with self._lock:
            replies, self._reading = self._reading, set()
            if self._result is not None:
                replies |= self._ending
                self._ending = set()
        for reply in replies:
            _deliver(reply)

    async def _wait_more(self) -> None:
        """Wait for an event, or for the end."""
        reply = self._new_reply()
        with self._lock:
            if self._buffer or self._result is not None:
                return
            self._reading.add(reply)
        await reply.wait(partial(_deliver, reply))

    async def _wait_over(self, on_cancel: Callable[[Reply[None]], object]) -> None:
        """Wait for the end. `on_cancel` may deliver the reply for a cancelled task, which has to wait otherwise."""
        reply = self._new_reply()
        with self._lock:
            if self._result is not None:
                return
            self._ending.add(reply)
        await reply.wait(partial(on_cancel, reply))

    def _new_reply(self) -> Reply[None]:
        if self._call is None:
            raise UsageError("this run has not been started: `async with root.stream(...) as run:`")
        return new_reply()


def _deliver(reply: Reply[None]) -> None:
    reply.deliver(Value(None))


class _Entry(msgspec.Struct, eq=False):
    """An event that waits; of pieces of text that were joined the first, and the texts of all."""

    event: Event
    texts: list[str] | None = None


@final
class _Buffer:
    """Events that wait for their reader; see the module."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: deque[_Entry] = deque()
        self._open: dict[tuple[str, str, str], _Entry] = {}  # where the next piece of a text is added
        self._others = 0  # events that are no text
        self._dropped = 0
        self._last_dropped: Event | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, event: Event) -> None:
        """Add an event; never waits."""
        data = event.data
        if isinstance(data, LlmDelta | LlmReasoning):
            key = (event.kind, event.actor, event.id)
            if (entry := self._open.get(key)) is not None and entry.texts is not None:
                entry.texts.append(data.text)
            else:
                entry = self._open[key] = _Entry(event, [data.text])
                self._entries.append(entry)
            return
        self._open.clear()
        self._entries.append(_Entry(event))
        self._others += 1
        if self._others > self._most:
            self._make_room()

    def take(self) -> tuple[Event | None, int]:
        """The next event, if there is one; and how many it stands for that were left out."""
        if self._last_dropped is not None:
            event, count = self._last_dropped, self._dropped
            self._last_dropped, self._dropped = None, 0
            text = f"{count:,} events were left out because the program reads them more slowly than the run emits them"
            data = Warned(code="events_left_out", message=text)
            return msgspec.structs.replace(event, kind=data.kind, data=data, id="", corr=""), count
        if not self._entries:
            return None, 0
        entry = self._entries.popleft()
        event = entry.event
        if entry.texts is None:
            self._others -= 1
            return event, 0
        self._open.pop((event.kind, event.actor, event.id), None)
        if len(entry.texts) == 1:
            return event, 0
        joined: Any = type(event.data)
        return msgspec.structs.replace(event, data=joined(text="".join(entry.texts))), 0

    def _make_room(self) -> None:
        """Leave out the older half of the events that are no text."""
        left_out = self._others // 2
        self._others -= left_out
        self._dropped += left_out
        kept: deque[_Entry] = deque()
        for entry in self._entries:
            if entry.texts is None and left_out:
                left_out -= 1
                self._last_dropped = entry.event
            else:
                kept.append(entry)
        self._entries = kept
