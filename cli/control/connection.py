"""One websocket to a server: requests by id, and notifications sorted by the subscription they belong to.

The reader never waits for subscribers: a feed that is not emptied is ended at `BOUND` (`FeedCut`), and its reader
subscribes anew from where it stands. So no slow subscriber delays the answer of another call.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection

from ...protocol import jsonrpc
from ...protocol.errors import CallboardError, ServerLost, exit_codes
from .servers import Server

BOUND = 20_000
PONG_WITHIN = 10.0
PING_EVERY = 20.0


class FeedCut(Exception):
    """The feed has ended: the connection is lost, or its reader was too slow."""


class _Of(msgspec.Struct):
    subscription: str | int


_OF = msgspec.json.Decoder(_Of)


class Feed:
    """The notifications of one subscription: method and params, in order."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, msgspec.Raw]] = deque()
        self._ended = False
        self._lot = trio.lowlevel.ParkingLot()

    def put(self, method: str, params: msgspec.Raw) -> bool:
        """Take one in; False if the feed has ended."""
        if len(self._waiting) >= BOUND:
            self.end()
        if self._ended:
            return False
        self._waiting.append((method, params))
        self._lot.unpark()
        return True

    def end(self) -> None:
        """Nothing more comes; what is here can still be read."""
        self._ended = True
        self._lot.unpark_all()

    async def get(self) -> tuple[str, msgspec.Raw]:
        """The next one.

        Raises:
            FeedCut: there is none, and will be none.
        """
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            if self._ended:
                raise FeedCut
            await self._lot.park()
        return self._waiting.popleft()


class _Asked:
    """One request under way."""

    def __init__(self, *, subscribes: bool) -> None:
        self.done = trio.Event()
        self.subscribes = subscribes
        self.answer: jsonrpc.Result | jsonrpc.Failure | None = None
        self.feed: Feed | None = None


class Connection:
    """A websocket that is open, or was. `opening` makes it."""

    def __init__(self, server: Server, socket: WebSocketConnection) -> None:
        self._server = server
        self._socket = socket
        self._ids = 0
        self._asked: dict[jsonrpc.Id, _Asked] = {}
        self._feeds: dict[str | int, Feed] = {}
        self.lost = False

    async def request(self, method: str, params: dict[str, Any]) -> msgspec.Raw:
        """What the server answers.

        Raises:
            CallboardError: it refuses, by the code it gave.
            ServerLost: it went away before it answered; what became of the request is not known.
        """
        return (await self._ask(method, params, subscribes=False))[0]

    async def subscribe(self, method: str, params: dict[str, Any]) -> tuple[msgspec.Raw, Feed]:
        """What the server answers, and the feed of what comes after it. Raises as `request` does."""
        result, feed = await self._ask(method, params, subscribes=True)
        assert feed is not None
        return result, feed

    async def _ask(self, method: str, params: dict[str, Any], *, subscribes: bool) -> tuple[msgspec.Raw, Feed | None]:
        self._ids += 1
        asked = self._asked[self._ids] = _Asked(subscribes=subscribes)
        number = self._ids
        try:
            if not self.lost:
                await self._send(jsonrpc.encode_request(number, method, params))
            if self.lost:
                raise lost_at(self._server)
            await asked.done.wait()
        finally:
            del self._asked[number]
        if asked.answer is None:
            raise lost_at(self._server)
        if isinstance(asked.answer, jsonrpc.Failure):
            raise error_of(asked.answer.error)
        return asked.answer.result, asked.feed

    async def _send(self, frame: bytes) -> None:
        try:
            await self._socket.send_message(frame.decode())
        except (ConnectionClosed, OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            self.close()

    # --- what comes in --------------------------------------------------------------------------------------

    async def read(self) -> None:
        """Take in what the server sends until the connection ends."""
        try:
            while True:
                frame = await self._socket.get_message()
                await self._take(frame.encode() if isinstance(frame, str) else frame)
        except (ConnectionClosed, OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.close()

    async def _take(self, frame: bytes) -> None:
        try:
            message = jsonrpc.decode(frame)
        except ValueError:
            self.close()  # that is no server of ours
            return
        if isinstance(message, jsonrpc.Notification):
            self._sort(message)
        elif isinstance(message, jsonrpc.Request):
            text = f"this client answers no '{message.method}'"
            await self._send(jsonrpc.encode_failure(message.id, jsonrpc.METHOD_NOT_FOUND, text))
        elif message.id is not None and (asked := self._asked.get(message.id)) is not None:
            if asked.subscribes and isinstance(message, jsonrpc.Result):
                # Before the next frame is looked at, which may be the first of this subscription.
                asked.feed = self._open_feed(message.result)
            asked.answer = message
            asked.done.set()

    def _open_feed(self, result: msgspec.Raw) -> Feed:
        feed = Feed()
        try:
            self._feeds[_OF.decode(result).subscription] = feed
        except msgspec.MsgspecError:
            feed.end()  # the answer is nothing that we know
        return feed

    def _sort(self, message: jsonrpc.Notification) -> None:
        try:
            subscription = _OF.decode(message.params).subscription
        except msgspec.MsgspecError:
            return  # a notification of a kind that we have not asked for
        feed = self._feeds.get(subscription)
        if feed is not None and not feed.put(message.method, message.params):
            del self._feeds[subscription]

    async def keep_alive(self) -> None:
        """Ping now and then; a server that does not answer is lost. Else a half-open connection would last for ever."""
        while not self.lost:
            await trio.sleep(PING_EVERY)
            with trio.move_on_after(PONG_WITHIN) as clock:
                try:
                    await self._socket.ping()
                except (ConnectionClosed, OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                    self.close()
            if clock.cancelled_caught:
                self.close()

    def close(self) -> None:
        """It is over: waiting calls fail."""
        self.lost = True
        for feed in self._feeds.values():
            feed.end()
        for asked in self._asked.values():
            asked.done.set()


def lost_at(server: Server) -> ServerLost:
    if server.gone:
        return ServerLost(f"the server at {server.url} has ended (process {server.pid})")
    return ServerLost(f"the connection to the server at {server.url} is lost")


def error_of(error: jsonrpc.ErrorData) -> CallboardError:
    """A server's refusal as the error that it was there: same text, same `code`, same exit code."""
    code = error.data.get("code") if isinstance(error.data, dict) else None
    told = CallboardError(error.message)
    told.code = str(code or "server")
    told.exit_code = exit_codes().get(told.code, 1)
    return told
