"""Runs that a program follows while they execute.

    async with root.stream("researcher", "What is a callboard?") as run:
        async for text in run.text():
            print(text, end="")
        outcome = await run.outcome()

The run and the program that reads its events proceed at different speeds, perhaps in different event loops. A run
must never wait for its reader, because it holds connections and slots of a limiter. So events wait in a buffer with
two bounds:

- Consecutive chunks of a text are joined while they wait. A slow reader gets fewer and longer chunks, and the whole
  text.
- When more than `MOST` other events wait, the older half of them is dropped. The reader gets a `run.warning` with the
  code `events_left_out` in their place, and `dropped` counts them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, final

import msgspec
from outcome import Error, Value
from outcome import Outcome as Result

from ...protocol.deferred_types import defer
from ...protocol.errors import UsageError
from ...protocol.events import AgentStarted, Event, LlmDelta, LlmReasoning, RunStarted, Warned
from ...protocol.outcome import Outcome
from ...supervisors.event_loops import Reply, new_reply
from .begin import new_id
from .execution import INTERRUPTED
from .run import Target, TypedOptions, callback_of, run_under

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ...supervisors.event_loops import Call
    from .root import Root

    R = TypeVar("R", default=Any)
else:
    from typing import TypeVar

    defer(globals(), {"...supervisors.event_loops": "Call", ".root": "Root"})

    R = TypeVar("R")

MOST = 10_000
"""Maximum of waiting events, text chunks not counted."""


@final
class RunStream(Generic[R]):
    """Stream of one run's events, and its outcome. `root.stream` creates it, and `async with` starts the run.

    Leaving the block cancels the run, and returns when none of its tasks is left. Only one task at a time may use it.

    Attributes:
        id: id of the run.
        dropped: number of events that were dropped because the program read too slowly.
    """

    def __init__(
        self,
        root: Root,
        target: Target,
        prompt: str,
        options: TypedOptions,
        tenant: AbstractAsyncContextManager[Root] | None = None,
    ) -> None:
        self.id: str = options.get("id") or new_id()
        self.dropped: int = 0
        self._root = root
        self._tenant = tenant
        self._callback = callback_of(options)
        options["id"] = self.id
        self._asked = target, prompt, options
        self._call: Call[Outcome[Any]] | None = None
        self._lock = threading.Lock()
        self._buffer = _Buffer(MOST)
        self._result: Outcome[R] | BaseException | None = None
        self._reading: set[Reply[None]] = set()  # tasks that wait for an event
        self._ending: set[Reply[None]] = set()  # tasks that wait for the end
        self._reads_text = False
        self._has_text = False  # a chunk was yielded by `text`
        self._cancelled = False
        self._raised = False
        self._home = ""
        self._is_agent = False

    async def __aenter__(self) -> Self:
        if self._call is not None:
            raise UsageError("this run was started before: call root.stream once for each `async with`")
        if self._tenant is not None:
            self._root = await self._tenant.__aenter__()
        target, prompt, options = self._asked
        start = partial(run_under, self._root, target, prompt, options, self._callback, self._put)
        self._call = self._root.start(start, self._over)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()
        try:
            await self._wait_over(lambda _: None)  # Not cancellable: nothing of the run may be left after the block.
        finally:
            if self._tenant is not None:
                await self._tenant.__aexit__(None, None, None)
        if kind is None and not self._raised and isinstance(self._result, BaseException):
            raise self._result  # The run could not start, and the program has not called `outcome`.

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        """Return the next event.

        Raises:
            StopAsyncIteration: the run is over.
            UsageError, InvalidFile, Unsupported, ConfigError: the run could not start.
        """
        while (event := self._take()) is None:
            if self._result is not None and not self._buffer:
                if isinstance(self._result, BaseException):
                    await self.outcome()
                raise StopAsyncIteration
            await self._wait_more()
        return event

    async def text(self) -> AsyncIterator[str]:
        """Yield the text of the run's agent in chunks as they arrive; for a graph or a workflow, the text of all its
        models.

        If no model streamed (`no_stream` in config.yaml), yield the run's output at the end.

        Raises: as `__anext__`.
        """
        while True:
            while (event := self._take()) is not None:
                if isinstance(event.data, LlmDelta) and (not self._is_agent or event.actor == self._home):
                    self._has_text = True
                    yield event.data.text
            if self._result is not None and not self._buffer:
                if isinstance(self._result, BaseException):
                    await self.outcome()
                elif not self._has_text and self._result.output:
                    self._has_text = True
                    yield self._result.output
                return
            await self._wait_more(text=True)

    def _take(self) -> Event | None:
        with self._lock:
            event, dropped = self._buffer.take()
        self.dropped += dropped
        return event

    async def outcome(self) -> Outcome[R]:
        """Wait until the run is over, and return its outcome, also if it failed or was cancelled.

        Raises what `callboard.run` raises if the run could not start, or if `on_event` has raised.
        """
        await self._wait_over(_deliver)
        if isinstance(self._result, BaseException):
            self._raised = True
            raise self._result
        assert self._result is not None
        if self._callback is not None:
            self._callback.check()
        return self._result

    def cancel(self) -> None:
        """Cancel the run; return at once. May be called from any thread. The outcome has the status `cancelled`."""
        loop = self._root.kernel.loop
        if self._call is not None and self._result is None and loop is not None:
            loop.post(self._interrupt)

    # --- in the root's loop -------------------------------------------------------------------------------------------

    def _interrupt(self) -> None:
        self._cancelled = True
        actor = self._root.kernel.actor.child(self.id)
        if actor is not None:
            actor.interrupt()  # unlike `scope.cancel`, this ends the run with an outcome
        elif self._call is not None:
            self._call.scope.cancel()

    def _put(self, event: Event) -> None:
        if isinstance(event.data, RunStarted):
            self._is_agent = event.data.dialect == "agent"
        elif isinstance(event.data, AgentStarted) and not self._home:
            self._home = event.actor
        replies: set[Reply[None]] | None = None
        with self._lock:
            self._buffer.put(event)
            # A reader of text is not woken by events that it would skip: a wake-up costs more than an event.
            if self._reading and (isinstance(event.data, LlmDelta) or not self._reads_text or self._buffer.is_long):
                replies, self._reading = self._reading, set()
        for reply in replies or ():
            _deliver(reply)

    def _over(self, result: Result[Outcome[Any]]) -> None:
        ended: Outcome[Any] | BaseException
        if isinstance(result, Value):
            ended = result.value
        elif self._cancelled:  # cancelled before the run had an actor
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

    async def _wait_more(self, *, text: bool = False) -> None:
        """Wait for an event or for the end; with `text`, for a chunk of text."""
        reply = self._new_reply()
        with self._lock:
            # Checked under the lock: an event may have arrived since the caller found the buffer empty.
            if self._buffer or self._result is not None:
                return
            self._reading.add(reply)
            self._reads_text = text
        await reply.wait(partial(_deliver, reply))

    async def _wait_over(self, on_cancel: Callable[[Reply[None]], object]) -> None:
        """Wait for the end. `on_cancel` may deliver the reply to a cancelled task; otherwise that task continues to
        wait.
        """
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
    """Waiting event. For joined chunks of text, `event` is the first of them and `texts` has all texts."""

    event: Event
    texts: list[str] | None = None


@final
class _Buffer:
    """Buffer of waiting events; see the module."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: deque[_Entry] = deque()
        self._open: dict[tuple[str, str, str], _Entry] = {}  # entries that accept further chunks of a text
        self._others = 0  # events other than text chunks
        self._dropped = 0
        self._last_dropped: Event | None = None

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_long(self) -> bool:
        """True if the buffer is half full, so that events may soon be dropped."""
        return len(self._entries) > self._most // 2

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
        # Order is preserved: text after this event starts a new entry.
        self._open.clear()
        self._entries.append(_Entry(event))
        self._others += 1
        if self._others > self._most:
            self._make_room()

    def take(self) -> tuple[Event | None, int]:
        """Return the next event, or None; and the number of dropped events that it reports."""
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
        """Drop the older half of the events other than text chunks."""
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
