"""Reconnecting client: subscriptions resume at their last position.

If the process of a local server has ended, the client does not wait for it. Any other server is retried for `PATIENCE`
seconds, which covers a restart and an unstable network.

`with_client` runs a command: it provides the connection, handles signals, and unwraps errors. A signal ends the
command, never the run that the command watches. The first signal ends it at once: nothing here needs a slow cleanup.

Subscriptions are async iterators that survive lost connections and slow readers. After the end of a feed they subscribe
again: a run's events from the last delivered one, the actor tree and the open questions from a fresh snapshot. So
nothing is missed or repeated.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple, TypeVar

import click
import msgspec
import trio

from ...protocol.control import method_structs
from ...protocol.control.resources import ActorInfo, RunInfo
from ...protocol.decoding import decode_json, json_decoder
from ...protocol.errors import CallboardError, NoServer, NotFound, Saturated, ServerLost, UsageError
from ...protocol.kernel.questions import Question
from ..render.text import safe
from .connection import ControlConnection, FeedCut, NotificationFeed, open_connection
from .servers import ControlServer, Where, find_server

T = TypeVar("T")

PATIENCE = 30.0
_LOOKS = ("get", "list", "tree", "inspect", "events", "graph", "info", "status")
"""Last words of the read-only methods."""

FIRST_WAIT, LONGEST_WAIT = 0.1, 2.0


class ControlClient:
    """Client for commands, created by `open_client`.

    Attributes:
        server: server of the connection.
        tell: callback for a line when the connection is lost, and when it is restored.
    """

    def __init__(self, server: ControlServer, nursery: trio.Nursery) -> None:
        self.server = server
        self.tell: Callable[[str], None] = lambda _: None
        self._nursery = nursery
        self._lock = trio.Lock()
        self._connection: ControlConnection | None = None

    async def ask(self, method: str, type: type[T], /, **params: Any) -> T:
        """Send a request and return its result. Read-only requests are repeated if the connection is lost meanwhile.

        Raises:
            CallboardError: the server refuses, with its error code.
            ServerLost: the server is gone, or the connection was lost and the request's effect is unknown.
        """
        while True:
            connection = await self.connected()
            try:
                return self._read(await connection.request(method, _given(params)), type)
            except ServerLost:
                if not (connection.lost and method.rpartition("/")[2] in _LOOKS):
                    raise

    async def subscribe(self, method: str, type: type[T], /, **params: Any) -> tuple[T, NotificationFeed]:
        """Subscribe; return the result and the feed of notifications. Raises as `ask` does."""
        while True:
            connection = await self.connected()
            try:
                result, feed = await connection.subscribe(method, _given(params))
                return self._read(result, type), feed
            except ServerLost:
                if not connection.lost:
                    raise

    def _read(self, result: msgspec.Raw, type: type[T]) -> T:
        try:
            return decode_json(result, type)
        except msgspec.MsgspecError as error:
            raise ServerLost(
                f"the server at {self.server.url} sent a message that this callboard can't read: {error}"
            ) from None

    async def connected(self) -> ControlConnection:
        """Return the current connection, or a new one if it was lost."""
        # One task reconnects; the others wait for the lock and use its connection.
        async with self._lock:
            if self._connection is None:
                self._connection = await open_connection(self._nursery, self.server)
            elif self._connection.lost:
                self._connection = await self._again()
            return self._connection

    async def _again(self) -> ControlConnection:
        """Reconnect.

        Raises:
            ServerLost: the server's process has ended, or it did not answer for `PATIENCE` seconds.
        """
        told, wait = False, FIRST_WAIT
        last = trio.current_time() + PATIENCE
        while True:
            if self.server.has_ended:
                raise ServerLost(f"the server at {self.server.url} has ended (process {self.server.pid})")
            try:
                connection = await open_connection(self._nursery, self.server)
            except (NoServer, ServerLost, Saturated) as error:
                if trio.current_time() + wait > last:
                    raise ServerLost(f"the server did not answer for {PATIENCE:g} s: {error}") from None
            else:
                if told:
                    self.tell(f"connected to {self.server.url} again")
                return connection
            if not told:
                told = True
                self.tell(f"the connection to {self.server.url} is lost; trying again for {PATIENCE:g} s")
            await trio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)


def _given(params: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


@asynccontextmanager
async def open_client(server: ControlServer) -> AsyncIterator[ControlClient]:
    """Yield a client that is connected to the server; the connection ends with the block.

    The block should handle `CallboardError` itself: an exception that leaves it arrives wrapped in a group.
    """
    async with trio.open_nursery() as nursery:
        client = ControlClient(server, nursery)
        try:
            yield client
        finally:
            nursery.cancel_scope.cancel()


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CommandInterrupted(click.exceptions.Exit):
    """A signal ended the command; `exit_code` is 128 plus its number."""


def with_client(where: Where, body: Callable[[ControlClient], Awaitable[T]]) -> T:
    """Run `body` with a client of the requested server and return its result.

    Raises:
        CallboardError: `body` failed, or there is no server.
        CommandInterrupted: a signal arrived.
    """
    server = find_server(where, os.environ)
    if server.others and sys.stderr.isatty():
        print_to_stderr(f"{server.others + 1} servers run here; this is the newest, {server.url} (--url names another)")

    async def connected() -> T:
        async with open_client(server) as client:
            client.tell = print_to_stderr
            await client.connected()
            return await body(client)
        raise AssertionError("unreachable: the nursery swallows no errors")

    return play(connected)


def play(body: Callable[[], Awaitable[T]]) -> T:
    """Run `body` in a trio loop of its own and return its result; raises as `with_client` does."""
    end = trio.run(_play, body)
    if isinstance(end, signal.Signals):
        raise CommandInterrupted(128 + end)
    if isinstance(end, BaseException):
        raise end
    return end[0]


async def _play(body: Callable[[], Awaitable[T]]) -> list[T] | Exception | signal.Signals:
    came: list[signal.Signals] = []
    end: list[T] = []
    # A signal that the parent ignores (nohup, a script's background job) must remain ignored.
    heard = [number for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN]
    try:
        with trio.open_signal_receiver(*heard) as signals:
            async with trio.open_nursery() as nursery:

                async def stop_at_signal() -> None:
                    async for number in signals:
                        came.append(signal.Signals(number))
                        nursery.cancel_scope.cancel()

                nursery.start_soon(stop_at_signal)
                end.append(await body())
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        error = _first(group)
        if not isinstance(error, CallboardError | OSError):
            raise
        return error
    return end or came[0]


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the relevant error: tasks that fail together have failed for the same reason."""
    errors = [leaf for leaf in _leaves(group) if not isinstance(leaf, trio.Cancelled)]
    return next((leaf for leaf in errors if not isinstance(leaf, CallboardError | OSError)), errors[0])


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


def print_to_stderr(text: str) -> None:
    sys.stderr.write(f"callboard: {safe(text)}\n")
    sys.stderr.flush()


# --- runs -------------------------------------------------------------------------------------------------

_PAGE = 500


async def find_run(client: ControlClient, word: str) -> RunInfo:
    """Return the run with this id, or with an id that begins with `word`.

    Raises:
        CallboardError: no run matches (code `not_found`), or several do.
    """
    try:
        return (await client.ask("_run/get", method_structs.OneRun, run=word)).run
    except CallboardError as error:
        if error.code != NotFound.code:
            raise
        known = await runs_of(client)
        id = matching_id(word, [info.run for info in known])
        if id is None:
            raise NotFound(_unknown(word, known)) from None
    return (await client.ask("_run/get", method_structs.OneRun, run=id)).run


def _unknown(word: str, known: Iterable[RunInfo]) -> str:
    named = [info.run for info in known if word in (info.target, info.name, info.title)]
    hint = f"runs of that name: {', '.join(named[:5])}" if named else "to list all runs: callboard ps -a"
    return f"there is no run '{word[:60]}' ({hint})"


async def runs_of(client: ControlClient, *, status: str | None = None, most: int = 10_000) -> list[RunInfo]:
    """Return the newest runs known to the server, finished ones included, page by page."""
    found: list[RunInfo] = []
    before: str | None = None
    while len(found) < most:
        limit = min(_PAGE, most - len(found))
        page = await client.ask("_run/list", method_structs.Runs, status=status, limit=limit, before=before)
        found += page.runs
        before = page.next
        if before is None:
            break
    return found


def beginning(word: str, ids: Iterable[str], kind: str) -> list[str]:
    """Return the id that equals `word`, if there is one; else all that begin with `word` or `KIND-word`."""
    known = list(ids)
    return [id for id in known if id == word] or [id for id in known if id.startswith((word, f"{kind}-{word}"))]


def matching_id(word: str, ids: Iterable[str], kind: str = "run") -> str | None:
    """Return the only id that begins with `word`, with or without the prefix `KIND-`; None if there is none.

    Raises:
        UsageError: several ids match.
    """
    found = beginning(word, ids, kind)
    if len(found) > 1:
        shown = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
        raise UsageError(f"'{word}' begins the ids of several {kind}s: {shown}")
    return found[0] if found else None


class _Place(msgspec.Struct):
    seq: int


class _Questions(msgspec.Struct):
    questions: list[Question]


class _Asked(msgspec.Struct):
    question: Question


_EVENT = json_decoder(method_structs.RunEvent)
_PLACE = json_decoder(_Place)
_CHANGED = json_decoder(method_structs.ActorsChanged)


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
                "_run/subscribe", method_structs.Subscribed, run=self._run, after=self.seq
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
                lost = decode_json(params, method_structs.RunLost)
                # The range may begin with events that were delivered: count only the others.
                self.missing += max(lost.last - max(lost.first - 1, self.seq), 0)
                self.seq = max(self.seq, lost.last)
            elif method == "_run/ended":
                self.status = decode_json(params, method_structs.RunEnded).status
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
                    "_actor/subscribe", method_structs.WatchingTree, run=self._run, interval=self._interval
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
                closed = decode_json(params, method_structs.Closed)
                self._closed(closed.question, closed.by)
            elif method == "_question/lagged":
                self._feed = None
        return self._untold.popleft()

    async def _begin(self) -> None:
        """Subscribe, then list: the list contains all changes that happened while there was no connection."""
        _, self._feed = await self._client.subscribe("_question/subscribe", method_structs.Watching)
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
