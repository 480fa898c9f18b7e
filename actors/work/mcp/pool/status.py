"""Status of the servers, for `callboard mcp status`.

Other processes of the same user query a process with servers through a Unix socket, in a directory that only its user
may enter. Request and answer are one line of JSON each:

    {"ask":"status"}                        {"pid":4711,"counters":{...},"servers":[...]}
    {"ask":"reload","server":"time"}        {"pid":4711,"reloaded":["time"]} or {"pid":4711,"error":"..."}

The socket exists from the first start of a server until the process ends. It is in a locked directory of the process
(`actors.io.temporary`), which the next command removes if the process was killed.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
import trio

from .....protocol.control.resources import ServerStatus
from .....protocol.decoding import decode_json, json_decoder
from .....protocol.errors import CallboardError
from .....protocol.events import Warned
from .....protocol.mcp.config import Server
from .....supervisors import Actor
from ....io import temporary
from ....io.atomic_write import replacing
from ....io.secret_redaction import hidden

if TYPE_CHECKING:
    from .pool import LiveServer, ServerCatalog, ServerRecord

Json: TypeAlias = Any

MAX_INQUIRY = 4096
"""Bytes of a request at most."""

MAX_ANSWER = 4 * 1024 * 1024

ASKERS = 16
"""Requests served concurrently; further ones wait."""

ASK_WITHIN = 2.0
"""Seconds for a request to arrive, and for an answer to be read."""

ANSWER_WITHIN = 60.0
"""Seconds to wait for an answer: a reload waits for active calls."""


class Counters(msgspec.Struct, kw_only=True):
    """Counters of the pool.

    Attributes:
        spawned: servers started.
        acquire_active_hit, acquire_idle_hit, acquire_miss: leases that found their server in use, found it idle, or
            waited for a start.
        acquire_seconds: total waiting time of these leases.
        idle_evicted, lru_evicted: servers stopped after their idle time, or as the least recently used.
        health_ok, health_failed: pings of idle servers.
        failed_starts, lost: failed starts, and servers that ended unexpectedly.
        restarts: starts after a failed start or an unexpected end.
        reloads: requested reloads.
    """

    spawned: int = 0
    acquire_active_hit: int = 0
    acquire_idle_hit: int = 0
    acquire_miss: int = 0
    acquire_seconds: float = 0.0
    idle_evicted: int = 0
    lru_evicted: int = 0
    health_ok: int = 0
    health_failed: int = 0
    failed_starts: int = 0
    lost: int = 0
    restarts: int = 0
    reloads: int = 0


def status_of(
    server: Server,
    digest: str = "",
    record: ServerRecord | None = None,
    catalog: ServerCatalog | None = None,
    live: LiveServer | None = None,
    leases: int = 0,
) -> ServerStatus:
    """Return the status of one server. Each missing argument leaves its fields out; without `live` it does not run."""
    about: dict[str, Json] = {"name": server.name, "type": server.type, "share": server.share, "state": "cold"}
    now = trio.current_time()
    if record is not None:
        retry = max(0.0, record.breaker.not_before - now)
        about |= {
            "key": digest[:12],
            "state": "down" if record.breaker.down else "cold",
            "breaker": record.breaker.state(now),
            "retry_seconds": retry,
            "calls": record.calls,
            "errors": record.errors,
            "restarts": record.breaker.restarts,
            "last_error": hidden(record.last_error),
        }
    if catalog is not None:
        about |= {
            "server": catalog.server.name,
            "version": catalog.server.version,
            "protocol": catalog.version,
            "tools": len(catalog.within(server.tools).tools),
        }
    if live is not None:
        about |= {"state": "starting", "by": live.key.by, "uptime": now - live.since}
    if live is not None and live.open:
        about |= {
            "state": "leased" if leases or live.client.pending else "idle",
            "pid": live.client.pid,
            "leases": leases,
            "pending": live.client.pending,
        }
    return ServerStatus(**about)


class Inquiry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Request of another process for this one's status, or for a reload."""

    ask: Literal["status", "reload"]
    server: str | None = None


# --- server -----------------------------------------------------------------------------------------

Answerer: TypeAlias = Callable[[Inquiry], Awaitable[dict[str, Json]]]


async def answer_inquiries(me: Actor, directory: Path, answer: Answerer) -> None:
    """Body of the actor that answers requests of other processes. Returns with a warning if there can be no socket."""
    try:
        listener, path = _listening(directory)
    except OSError as error:
        me.emit(Warned(code="mcp_status", message=f"`callboard mcp status` can't query this process: {error}"))
        return
    free = trio.Semaphore(ASKERS)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_serve, listener, answer, free, nursery)
            async for _ in me:
                pass
            nursery.cancel_scope.cancel()
    finally:
        listener.close()
        temporary.remove(path)


def _listening(directory: Path) -> tuple[trio.socket.SocketType, Path]:
    path = temporary.reserve(f"mcp-{os.getpid()}", ".sock", bases=[temporary.ProcessDirectoryBase(directory)])
    raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with replacing(path) as part:  # so that a refused connection proves that no process listens
            with _short(part) as address:
                raw.bind(address)
            part.chmod(0o600)
            raw.listen(ASKERS)
    except OSError:
        raw.close()
        temporary.remove(path)
        raise
    return trio.socket.from_stdlib_socket(raw), path


async def _serve(
    listener: trio.socket.SocketType, answer: Answerer, free: trio.Semaphore, nursery: trio.Nursery
) -> None:
    while True:
        await free.acquire()
        try:
            asker, _ = await listener.accept()
        except OSError:  # too many open files, which is temporary
            free.release()
            await trio.sleep(0.1)
            continue
        nursery.start_soon(_hear, trio.SocketStream(asker), answer, free)


async def _hear(asker: trio.SocketStream, answer: Answerer, free: trio.Semaphore) -> None:
    try:
        async with asker:
            with trio.fail_after(ASK_WITHIN):
                line = await _line(asker, MAX_INQUIRY)
            data = await _answered(answer, line)
            with trio.fail_after(ASK_WITHIN):
                await asker.send_all(data + b"\n")
    except (OSError, trio.TooSlowError, trio.BrokenResourceError):
        pass  # the client has disconnected, or is too slow
    finally:
        free.release()


async def _answered(answer: Answerer, line: bytes) -> bytes:
    """Return the line of the answer; errors become an answer too, so that the socket keeps serving."""
    try:
        return msgspec.json.encode({"pid": os.getpid(), **await answer(_INQUIRIES.decode(line))})
    except (CallboardError, msgspec.MsgspecError) as error:
        why = str(error)
    except Exception as error:  # noqa: BLE001 - the asker gets the error
        why = f"it crashed: {error!r}"
    return msgspec.json.encode({"pid": os.getpid(), "error": why})


# --- client -----------------------------------------------------------------------------------------


async def ask_all(directory: Path, request: Mapping[str, Json]) -> list[dict[str, Json]]:
    """Ask every process that has servers, all at the same time, and return their answers by process id.

    The entry of a process that does not answer is `{"pid": 4711, "error": "..."}`; of one that ended meanwhile,
    `{"pid": 4711, "ended": true}`. A process that no longer listens at the start has no entry.
    """
    answers: list[dict[str, Json]] = []
    try:
        paths = sorted(directory.glob("*/mcp-*.sock"))  # noqa: ASYNC240 - a short directory
    except OSError:
        paths = []
    async with trio.open_nursery() as nursery:
        for path in paths:
            nursery.start_soon(_ask, path, msgspec.json.encode(request) + b"\n", answers)
    return sorted(answers, key=lambda answer: int(answer["pid"]))


async def _ask(path: Path, request: bytes, answers: list[dict[str, Json]]) -> None:
    number = path.name.split("-")[1].split(".")[0]
    pid = int(number) if number.isdecimal() else 0
    try:
        with _short(path) as address, trio.fail_after(ANSWER_WITHIN):
            async with await trio.open_unix_socket(address) as stream:
                await stream.send_all(request)
                line = await _line(stream, MAX_ANSWER)
        answer = decode_json(line, dict[str, Json]) if line else {"ended": True}
        answers.append({**answer, "pid": pid})
    except (ConnectionRefusedError, FileNotFoundError):
        pass  # it has just ended, or was killed: the next command removes its files
    except trio.TooSlowError:
        answers.append({"pid": pid, "error": f"process {pid} did not answer within {ANSWER_WITHIN:g} s"})
    except (OSError, trio.BrokenResourceError, msgspec.MsgspecError) as error:
        if not Path(f"/proc/{pid}").exists():  # noqa: ASYNC240 - no disk
            answers.append({"pid": pid, "ended": True})
        else:
            answers.append({"pid": pid, "error": f"process {pid} did not answer: {str(error) or type(error).__name__}"})


async def _line(stream: trio.SocketStream, most: int) -> bytes:
    """Return the bytes before the newline, or before the end."""
    data = bytearray()
    while b"\n" not in data:
        more = await stream.receive_some()
        if not more:
            break
        data += more
        if len(data) > most:
            raise trio.BrokenResourceError("the line is too long")
    return bytes(data).partition(b"\n")[0]


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Yield a short address for a path of any length: the kernel accepts 107 bytes."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


_INQUIRIES = json_decoder(Inquiry)
