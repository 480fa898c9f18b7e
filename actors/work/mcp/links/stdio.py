"""Link to a server that is a child process: requests on its stdin and answers on its stdout, one per line.

**Tasks.** The owner starts the process; a child of the owner reads. The requesting task writes its request straight
into the pipe and sleeps until the reader wakes it with the answer. No other task runs in between. Only when the pipe is
full does the rest go to an outbox of bounded size, which a second child empties. So a server that does not read delays
only its own callers.

**Invalid output.** Lines without a message (banners, prints) are skipped and counted, up to a limit between two
messages. A line that is too long fails the request that it answers; a line that does not end loses the connection. If
the output ends, all requests fail with the process's end and its last stderr output. The reader crashes with that
error, and the owner with the reader; the rest of the process ends with its owner. A request whose last byte the server
has not read was not executed, and may be repeated: `McpUnsent`.

**Why not `io.peer`.** A round trip takes 28 µs of CPU here and 44 µs through a peer with its outbox; 14 and 21 µs with
1,000 concurrent calls (2026-11-23, a server that answers at once, best of 5). The peer's writer and its events cost two
more task switches per call. The peer also does not know which requests the server has read, and that decides which ones
may be repeated.

**Long lines.** A line longer than the limit is never held. It is discarded as it arrives, except its beginning and its
last bytes: one of them contains the id of the request that it answers. Discarding has a limit too; see
`LineSplitter.endless`.
"""

from __future__ import annotations

import contextlib
import re
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
from .link import Json, OutgoingCall, Receiver

if TYPE_CHECKING:
    from ...sandbox.policy import SandboxPlace

OUTBOX = 16 * 1024 * 1024
"""Bytes queued for a server that does not read."""

TURN = 16
"""Pieces of output processed in a row before other tasks run."""

DIES_WITHIN = 2.0
"""Seconds to wait, after the end of a process's output, for the end of the process.

Until the process is dead, neither its exit status nor the number of unread bytes in its stdin is known: a request that
the server never read would count as executed, and would not be repeated. A process that exits closes its output a
moment before it is dead; on a busy machine that moment was longer than 0.05 s, the value before. Only a server that
closes its output and stays alive costs its callers the whole time.
"""

UNCANCELLABLE = ("initialize", "server/discover")
"""Methods that are not cancelled: the specification forbids it for the first. A server that does not know the second
does not know its cancellation either."""

BEGINNING = b'{"jsonrpc"'
"""Usual beginning of a message."""

DEAF_FOR = 2.0
"""Seconds between the closing of a server's input and the loss of the link: its exit would explain more."""

HASTE = ProcessStop(eof=0.1, term=0.1)
"""Short stop for a server without a completed handshake: it has no state to save, and the user may be waiting."""

REPORTS_WITHIN = 10.0
"""Seconds for the cleanup of a dead process."""


@asynccontextmanager
async def open_stdio(
    me: Actor,
    server: Server,
    receiver: Receiver,
    *,
    environ: Mapping[str, str],
    on_junk: Callable[[bytes], None],
    place: SandboxPlace | None = None,
    shows: tuple[str, ...] = (),
) -> AsyncIterator[StdioLink]:
    """Start the server's process and yield the link to it. The process and its descendants end with `me`.

    Args:
        environ: environment of Callboard, of which the server gets the part that its entry names.
        on_junk: called with each line without a message.
        place: sandbox rules of its process; None for no sandbox.
        shows: directories that it must see, such as that of its package.

    Raises:
        McpUnsent: it could not be started; the text has the reason.
    """
    try:
        held = None
        if place is not None:
            await imported(".actors.work.sandbox.launch")
            from ...sandbox.launch import hold_server

            held = await hold_server(me, place, server.name, server.env, environ, shows=shows)
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
    link = StdioLink(server, process, receiver, on_junk, no_hint if held is None else held.hint)
    me.spawn(link.read, name="reader")
    me.spawn(link.write, name="writer")
    try:
        yield link
    finally:
        link.close()


@final
class _Waiting:
    """Task that waits for an answer; its request ends at byte `upto` of everything sent to the server."""

    __slots__ = ("link", "outgoing", "since", "task", "upto")

    def __init__(self, link: StdioLink, outgoing: OutgoingCall, upto: int) -> None:
        self.link = link
        self.outgoing = outgoing
        self.upto = upto
        self.since = trio.current_time()
        self.task = trio.lowlevel.current_task()

    def give_up(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        """Handle the task's cancellation: notify the server and drop a late answer."""
        link = self.link
        del link.waiting[self.outgoing.id]
        if self.outgoing.method not in UNCANCELLABLE:
            link.notify(
                "notifications/cancelled",
                {"requestId": self.outgoing.id, "reason": "the client no longer needs the result"},
            )
        return trio.lowlevel.Abort.SUCCEEDED


@final
class StdioLink:
    """Link to a server's process; see the module and `Link`.

    Attributes:
        process: the server's process.
        hint: returns the note for a text that the sandbox caused, "" for none.
        waiting: active requests.
        stray: number of answers without a request.
        junk: number of lines without a message.
    """

    def __init__(
        self,
        server: Server,
        process: Process,
        receiver: Receiver,
        on_junk: Callable[[bytes], None],
        hint: Callable[[str], str],
    ) -> None:
        self.modern = False
        self.version = ""
        self.process = process
        self.hint = hint
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

    # --- interface for callers --------------------------------------------------------------------------

    async def request(self, outgoing: OutgoingCall) -> msgspec.Raw:
        self._send(jsonrpc.encode_request(outgoing.id, outgoing.method, outgoing.params))
        # No checkpoint between the write and the registration: the reader can't run before the request is registered.
        waiting = self.waiting[outgoing.id] = _Waiting(self, outgoing, self._written + self._queued)
        answer: msgspec.Raw = await trio.lowlevel.wait_task_rescheduled(waiting.give_up)
        return answer

    def notify(self, method: str, params: Mapping[str, Json]) -> None:
        self.respond(jsonrpc.encode_notification(method, params))

    def respond(self, message: bytes, about: OutgoingCall | None = None) -> None:  # noqa: ARG002 - for other transports
        with contextlib.suppress(McpError):
            self._send(message)

    def close(self) -> None:
        """Lose the link: active requests fail, later ones raise `McpUnsent`. The process ends with its owner."""
        self._lose("is being stopped", "")

    # --- sending ----------------------------------------------------------------------------------------------

    def _send(self, message: bytes) -> None:
        if self.lost is not None:
            raise McpUnsent(str(self.lost))
        data = message + b"\n"
        if self._queued + len(data) > OUTBOX:
            raise McpError(
                f"MCP server '{self._server.name}' does not read its stdin: {self._queued:,} bytes are "
                f"queued, and {len(data):,} more would exceed the limit of {OUTBOX:,}"
            )
        sent = 0
        # Only into an empty queue: a direct write must not overtake queued bytes.
        if not self._queued:
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):  # the writer notices it too
                sent = self._stdin.send_nowait(data)
                self._written += sent
        if sent < len(data):
            self._outbox.append(memoryview(data)[sent:])
            self._queued += len(data) - sent
            self._more.set()

    async def write(self, _: Actor) -> None:
        """Body of the writer: empty the outbox until the server closes its input, then lose the link and crash."""
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
        self._lose("closed its stdin", self.process.stderr_tail)
        assert self.lost is not None
        raise self.lost

    # --- receiving --------------------------------------------------------------------------------------------

    async def read(self, _: Actor) -> None:
        """Body of the reader: process the server's output until it ends or the link is lost, then crash."""
        lines = LineSplitter(self._server.max_message_bytes)
        stdout = self.process.stdout
        assert stdout is not None
        turn = TURN
        while self.lost is None and (data := await stdout.receive_soon()):
            for line in lines.feed(data):
                self._take(line)
            if lines.endless:
                what = "wrote too long a line to its stdout; each message must end with a newline"
                self._lose(f"{what} ({_quoted(lines.beginning)})", self.process.stderr_tail)
            # `receive_soon` returns without a checkpoint while there is output, so a talkative server would starve
            # other tasks.
            turn -= 1
            if not turn:
                turn = TURN
                await trio.lowlevel.checkpoint()
        if self.lost is None:
            await self._report_end()
        assert self.lost is not None
        raise self.lost

    def _take(self, line: bytes | LineTooLong) -> None:
        if isinstance(line, LineTooLong):
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
            self._wait_for_end(message.id, outcome.Value(message.result))
        elif isinstance(message, jsonrpc.Notification):
            self._receiver.on_notification(message, None)
        elif isinstance(message, jsonrpc.Request):
            self._receiver.on_request(message, None)
        elif (waiting := self._pop(message.id)) is not None:
            hint = self.hint(message.error.message)
            error = texts.refused(self._server.name, waiting.outgoing, message.error, hint)
            trio.lowlevel.reschedule(waiting.task, outcome.Error(error))

    def _wait_for_end(self, id: jsonrpc.Id, result: outcome.Outcome[msgspec.Raw]) -> None:
        if (waiting := self._pop(id)) is not None:
            trio.lowlevel.reschedule(waiting.task, result)

    def _pop(self, id: jsonrpc.Id | None) -> _Waiting | None:
        number = jsonrpc.number(id)
        waiting = None if number is None else self.waiting.pop(number, None)
        if waiting is None:
            self.stray += 1
        return waiting

    def _take_odd(self, line: bytes, why: ValueError) -> None:
        """Process a line other than a single message: a batch, an empty line, an unreadable answer, or other text."""
        start = line[:64].lstrip()[:1]
        if not start:
            return
        # A byte order mark, or text printed without a newline, may precede a message on its line.
        if (at := 3 if line.startswith(b"\xef\xbb\xbf") else line.find(BEGINNING, 0, HEAD)) > 0:
            with contextlib.suppress(ValueError):
                self._deliver(jsonrpc.decode(line[at:]))
                return
        if start == b"[":
            with contextlib.suppress(ValueError):
                for message in jsonrpc.decode_all(line):
                    self._deliver(message)
                return
        if (id := id_in(line[:HEAD], line[-TAIL:])) in self.waiting:
            assert id is not None
            error = texts.unreadable(self._server.name, texts.described(self.waiting[id].outgoing), why)
            self._wait_for_end(id, outcome.Error(error))
            return
        self.junk += 1
        self._junk_in_row += len(line)
        self._on_junk(line)
        # Such a program is no MCP server; it would only fill the log.
        if self._junk_in_row > JUNK:
            self._lose(f"wrote lines that are not messages to its stdout ({_quoted(line)})", self.process.stderr_tail)

    def _too_long(self, line: LineTooLong) -> None:
        limit = self._server.max_message_bytes
        size = (
            f"a message of {line.size:,} bytes; at most {limit:,} are allowed (`max_message_bytes` of its entry "
            "in mcp.json)"
        )
        if line.id is None:
            self._lose(f"sent {size}", "")
        elif (waiting := self._pop(line.id)) is not None:
            what = f"MCP server '{self._server.name}' answered {texts.described(waiting.outgoing)} with {size}"
            trio.lowlevel.reschedule(waiting.task, outcome.Error(McpError(what)))

    # --- end --------------------------------------------------------------------------------------------

    async def _report_end(self) -> None:
        """Determine how the process ended after its output did, and lose the link."""
        process = self.process
        with trio.move_on_after(DIES_WITHIN):
            await process.exited()
        if process.has_exited:
            self._unread = self._stdin.unread
            with trio.move_on_after(REPORTS_WITHIN):
                await process.ref.wait()
        end = process.ended
        if end is None:
            what = "closed its stdout"
        elif end.signal is not None:
            what = f"was killed by signal {end.signal}"
        else:
            what = f"exited with status {end.status}"
        self._lose(what, process.stderr_tail)

    def _lose(self, what: str, words: str) -> None:
        if self.lost is not None:
            return
        name, hint = self._server.name, self.hint(words)
        self.lost = texts.lost(name, what, words, hint=hint)
        waiting, self.waiting = self.waiting, {}
        # All bytes up to `read` have left the pipe; a request that ends behind them was not received in full.
        read, now = self._written - self._unread, trio.current_time()
        calls = sum(each.upto <= read and each.outgoing.method == "tools/call" for each in waiting.values())
        for each in waiting.values():
            error = (
                texts.lost(name, what, words, each.outgoing, since=now - each.since, others=calls - 1, hint=hint)
                if each.upto <= read
                else texts.unsent(name, what, words, each.outgoing, hint)
            )
            trio.lowlevel.reschedule(each.task, outcome.Error(error))


def no_hint(_: str) -> str:
    """Return no note, for a server without a sandbox."""
    return ""


def _quoted(line: bytes) -> str:
    return f"{line[:80].decode('utf-8', 'replace').strip()!r}, ..."


def _at_home(path: str) -> str:
    """Return the path with `~/` expanded, since no shell does it."""
    return str(Path(path).expanduser()) if path.startswith("~/") else path


HEAD = 256
TAIL = 128

JUNK = 1024 * 1024
"""Bytes without a message, in a row, after which the process counts as no MCP server."""

ENDLESS = 8
LONGEST = 64 * 1024 * 1024
"""Length limit of a discarded line: the larger of this multiple of the limit and these bytes. A longer line counts as
endless."""

_VERSION = rb'(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
_ANSWER = rb'"(?:result|error)"\s*:'  # excludes requests of the server, which have ids too, possibly the same numbers
_ID_FIRST = re.compile(rb"\s*\{\s*" + _VERSION + rb'"id"\s*:\s*(\d+)\s*,\s*' + _VERSION + _ANSWER)
_ANSWER_FIRST = re.compile(rb"\s*\{\s*" + _VERSION + _ANSWER)
_ID_LAST = re.compile(rb'"id"\s*:\s*(\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


class LineTooLong:
    """Placeholder for a line that was too long.

    Attributes:
        size: its bytes, without the newline.
        id: id of the request that it answers, if it can be found.
    """

    __slots__ = ("id", "size")

    def __init__(self, size: int, head: bytes, tail: bytes) -> None:
        self.size = size
        self.id = id_in(head, tail)


def id_in(head: bytes, tail: bytes) -> int | None:
    """Return the id of the request that a line answers, from its beginning and its end; None if neither has it."""
    found = _ID_FIRST.match(head) or (_ANSWER_FIRST.match(head) and _ID_LAST.search(tail))
    return int(found[1]) if found else None


@final
class LineSplitter:
    """Splitter that accepts pieces of output and returns complete lines."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []  # of the incomplete line
        self._size = 0
        self._head = b""
        self._tail = b""

    def feed(self, data: bytes) -> list[bytes | LineTooLong]:
        """Return the lines that end in `data`, in order. A line may include its newline.

        A line beyond the limit is a `LineTooLong` in the result.
        """
        # The common case: a read of exactly one line is returned without a copy, its newline included.
        if not self._size and data.count(b"\n") == 1 and data[-1:] == b"\n":
            return [data] if len(data) <= self._limit else [LineTooLong(len(data) - 1, data[:HEAD], data[-TAIL:])]
        *ends, rest = data.split(b"\n")
        lines: list[bytes | LineTooLong] = []
        for end in ends:
            self._add(end)
            lines.append(self._line())
        self._add(rest)
        return lines

    @property
    def endless(self) -> bool:
        """True if the incomplete line is no message: beyond the limit of `LONGEST`, or beyond `JUNK` bytes without a
        message's beginning.
        """
        if self._size <= JUNK:
            return False
        return self._size > max(ENDLESS * self._limit, LONGEST) or self.beginning.lstrip()[:1] not in (b"{", b"[")

    @property
    def beginning(self) -> bytes:
        """First bytes of the incomplete line, `HEAD` at most."""
        return self._head or b"".join(self._pieces[:1])[:HEAD]

    def _add(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if self._size <= self._limit:
            self._pieces.append(piece)
            return
        # This piece makes the line exceed the limit: from now on only its ends are retained.
        if self._pieces or not self._head:
            self._pieces.append(piece)
            whole = b"".join(self._pieces)
            self._head, self._tail = whole[:HEAD], whole[-TAIL:]
            self._pieces.clear()
        else:
            self._tail = (self._tail + piece)[-TAIL:]

    def _line(self) -> bytes | LineTooLong:
        whole = self._size <= self._limit
        line = b"".join(self._pieces) if whole else LineTooLong(self._size, self._head, self._tail)
        self._pieces.clear()
        self._size = 0
        self._head = self._tail = b""
        return line
