"""Connecting to a server: the link for its type, the handshake, and the end of both.

    async with connect(me, server, environ=os.environ, abilities=OfferedCapabilities()) as client:
        print(await client.tools())

The link has an actor of its own below `me`, so that a first attempt may fail without `me` failing: a process that exits
on an unknown request, or an address that supports only an older HTTP transport. Once there is a client, the end of the
link ends `me`, which owns it.

**Package runners** (`npx`, `uvx`). Their downloads do not count as start time of a server. The first start of `npx -y
SERVER` downloads packages for minutes on a slow line. A start timeout that includes them aborts the download, and the
next attempt starts from the beginning. A runner is finished once its process has become the server (uvx) or has started
it (npx). Until then all processes of the tree belong to the runner or its sandbox.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Never

import trio

from .....protocol.errors import ActorFailed, CallboardError, McpLost
from .....protocol.mcp.config import Server, entry_of
from .....protocol.mcp.model import HANDSHAKE, LogMessage
from .....protocol.version import VERSION
from .....supervisors import Actor, Ref
from .....supervisors.process import Process, ProcessStop
from ..auth.access import ServerAccess
from ..links import texts
from ..links.link import Link, ServerRequestHandler
from ..links.stdio import StdioLink, open_stdio
from .client import McpClient
from .handshake import OfferedCapabilities

if TYPE_CHECKING:
    from ...sandbox.policy import SandboxPlace

__all__ = ["OfferedCapabilities", "connect"]

STOP_WITHIN = ProcessStop().within + 1.0
"""Seconds for a link to end, its process included."""

JUNK_TOLD = 20
"""Lines on stdout without a message that are logged at most."""

NO_ENDPOINT = (400, 404, 405)
"""Status codes with which HTTP servers of 2024-11-05 answer a POST where they expect a GET."""

Opener = Callable[["Actor"], AbstractAsyncContextManager[Link]]


@asynccontextmanager
async def connect(
    me: Actor,
    server: Server,
    *,
    environ: Mapping[str, str],
    abilities: OfferedCapabilities,
    host: ServerRequestHandler | None = None,
    on_change: Callable[[str], None] | None = None,
    on_log: Callable[[LogMessage], None] | None = None,
    remembered: str = "",
    access: ServerAccess | None = None,
    place: SandboxPlace | None = None,
) -> AsyncIterator[McpClient]:
    """Yield a client of the server, started and initialized within its `start_timeout_seconds`.

    Downloads by package runners do not count as start time.

    `me` owns the connection, which ends when the block ends or when `me` does. If the connection is lost, `me` crashes
    with `McpLost`.

    Args:
        server: its entry, with resolved values.
        environ: environment of Callboard.
        abilities: capabilities that the client declares.
        host: answers requests of the server outside of calls with a host of their own.
        on_change: receives `tools`, `resources`, `prompts` or a resource's URI; must neither wait nor raise.
        on_log: receives log messages of the server; must neither wait nor raise.
        remembered: the revision of the last connection; "" if unknown.
        access: its tokens, if it may require them.
        place: sandbox rules of its process; None for no sandbox.

    Raises:
        McpLost: the server could not be started or reached, or was not ready in time. The text quotes the last stderr
            output of a stdio server.
        McpError: there is no common revision, or the server refuses the handshake.
    """
    client = McpClient(me, server, abilities, host=host, on_change=on_change, on_log=on_log, version=VERSION)
    attempt = _Attempt(me, server, environ, client, access, place)
    try:
        await attempt.install()
        with trio.move_on_after(server.start_timeout_seconds) as limit:
            fetches = attempt.may_download
            helper = me.spawn(attempt.give_time, limit, name="download", link=False) if fetches else None
            try:
                await attempt.make(remembered)
            finally:
                if helper is not None:
                    helper.cancel()
        if limit.cancelled_caught:
            what = f"was not ready within {server.start_timeout_seconds:g} s"
            if attempt.downloads:
                what += (
                    f", not counting {attempt.downloads:.0f} s in which '{server.command}' was downloading its package"
                )
            what += f" (raise `start_timeout_seconds` of {entry_of(server)})"
            raise texts.lost(server.name, what + attempt.junk, attempt.words)
        watch = me.spawn(attempt.watch, name="watch")
        try:
            yield client
        finally:
            watch.cancel()
    finally:
        await attempt.end()


class _Attempt:
    def __init__(
        self,
        me: Actor,
        server: Server,
        environ: Mapping[str, str],
        client: McpClient,
        access: ServerAccess | None,
        place: SandboxPlace | None,
    ) -> None:
        self._me = me
        self._server = server
        self._environ = environ
        self._client = client
        self._access = access
        self._place = place
        self._shows: tuple[str, ...] = ()
        self.downloads = 0.0
        self._junk = 0
        self._first_junk = ""
        self._ref: Ref[Never, None] | None = None

    @property
    def words(self) -> str:
        """Standard error output of the server's process."""
        link = getattr(self._client, "link", None)
        return link.process.stderr_tail if isinstance(link, StdioLink) else ""

    @property
    def may_download(self) -> bool:
        """True if a package runner starts it, which may have to download it."""
        return self._server.type == "stdio" and is_runner(self._server.command)

    async def install(self) -> None:
        """Install its package in advance, if a runner would have to download it into the sandbox."""
        if self._place is None or not self.may_download:
            return
        from .packages import installed

        def log(text: str) -> None:
            self._client.log("warning", text)

        self._server, self._shows = await installed(self._me, self._server, self._environ, self._place, log)

    async def make(self, remembered: str) -> None:
        if self._server.type == "stdio":
            await self._stdio(remembered)
        else:
            await self._http(remembered)

    async def _stdio(self, remembered: str) -> None:
        await self._open(self._open_stdio)
        try:
            await self._client.shake_hands(remembered)
        except McpLost:
            if remembered in HANDSHAKE:
                raise
            # Some servers of the old era exit on a first request other than `initialize`.
            await self._open(self._open_stdio)
            await self._client.shake_hands(HANDSHAKE[0])
        link = self._client.link
        assert isinstance(link, StdioLink)
        # From here on the server may have state to save, so it gets the regular time to stop.
        link.process.stop_as(ProcessStop())
        self._client.pid = link.process.pid
        self._client.hint = link.hint

    async def give_time(self, _: Actor, limit: trio.CancelScope) -> None:
        """Extend the limit by the time in which the server is still being downloaded, and log that once."""
        while self.downloads < MOST:
            await trio.sleep(LOOKS_EVERY)
            link = getattr(self._client, "link", None)
            if not isinstance(link, StdioLink) or not await is_downloading(link.process):
                continue
            if not self.downloads:
                command, most = self._server.command, f"{MOST:g} s"
                self._client.log(
                    "warning",
                    (
                        f"'{command}' is downloading the server's package; the download may take {most} in "
                        "addition to the start timeout"
                    ),
                )
            self.downloads += LOOKS_EVERY
            limit.deadline += LOOKS_EVERY

    async def _http(self, remembered: str) -> None:
        from .....protocol.errors import HttpRefused
        from ..links.http import open_http, open_sse

        server, client, environ, access = self._server, self._client, self._environ, self._access
        if server.type == "http":
            await self._open(lambda own: open_http(own, server, client, environ, access))
            try:
                return await client.shake_hands(remembered)
            except HttpRefused as refused:
                # An address that refuses the POST may be an SSE endpoint of 2024-11-05.
                if refused.status not in NO_ENDPOINT:
                    raise
                first = refused
        else:
            first = None
        try:
            await self._open(lambda own: open_sse(own, server, client, environ, access))
            await client.shake_hands(HANDSHAKE[0])
        except CallboardError as error:
            # The first error concerns the configured transport and explains more than that of the fallback.
            raise first or error from None

    def _open_stdio(self, own: Actor) -> AbstractAsyncContextManager[Link]:
        return open_stdio(
            own,
            self._server,
            self._client,
            environ=self._environ,
            on_junk=self._on_junk,
            place=self._place,
            shows=self._shows,
        )

    async def _open(self, opener: Opener) -> None:
        # The link of a failed attempt must end before another one starts.
        await self.end()
        try:
            self._ref = await self._me.start(self._live, opener, name="link", link=False, stop_within=STOP_WITHIN)
        except ActorFailed as failed:
            if isinstance(failed.__cause__, CallboardError):
                raise failed.__cause__ from None
            raise

    async def _live(self, own: Actor, opener: Opener) -> None:
        async with opener(own) as self._client.link:
            own.started()
            await trio.sleep_forever()

    async def watch(self, _: Actor) -> None:
        """Wait for the end of the link and fail with it. The actor is linked to the owner, which fails with it."""
        assert self._ref is not None
        end = await self._ref.wait()
        if end.error is not None:
            raise self._client.link.lost or end.error

    async def end(self) -> None:
        if self._ref is not None:
            self._ref.cancel()
            with self._me.root.shield(STOP_WITHIN):
                await self._ref.wait()

    @property
    def junk(self) -> str:
        """Note on the process's output outside of messages; "" without any."""
        return f"; it wrote lines that are not MCP messages to its stdout: {self._first_junk!r}" if self._junk else ""

    def _on_junk(self, line: bytes) -> None:
        self._junk += 1
        if self._junk <= JUNK_TOLD:
            text = line[:500].decode("utf-8", "replace").strip()
            self._first_junk = self._first_junk or text[:100]
            self._client.log("warning", f"wrote a line that is not an MCP message to its stdout: {text}")


RUNNERS = frozenset(("npx", "bunx", "pnpx", "uvx", "pipx", "npm", "pnpm", "yarn", "uv"))
"""Commands that download the program they start."""

_SCRIPTS = frozenset(("npx", "npm", "npx-cli.js", "npm-cli.js", "pnpm", "pnpm.cjs", "pnpx", "yarn", "yarn.js"))
"""Scripts that an interpreter runs for such a command."""

_AROUND = frozenset(("bwrap", "git", "git-remote-https", "ssh"))
"""The sandbox, and programs with which runners download."""

LOOKS_EVERY = 1.0
MOST = 240.0
"""Seconds that a download may take in addition to the start timeout."""


def is_runner(command: str) -> bool:
    """Return True for a command that may have to download the server before it starts it."""
    return os.path.basename(command) in RUNNERS  # noqa: PTH119 - a text, not a path of this machine


def names_runner(line: str, directory: Path) -> bool:
    """Return True if a shell line starts a package runner: by its name, or by the first line of a script. Blocks."""
    for word in line.replace(";", " ").replace("&", " ").replace("|", " ").split():
        word = word.strip("\"'")
        if is_runner(word):
            return True
        try:
            with (directory / word).open("rb") as file:
                first = file.readline(500)
        except (OSError, ValueError):
            continue
        if first.startswith(b"#!") and any(is_runner(each) for each in first[2:].decode(errors="replace").split()):
            return True
    return False


async def is_downloading(process: Process) -> bool:
    """Return True while the tree has processes and each belongs to a package runner, its sandbox, or its downloads."""
    pids = await process.members()
    return bool(pids) and await trio.to_thread.run_sync(_are_runners, pids)


def _are_runners(pids: Iterable[int]) -> bool:
    lines = [_words(pid) for pid in pids]
    return all(is_of_runner(words) for words in lines if words)


def is_of_runner(words: list[str]) -> bool:
    """Return True if a command line is that of a package runner, of its sandbox, or of a program it downloads with."""
    name = os.path.basename(words[0].split(" ")[0])  # noqa: PTH119 - as above; npm calls itself "npm exec PACKAGE"
    if name in RUNNERS | _AROUND:
        return True
    script = next((word for word in words[1:] if not word.startswith("-")), "")
    return name in ("node", "python3", "python") and os.path.basename(script) in _SCRIPTS  # noqa: PTH119 - as above


def _words(pid: int) -> list[str]:
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # the process has ended
        return []
    return [word.decode(errors="replace") for word in data.split(b"\0") if word]
