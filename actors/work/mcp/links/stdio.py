"""A server as a process of ours that reads requests from its stdin and writes answers to its stdout, a line each.

**Who does what.** The owner starts the process; a child of the owner reads. A request is written by the task that
makes it, straight into the pipe, and that task sleeps until the reader wakes it with the answer: between the two
no other task runs. Only when the pipe is full does the rest go to an outbox of bounded size, which a second child
empties. So a server that does not read holds up only its own callers.

**What servers write that they should not.** Lines that are no messages (banners, prints) are skipped and counted, as
long as there are not too many between two messages. A line that is too long costs the request that it answers, one that
does not end costs the connection. If the output ends, all requests fail with how the process ended and what it wrote
to stderr at last, and the reader crashes with that, and the owner with the reader, and what is left of the process
ends with its owner. A request of which the server has not read the last byte was not begun, and may be made again:
`McpUnsent`.

**Why this is no `io.peer`.** A round trip takes 28 µs of CPU here and 44 µs through a peer with its outbox; 14 and
21 µs where 1,000 calls are under way at once (2026-11-23, a server that answers at once, best of 5). The peer's writer
and its events are two more switches of tasks for each call; and it does not know which requests the server has read,
which decides what may be made again.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, final

import msgspec
import outcome
import trio

from .....protocol import jsonrpc
from .....protocol.errors import McpError, McpUnsent, ProcessError
from .....protocol.mcp.config import Server
from .....supervisors import Actor
from .....supervisors.process import Process, ProcessStop, start_process
from ....io.imports import imported
from . import texts
from .lines import HEAD, JUNK, TAIL, Lines, TooLong, id_in
from .link import Json, Outgoing, Receiver

if TYPE_CHECKING:
    from ...sandbox.place import Place

OUTBOX = 16 * 1024 * 1024
"""Bytes that wait for a server to read them."""

TURN = 16
"""Pieces of output taken in a row before others get to run."""

DIES_WITHIN = 2.0
"""Seconds to wait, after the end of a process' output, for the end of the process.

Until the process is dead, neither its exit status nor the number of unread bytes in its stdin is known: a request that
the server never read would count as begun, and would not be made again. A process that exits closes its output a moment
before it is dead; on a busy machine that moment was longer than 0.05 s, the value before. Only a server that closes its
output and lives on costs its callers the whole time.
"""

UNCANCELLABLE = ("initialize", "server/discover")
"""The first must not be cancelled, says the specification; those who don't know the second would not know what is."""

DEAF_FOR = 2.0
"""Seconds that a server whose input is closed goes on without ending, which would tell more, before it is given up."""

HASTE = ProcessStop(eof=0.1, term=0.1)
"""How patiently a server is ended that nothing was agreed with: it has nothing to lose, and a person may wait."""

REPORTS_WITHIN = 10.0
"""Seconds for what a dead process left to be swept."""


@asynccontextmanager
async def open_stdio(
    me: Actor,
    server: Server,
    receiver: Receiver,
    *,
    environ: Mapping[str, str],
    on_junk: Callable[[bytes], None],
    place: Place | None = None,
) -> AsyncIterator[StdioLink]:
    """Start the server's process, which ends with `me`, and all it leaves behind.

    Args:
        environ: ours, of which the server gets what its entry says.
        on_junk: told each line that is no message.
        place: how its process is held; None for not at all.

    Raises:
        McpLost: it could not be started; the text says why.
    """
    try:
        held = None
        if place is not None:
            await imported(".actors.work.sandbox.holding")
            from ...sandbox.holding import hold_server

            held = await hold_server(me, place, server.name, server.env, environ)
        process = await start_process(
            me,
            (_at_home(server.command), *server.args),
            name=server.name,
            env=server.environment(environ),
            cwd=None if server.cwd is None else _at_home(server.cwd),
            stdin="pipe",
            confinement=held,
        )
    except ProcessError as error:
        raise McpUnsent(f"MCP server '{server.name}' could not be started: {error}") from error
    process.stop_as(HASTE)
    link = StdioLink(server, process, receiver, on_junk)
    me.spawn(link.read, name="reader")
    me.spawn(link.write, name="writer")
    try:
        yield link
    finally:
        link.close()


@final
class _Waiting:
    """A task that waits for the answer to its request, which ends at the byte `upto` of all that the server is sent."""

    __slots__ = ("link", "outgoing", "since", "task", "upto")

    def __init__(self, link: StdioLink, outgoing: Outgoing, upto: int) -> None:
        self.link = link
        self.outgoing = outgoing
        self.upto = upto
        self.since = trio.current_time()
        self.task = trio.lowlevel.current_task()

    def give_up(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        """It was cancelled: tell the server, and drop what it answers all the same."""
        link = self.link
        del link.waiting[self.outgoing.id]
        if self.outgoing.method not in UNCANCELLABLE:
            link.notify("notifications/cancelled", {"requestId": self.outgoing.id, "reason": "no longer needed"})
        return trio.lowlevel.Abort.SUCCEEDED


@final
class StdioLink:
    """See `Link`, and the module.

    Attributes:
        process: the server's.
        waiting: the requests under way.
        stray: answers without a request. junk: lines that were no messages.
    """

    def __init__(self, server: Server, process: Process, receiver: Receiver, on_junk: Callable[[bytes], None]) -> None:
        self.modern = False
        self.version = ""
        self.process = process
        self.waiting: dict[int, _Waiting] = {}
        self.stray = 0
        self.junk = 0
        self._server = server
        self._receiver = receiver
        self._on_junk = on_junk
        self.lost: McpError | None = None
        self._junk_in_row = 0
        self._outbox: deque[bytes | memoryview] = deque()
        self._queued = 0
        self._written = 0
        self._unread = 0
        self._more = trio.Event()
        assert process.stdin is not None
        self._stdin = process.stdin

    # --- what callers do --------------------------------------------------------------------------------------

    async def request(self, outgoing: Outgoing) -> msgspec.Raw:
        self._send(jsonrpc.encode_request(outgoing.id, outgoing.method, outgoing.params))
        waiting = self.waiting[outgoing.id] = _Waiting(self, outgoing, self._written + self._queued)
        answer: msgspec.Raw = await trio.lowlevel.wait_task_rescheduled(waiting.give_up)
        return answer

    def notify(self, method: str, params: Mapping[str, Json]) -> None:
        self.respond(jsonrpc.encode_notification(method, params))

    def respond(self, message: bytes, about: Outgoing | None = None) -> None:  # noqa: ARG002 - for other transports
        with contextlib.suppress(McpError):
            self._send(message)

    def close(self) -> None:
        """The owner is done with it: requests under way fail and say so."""
        self._lose("is being stopped", "")

    # --- sending ----------------------------------------------------------------------------------------------

    def _send(self, message: bytes) -> None:
        if self.lost is not None:
            raise McpUnsent(str(self.lost))
        data = message + b"\n"
        if self._queued + len(data) > OUTBOX:
            raise McpError(
                f"MCP server '{self._server.name}' does not read what it is sent: {self._queued:,} bytes wait, and "
                f"{len(data):,} more would be beyond the limit of {OUTBOX:,}"
            )
        sent = 0
        if not self._queued:
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # as the writer will see
                sent = self._stdin.send_nowait(data)
                self._written += sent
        if sent < len(data):
            self._outbox.append(memoryview(data)[sent:])
            self._queued += len(data) - sent
            self._more.set()

    async def write(self, _: Actor) -> None:
        """The writer's life: empty the outbox, until the server stops reading."""
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while True:
                await self._more.wait()
                self._more = trio.Event()
                while self._outbox:
                    await self._stdin.wait_send_all_might_not_block()
                    first = self._outbox[0]
                    sent = self._stdin.send_nowait(first)
                    self._queued -= sent
                    self._written += sent
                    if sent == len(first):
                        self._outbox.popleft()
                    else:
                        self._outbox[0] = memoryview(first)[sent:]
        await trio.sleep(DEAF_FOR)
        self._lose("closed its input, so it hears nothing any more,", self.process.stderr_tail)
        assert self.lost is not None
        raise self.lost

    # --- receiving --------------------------------------------------------------------------------------------

    async def read(self, _: Actor) -> None:
        """The reader's life: take what the server writes, until it ends."""
        lines = Lines(self._server.max_message_bytes)
        stdout = self.process.stdout
        assert stdout is not None
        turn = TURN
        while self.lost is None and (data := await stdout.receive_soon()):
            for line in lines.feed(data):
                self._take(line)
            if lines.endless:
                what = "writes a line without an end to its stdout, where each message ends with a newline"
                self._lose(f"{what} ({_quoted(lines.beginning)})", self.process.stderr_tail)
            turn -= 1
            if not turn:
                turn = TURN
                await trio.lowlevel.checkpoint()
        if self.lost is None:
            await self._tell_end()
        assert self.lost is not None
        raise self.lost

    def _take(self, line: bytes | TooLong) -> None:
        if isinstance(line, TooLong):
            self._too_long(line)
            return
        try:
            message = jsonrpc.decode(line)
        except ValueError as error:
            self._take_odd(line, error)
            return
        self._junk_in_row = 0
        self._deliver(message)

    def _deliver(self, message: jsonrpc.Message) -> None:
        if isinstance(message, jsonrpc.Result):
            self._settle(message.id, outcome.Value(message.result))
        elif isinstance(message, jsonrpc.Notification):
            self._receiver.on_notification(message, None)
        elif isinstance(message, jsonrpc.Request):
            self._receiver.on_request(message, None)
        elif (waiting := self._pop(message.id)) is not None:
            error = texts.refused(self._server.name, waiting.outgoing, message.error)
            trio.lowlevel.reschedule(waiting.task, outcome.Error(error))

    def _settle(self, id: jsonrpc.Id, result: outcome.Outcome[msgspec.Raw]) -> None:
        if (waiting := self._pop(id)) is not None:
            trio.lowlevel.reschedule(waiting.task, result)

    def _pop(self, id: jsonrpc.Id | None) -> _Waiting | None:
        number = jsonrpc.number(id)
        waiting = None if number is None else self.waiting.pop(number, None)
        if waiting is None:
            self.stray += 1
        return waiting

    def _take_odd(self, line: bytes, why: ValueError) -> None:
        """A batch, an empty line, an answer that can't be read, or no message at all."""
        start = line[:64].lstrip()[:1]
        if not start:
            return
        if start == b"[":
            with contextlib.suppress(ValueError):
                for message in jsonrpc.decode_all(line):
                    self._deliver(message)
                return
        if (id := id_in(line[:HEAD], line[-TAIL:])) in self.waiting:
            assert id is not None
            error = texts.unreadable(self._server.name, texts.described(self.waiting[id].outgoing), why)
            self._settle(id, outcome.Error(error))
            return
        self.junk += 1
        self._junk_in_row += len(line)
        self._on_junk(line)
        if self._junk_in_row > JUNK:
            self._lose(f"writes something else than messages to its stdout ({_quoted(line)})", self.process.stderr_tail)

    def _too_long(self, line: TooLong) -> None:
        limit = self._server.max_message_bytes
        size = f"a message of {line.size:,} bytes; at most {limit:,} are taken (`max_message_bytes`)"
        if line.id is None:
            self._lose(f"sent {size}", "")
        elif (waiting := self._pop(line.id)) is not None:
            what = f"MCP server '{self._server.name}' answered {texts.described(waiting.outgoing)} with {size}"
            trio.lowlevel.reschedule(waiting.task, outcome.Error(McpError(what)))

    # --- its end ----------------------------------------------------------------------------------------------

    async def _tell_end(self) -> None:
        """Its output has ended: find out how it ended itself, if it did."""
        process = self.process
        with trio.move_on_after(DIES_WITHIN):
            await process.exited()
        if process.has_exited:
            self._unread = self._stdin.unread
            with trio.move_on_after(REPORTS_WITHIN):
                await process.ref.wait()
        end = process.ended
        if end is None:
            what = "closed its output"
        elif end.signal is not None:
            what = f"was ended by signal {end.signal}"
        else:
            what = f"ended with status {end.status}"
        self._lose(what, process.stderr_tail)

    def _lose(self, what: str, words: str) -> None:
        if self.lost is not None:
            return
        name = self._server.name
        self.lost = texts.lost(name, what, words)
        waiting, self.waiting = self.waiting, {}
        read, now = self._written - self._unread, trio.current_time()
        calls = sum(each.upto <= read and each.outgoing.method == "tools/call" for each in waiting.values())
        for each in waiting.values():
            error = (
                texts.lost(name, what, words, each.outgoing, since=now - each.since, others=calls - 1)
                if each.upto <= read
                else texts.unsent(name, what, words, each.outgoing)
            )
            trio.lowlevel.reschedule(each.task, outcome.Error(error))


def _quoted(line: bytes) -> str:
    return f"{line[:80].decode('utf-8', 'replace').strip()!r}, ..."


def _at_home(path: str) -> str:
    """`~/bin/x` as a shell would have it, since no shell sees it."""
    return str(Path(path).expanduser()) if path.startswith("~/") else path
