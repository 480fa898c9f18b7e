"""Calls between event loops: from asyncio, another trio loop or a plain thread into a root's loop, and back.

A root lives in one trio loop, and programs that embed agents mostly run on asyncio. Three ways do not work:

- A root per call in a worker thread (`asyncio.to_thread(run_sync)`) shares no limits, connections or MCP servers, and a
  cancelled caller leaves its run behind, because a thread can't be cancelled.
- trio's guest mode shares the thread of asyncio's loop: a thousand runs delayed that loop by 1.2 s in one piece.
- `run_coroutine_threadsafe` and its like forget the work when the waiting task is cancelled. It ends some time later.

So the root's loop has a thread of its own (`LoopThread`), and work crosses between loops by five rules:

1. A result crosses as a `Reply`. The code that waits for one returns only when the work has ended. Cancelling the wait
   asks the other loop to cancel the work, and the cancellation is raised when that has happened. So whatever "nothing
   of it is left" means for a run under trio holds for its caller under asyncio too.
2. Work in the root's loop is a `Call`: a system task of trio with a cancel scope, in a copy of the caller's context
   variables. Exceptions arrive as they were raised. A call that the end of the root ends raises `ShuttingDown`.
3. Code of the caller runs in the caller's loop. `caller` is the asyncio task behind a call. Async tools and hooks run
   as asyncio tasks there, in the context of the trio task that awaits them, and are cancelled with it. Callbacks are
   posted there in order, and before the reply of their call.
4. Wake-ups are shared. Waking another thread's loop is a write to a pipe, and each such call gives up the interpreter's
   lock, which two busy threads then fight for: with a wake-up per event, half of the CPU of a thousand streamed runs
   went there. So each loop has a queue of posted calls, and is woken once for all that gather in it. The root's loop
   wakes asyncio's at the end of a turn (`_Wakeups`), when all of its tasks that could run have run.
5. Nothing in the root's loop waits for another loop, except for what that loop was asked to do. `Loop.wait_for`, which
   blocks a thread for one turn of the root's loop, can therefore not deadlock.

asyncio is imported by nothing in this module: its loops are found through `sys.modules`, and only asyncio programs have
it there. Signals stay with the main thread, thus with the program. A forked child has no thread for the loop; its calls
raise an error instead of waiting for ever.
"""

from __future__ import annotations

import atexit
import contextvars
import logging
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar, TypeVarTuple, final

import outcome
import trio

from ..protocol.kernel.errors import ActorError, ShuttingDown
from .user_code import UserCodeError, failure_of

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
Args = TypeVarTuple("Args")

POSTS_AT_ONCE = 64
"""Posted calls that run in one turn of an asyncio loop. More of them would delay the other tasks of the program."""

TICK = 0.1
"""Seconds until a notebook's loop sees that its cell was interrupted."""

END_CALLS_WITHIN = 1.0
"""Seconds for calls to end by themselves when their root has stopped, and again when they are cancelled."""

EXIT_MARGIN = 2.0
"""Seconds that the end of the interpreter waits for an open root, beyond the time that the root takes to stop."""

log = logging.getLogger("callboard.loops")


# --- results ----------------------------------------------------------------------------------------------------------


class Reply(Protocol[T]):
    """Result of work in another event loop. One task creates and awaits it; any thread may deliver it, once."""

    def deliver(self, result: outcome.Outcome[T]) -> None:
        """Hand over the result. Later deliveries are ignored, as is one to a loop that has ended."""

    async def wait(self, on_cancel: Callable[[], object]) -> T:
        """Return or raise the result.

        A cancellation of the waiting task calls `on_cancel` once, and is raised when the result has arrived.
        """


def new_reply() -> Reply[Any]:
    """Make a reply for the running task.

    Raises:
        ActorError: neither trio nor asyncio runs in this thread.
    """
    if trio.lowlevel.in_trio_task():
        return _TrioReply()
    host = asyncio_host()
    if host is None:
        raise ActorError("this needs a running event loop: trio's or asyncio's")
    return _AsyncioReply(host)


@final
class _TrioReply:
    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._task: trio.lowlevel.Task | None = None
        self._result: outcome.Outcome[Any] | None = None

    def deliver(self, result: outcome.Outcome[Any]) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._set, result)

    def _set(self, result: outcome.Outcome[Any]) -> None:
        if self._result is None:
            self._result = result
            if self._task is not None:
                trio.lowlevel.reschedule(self._task)

    async def wait(self, on_cancel: Callable[[], object]) -> Any:
        cancel: Callable[[], NoReturn] | None = None

        def abort(raise_cancel: Callable[[], NoReturn]) -> trio.lowlevel.Abort:
            nonlocal cancel
            cancel = raise_cancel
            on_cancel()
            return trio.lowlevel.Abort.FAILED

        if self._result is None:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(abort)
        if cancel is not None:
            cancel()
        assert self._result is not None
        return self._result.unwrap()


@final
class _AsyncioReply:
    def __init__(self, host: AsyncioHost) -> None:
        self._host = host
        self._future: asyncio.Future[None] | None = None
        self._result: outcome.Outcome[Any] | None = None

    def deliver(self, result: outcome.Outcome[Any]) -> None:
        self._host.post(self._set, result)

    def _set(self, result: outcome.Outcome[Any]) -> None:
        if self._result is None:
            self._result = result
            if self._future is not None and not self._future.done():
                self._future.set_result(None)

    async def wait(self, on_cancel: Callable[[], object]) -> Any:
        cancelled: tuple[Any, ...] | None = None
        ticks = self._host.tick() if "ipykernel" in sys.modules else None
        try:
            while self._result is None:
                self._future = self._host.loop.create_future()  # a cancelled task cancels the future that it awaits
                try:
                    await self._future
                except sys.modules["asyncio"].CancelledError as error:  # a second one shortens nothing
                    if cancelled is None:
                        on_cancel()
                    cancelled = error.args
        finally:
            if ticks is not None:
                ticks()
        if cancelled is not None:
            raise sys.modules["asyncio"].CancelledError(*cancelled)
        return self._result.unwrap()


@final
class ThreadReply:
    """A `Reply` for a thread without an event loop."""

    def __init__(self) -> None:
        self._results: queue.SimpleQueue[outcome.Outcome[Any]] = queue.SimpleQueue()

    def deliver(self, result: outcome.Outcome[Any]) -> None:
        self._results.put(result)

    def wait_blocking(self, on_cancel: Callable[[], object]) -> Any:
        """Wait like `Reply.wait`, with Ctrl-C as the cancellation. A second Ctrl-C is raised at once."""
        try:
            result = self._results.get()
        except KeyboardInterrupt:
            on_cancel()
            self._results.get()
            raise
        return result.unwrap()


# --- asyncio ----------------------------------------------------------------------------------------------------------


@final
class AsyncioHost:
    """An asyncio loop that other threads post calls to.

    Posts wake the loop once for all that have gathered; see the module.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._context = contextvars.Context()  # not that of the trio task that happens to post
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._woken = False

    def post(self, call: Callable[..., object], *args: object) -> bool:
        """Call this in the loop, after earlier posts. Return False if the loop is closed."""
        self._posted.append((call, args))
        if self.loop.is_closed():
            self._posted.clear()
            return False
        if not self._woken:
            self._woken = True
            wakeups = _Wakeups.of_this_thread()
            if wakeups is None:
                return self.wake()
            wakeups.add(self)
        return True

    def tick(self) -> Callable[[], None]:
        """Wake the loop every `TICK` seconds; the returned function ends that.

        An interrupt of a notebook cancels the cell's task in a signal handler (ipykernel's `_cancel_on_sigint`), which
        does not wake the loop out of its `select`. Without the ticks, the cell would run until something else does.
        """
        timer: asyncio.TimerHandle

        def again() -> None:
            nonlocal timer
            timer = self.loop.call_later(TICK, again)

        again()
        return lambda: timer.cancel()

    def wake(self) -> bool:
        """Make the loop run the posted calls. Return False if it is closed."""
        try:
            self.loop.call_soon_threadsafe(self._run, context=self._context)
        except RuntimeError:
            self._posted.clear()
            return False
        return True

    def _run(self) -> None:
        self._woken = False  # before the first `popleft`: an entry posted from here on wakes the loop again
        try:
            for _ in range(min(len(self._posted), POSTS_AT_ONCE)):
                call, args = self._posted.popleft()
                call(*args)
        finally:
            if self._posted and not self._woken:
                self._woken = True
                self.loop.call_soon(self._run, context=self._context)


@final
class _Wakeups:
    """Asyncio loops that the trio loop of this thread wakes at the end of its turn.

    A task that is rescheduled runs in the next turn, after all that can run in this one. That costs no system call,
    unlike `run_sync_soon`.
    """

    def __init__(self) -> None:
        self._hosts: list[AsyncioHost] = []
        self._token = trio.lowlevel.current_trio_token()
        self._parked = False
        self._task = trio.lowlevel.spawn_system_task(self._serve, name="wake-ups", context=contextvars.Context())

    @staticmethod
    def of_this_thread() -> _Wakeups | None:
        """Return the wake-ups of the trio loop that runs in this thread; None without one, or if it is ending."""
        mine: _Wakeups | None = getattr(_threads, "wakeups", None)
        if mine is not None:
            return mine
        if not trio.lowlevel.in_trio_run():
            return None
        try:
            mine = _threads.wakeups = _Wakeups()
        except RuntimeError:  # the loop is ending and admits no new task
            return None
        return mine

    def add(self, host: AsyncioHost) -> None:
        """Wake this loop at the end of the turn."""
        self._hosts.append(host)
        if self._parked:
            self._parked = False
            trio.lowlevel.reschedule(self._task)

    async def _serve(self) -> None:
        def abort(_: object) -> trio.lowlevel.Abort:
            self._parked = False
            return trio.lowlevel.Abort.SUCCEEDED

        try:
            while True:
                if not self._hosts:
                    self._parked = True
                    await trio.lowlevel.wait_task_rescheduled(abort)
                self._wake()
        finally:
            _threads.wakeups = None
            self._wake()

    def _wake(self) -> None:
        hosts, self._hosts = self._hosts, []
        for host in hosts:
            host.wake()


_threads = threading.local()
_hosts = threading.local()


def asyncio_host() -> AsyncioHost | None:
    """Return the asyncio loop that runs in this thread, or None."""
    module = sys.modules.get("asyncio")
    if module is None or trio.lowlevel.in_trio_run():
        return None
    try:
        loop: asyncio.AbstractEventLoop = module.get_running_loop()
    except RuntimeError:
        return None
    host: AsyncioHost | None = getattr(_hosts, "host", None)
    if host is None or host.loop is not loop:
        host = _hosts.host = AsyncioHost(loop)
    return host


@final
class Caller:
    """The asyncio task behind a call: runs async functions and callbacks in its loop. Its methods are for trio."""

    def __init__(self, host: AsyncioHost, loop: Loop) -> None:
        self._host = host
        self._loop = loop
        self._context = contextvars.copy_context()

    def callback(self, function: Callable[[T], None]) -> Callable[[T], None]:
        """Return a function that posts its argument to the caller's loop, which calls `function` with it, in order.

        If `function` raises, the exception is logged and `function` is not called again, like a listener of events.
        """
        broken = False

        def call(value: T) -> None:
            nonlocal broken
            if broken:
                return
            try:
                self._context.run(function, value)
            except BaseException as error:  # reported; real interrupts pass
                broken = True
                failure_of(error)
                log.exception("a callback raised and is no longer called")

        def post(value: T) -> None:
            if not broken:
                self._host.post(call, value)

        return post

    def into_root(self, function: Callable[[T], object]) -> Callable[[T], None]:
        """Return a function that calls `function` in the root's loop, in order, and before the end of a `run`."""

        def post(value: T) -> None:
            self._loop.post(function, value)

        return post

    async def run(
        self, function: Callable[[], Awaitable[T]], cleanup: Callable[[], AbstractContextManager[object]]
    ) -> T:
        """Await `function()` in a task of the caller's loop.

        Args:
            cleanup: the shield in which a cancelled task of that loop is waited for.

        Raises:
            trio.Cancelled: the trio task was cancelled, and so was the asyncio task. It has ended, unless it needed
                longer than the shield lasts.
            UserCodeError: code in the caller's loop cancelled the asyncio task.
            ActorError: the caller's loop is closed.
            Exception: raised by the function.
        """
        done = trio.Event()
        context = contextvars.copy_context()
        task: asyncio.Task[T] | None = None

        def start() -> None:
            nonlocal task
            task = self._host.loop.create_task(_contained(function), context=context)
            task.add_done_callback(over)

        def over(task: asyncio.Task[T]) -> None:
            if not task.cancelled():
                task.exception()  # asyncio reports exceptions that are not read, and that of a cancelled call is not
            self._loop.post(done.set)

        def cancel() -> None:
            if task is not None:
                task.cancel()

        if not self._host.post(start):
            raise ActorError("the event loop of the caller is closed")
        try:
            await done.wait()
        except trio.Cancelled:
            self._host.post(cancel)
            with cleanup():
                await done.wait()
            raise
        assert task is not None
        if task.cancelled():
            raise UserCodeError("CancelledError: the function was cancelled in its event loop")
        return task.result()


async def _contained(function: Callable[[], Awaitable[T]]) -> T:
    """Await user code in asyncio, which ends its loop at a `SystemExit` of a task."""
    try:
        return await function()
    except (Exception, sys.modules["asyncio"].CancelledError):
        raise
    except BaseException as error:  # an exit in user code is an error of the call
        raise failure_of(error) from error


caller: ContextVar[Caller | None] = ContextVar("callboard_caller", default=None)
"""The asyncio task behind the current call; None in calls from trio and from threads."""


def in_callers_loop(callback: Callable[[T], None]) -> Callable[[T], None]:
    """Return a function that the root's loop may call for `callback`.

    For an asyncio caller it posts the call to the caller's loop (`Caller.callback`); otherwise it is `callback` itself.
    """
    host = caller.get()
    return callback if host is None else host.callback(callback)


# --- calls into a root's loop -----------------------------------------------------------------------------------------


@final
class Call(Generic[T]):
    """Call of an async function in a root's loop, from another loop or thread; `deliver` receives its outcome."""

    def __init__(
        self, loop: Loop, function: Callable[[], Awaitable[T]], deliver: Callable[[outcome.Outcome[T]], object]
    ) -> None:
        self.scope: trio.CancelScope = trio.CancelScope()
        self._loop = loop
        self._function = function
        self._deliver = deliver

    def cancel(self) -> None:
        """Cancel it; returns at once. From any thread."""
        self._loop.post(self.scope.cancel)

    def begin(self, context: contextvars.Context) -> None:
        """Start its task. In the root's loop."""
        try:
            self._loop.calls.add(self)
            trio.lowlevel.spawn_system_task(self._run, name="call", context=context)
        except RuntimeError:  # the loop is ending and admits no new task
            self.end(outcome.Error(ended()))

    def end(self, result: outcome.Outcome[T]) -> None:
        """Deliver the result."""
        self._loop.forget(self)
        self._deliver(result)

    async def _run(self) -> None:
        result: outcome.Outcome[T] = outcome.Error(ended())
        try:
            with self.scope:
                result = outcome.Value(await self._function())
        except trio.Cancelled:  # the loop ends
            raise
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
            result = outcome.Error(error)
        finally:
            self.end(result)


@final
class Loop:
    """The trio loop of the running task, open to calls from other threads.

    Attributes:
        calls: the calls in flight.
        is_closed: True once it admits no more calls.
        thread: the identifier of the thread that runs the loop.
        token: trio's for the loop.
    """

    def __init__(self) -> None:
        self.calls: set[Call[Any]] = set()
        self.token: trio.lowlevel.TrioToken = trio.lowlevel.current_trio_token()
        self.thread: int = threading.get_ident()
        self._pid = os.getpid()
        self.is_closed: bool = False
        self._no_calls = trio.Event()
        self._posted: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._woken = False

    def post(self, call: Callable[..., object], *args: object) -> bool:
        """Call this in the loop, after earlier posts. Return False if the loop has ended."""
        self._posted.append((call, args))
        if not self._woken:
            self._woken = True
            try:
                self.token.run_sync_soon(self._run_posted)
            except trio.RunFinishedError:
                self._woken = False
                self._posted.clear()
                return False
        return True

    def _run_posted(self) -> None:
        self._woken = False  # before the first `popleft`: an entry posted from here on wakes the loop again
        try:
            for _ in range(len(self._posted)):
                call, args = self._posted.popleft()
                call(*args)
        finally:
            if self._posted and not self._woken:  # posted meanwhile by a thread that saw us woken; or after a crash
                self._woken = True
                with suppress(trio.RunFinishedError):
                    self.token.run_sync_soon(self._run_posted)

    async def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Await `function()` in the loop, from a task of another one.

        Raises:
            ShuttingDown: the root has ended, or ended before the function did.
            ActorError: this process was forked from that of the loop.
        """
        reply = new_reply()
        call = self.start(function, reply.deliver)
        result: T = await reply.wait(call.cancel)
        return result

    def call_blocking(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call like `call`, from a thread without an event loop, which it blocks."""
        reply = ThreadReply()
        call = self.start(function, reply.deliver)
        result: T = reply.wait_blocking(call.cancel)
        return result

    def start(self, function: Callable[[], Awaitable[T]], deliver: Callable[[outcome.Outcome[T]], object]) -> Call[T]:
        """Start `function()` in the loop, with a copy of the context variables of this thread.

        Returns at once. The loop calls `deliver` with the result. Raises like `call`.
        """
        self.check_open()
        call = Call(self, function, deliver)
        context = contextvars.copy_context()
        host = asyncio_host()
        context.run(caller.set, None if host is None else Caller(host, self))
        if not self.post(call.begin, context):
            raise ended()
        return call

    def wait_for(self, function: Callable[[*Args], T], *args: *Args) -> T:
        """Return `function(*args)`, called in the loop. From another thread, which is blocked for a turn of the loop.

        Raises:
            ShuttingDown: the root has ended.
        """
        self.check_open()
        reply = ThreadReply()
        if not self.post(lambda: reply.deliver(outcome.capture(function, *args))):
            raise ended()
        result: T = reply.wait_blocking(lambda: None)
        return result

    async def close(self) -> None:
        """Admit no more calls, and wait until the calls in flight have ended.

        After `END_CALLS_WITHIN` seconds they are cancelled; after as many more seconds the wait ends in any case.
        """
        self.is_closed = True
        for _ in range(2):
            if self.calls:
                with trio.move_on_after(END_CALLS_WITHIN, shield=True):  # cancelled or not: they end with the root
                    await self._no_calls.wait()
            for call in self.calls:
                call.scope.cancel()

    def forget(self, call: Call[Any]) -> None:
        """Remove a call that has ended. In the loop."""
        self.calls.discard(call)
        if self.is_closed and not self.calls:
            self._no_calls.set()

    def check_open(self) -> None:
        """Raise the error of a call that can't be made: the root has ended, or this is a fork of its process."""
        if os.getpid() != self._pid:
            raise ActorError(
                f"this root was opened by process {self._pid}, and its event loop is not in the forked process"
                f" {os.getpid()}: open a root there"
            )
        if self.is_closed:
            raise ended()


def ended() -> ShuttingDown:
    """Return the error of a call into a root that is no longer open."""
    return ShuttingDown("this callboard.Root has ended, or ends now")


# --- a thread for the loop --------------------------------------------------------------------------------------------


@final
class LoopThread:
    """An async context manager, entered in a trio loop that has a thread of its own until the block is left.

    It is a daemon thread, so that a program that never leaves the block can end. The end of the interpreter leaves the
    block.

    Args:
        block: makes the context manager; called in the new loop.
        exit_within: seconds that leaving it may take.
    """

    def __init__(self, block: Callable[[], AbstractAsyncContextManager[object]], exit_within: float) -> None:
        self._block = block
        self._exit_within = exit_within
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._entered: Reply[None] | None = None
        self._ended: list[Reply[None]] = []
        self._over = False
        self._error: BaseException | None = None
        self._leaving = False
        self._token: trio.lowlevel.TrioToken | None = None
        self._left: trio.Event
        run = partial(contextvars.copy_context().run, self._run)
        self._thread = threading.Thread(target=run, name="callboard", daemon=True)

    async def open(self) -> None:
        """Start the thread; return when the block is entered, and raise what entering it raises."""
        reply = self._entered = new_reply()
        atexit.register(self._at_exit)
        self._thread.start()
        try:
            await reply.wait(self.begin_close)
        except BaseException:  # raised again after the effects of the entry are undone
            with suppress(Exception):  # that of the entry is raised
                await self.close()
            raise

    def begin_close(self) -> None:
        """Leave the block; returns at once. From any thread."""
        self._leaving = True
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._leave)

    async def close(self) -> None:
        """Leave the block; return when the thread has ended, and raise what leaving raises."""
        if os.getpid() != self._pid:
            return  # a fork has the object, but not the thread
        reply = new_reply()
        with self._lock:
            if not self._over:
                self._ended.append(reply)
            else:
                reply.deliver(_result_of(self._error))
        self.begin_close()
        try:
            await reply.wait(lambda: None)
        finally:
            self._thread.join()
            atexit.unregister(self._at_exit)

    async def _main(self) -> None:
        self._left = trio.Event()
        self._token = trio.lowlevel.current_trio_token()  # from here on `begin_close` may set the event
        async with self._block():
            assert self._entered is not None
            self._entered.deliver(outcome.Value(None))
            if not self._leaving:
                await self._left.wait()

    def _leave(self) -> None:
        self._left.set()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            trio.run(self._main)
        except BaseException as raised:  # noqa: BLE001 - it is raised where the block is entered or left
            error = raised
        with self._lock:
            self._over, self._error = True, error
        assert self._entered is not None
        for reply in (self._entered, *self._ended):  # the first has had its result, unless entering failed
            reply.deliver(_result_of(error))

    def _at_exit(self) -> None:
        if os.getpid() == self._pid and self._thread.is_alive():
            self.begin_close()
            self._thread.join(self._exit_within + EXIT_MARGIN)


def _result_of(error: BaseException | None) -> outcome.Outcome[None]:
    """Make a result; each can be used once."""
    return outcome.Value(None) if error is None else outcome.Error(error)
