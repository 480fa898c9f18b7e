"""Gathers sources as an actor would, from a directory and from a web server on loopback."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
from support.fake_models import Incoming

from callboard.actors.work.knowledge.sources.found import FoundSource, SourceSettings
from callboard.actors.work.knowledge.sources.gather import gather
from callboard.protocol.errors import ActorFailed
from callboard.protocol.knowledge import Document, Unreadable
from callboard.supervisors import Actor, Root

T = TypeVar("T")


class Bench:
    """See the module.

    Attributes:
        base: what paths are relative to.
        environ, settings: of every gathering; the settings as a dictionary.
        history: where crawls remember.
        found: of the last gathering, the readable ones.
        problems: of the last gathering: reasons by name, also of those found unreadable when they were read.
    """

    def __init__(self, base: Path, root: Root) -> None:
        self.base = base
        self.root = root
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(base)}
        self.settings: dict[str, Any] = {"allow_private": True, "delay": 0.0}
        self.history: Path | None = None
        self.found: list[FoundSource] = []
        self.problems: dict[str, str] = {}

    def file(self, name: str, contents: str | bytes = "text") -> Path:
        """Write a file."""
        path = self.base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        return path

    async def as_actor(self, work: Callable[[Actor], Awaitable[T]]) -> T:
        """Do something in an actor's body; its failure is raised as it is."""
        try:
            return await self.root.spawn(work, name="bench", link=False).result()
        except ActorFailed as failed:
            raise (failed.__cause__ or failed) from None

    async def names(self, *specs: str) -> list[str]:
        """The names of what is found, in order; nothing is read."""
        await self.as_actor(lambda me: self._gather(me, specs))
        return [found.source for found in self.found]

    async def read(self, *specs: str) -> dict[str, str]:
        """The texts of all that is found, by name."""

        async def body(me: Actor) -> dict[str, str]:
            texts: dict[str, str] = {}
            await self._gather(me, specs)
            for found in self.found:
                for document in await found.documents():
                    if isinstance(document, Unreadable):
                        self.problems[document.source] = document.reason
                    else:
                        texts[document.source] = texts.get(document.source, "") + document.text
            return texts

        return await self.as_actor(body)

    async def one(self, spec: str) -> tuple[str, Document]:
        """Digest and document of the only thing that is found."""

        async def body(me: Actor) -> tuple[str, Document]:
            await self._gather(me, [spec])
            (found,) = self.found
            digest = await found.digest()
            (document,) = await found.documents()
            assert isinstance(digest, str)
            assert isinstance(document, Document)
            return digest, document

        return await self.as_actor(body)

    async def _gather(self, me: Actor, specs: Any) -> None:
        self.found = []
        self.problems = {}
        settings = SourceSettings(**self.settings)
        every = gather(me, specs, base=self.base, environ=self.environ, settings=settings, history=self.history)
        async with aclosing(every) as findings:
            async for finding in findings:
                if isinstance(finding, Unreadable):
                    self.problems[finding.source] = finding.reason
                else:
                    self.found.append(finding)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """See `Bench`."""
    base = (tmp_path / "base").resolve()
    base.mkdir()
    async with Root() as root:
        yield Bench(base, root)


class Site:
    """A web server. `pages` maps targets to bodies, or to (status, headers, body); anything else is 404.

    Attributes:
        targets: what was asked for, in order.
        most: requests that were under way at once.
        hold: while set, requests wait for it.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.pages: dict[str, str | tuple[int, dict[str, str], bytes]] = {}
        self.targets: list[str] = []
        self.times: list[float] = []
        self.most = 0
        self.hold: trio.Event | None = None
        self.answer: Callable[[str], str | tuple[int, dict[str, str], bytes] | None] = self.pages.get
        self._now = 0

    def reset(self) -> None:
        """Forget what was asked for."""
        self.targets.clear()
        self.times.clear()

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection."""
        request = await Incoming(stream).next()
        if request is None:
            return
        self.targets.append(request.path)
        self.times.append(trio.current_time())
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            if self.hold is not None:
                await self.hold.wait()
            await self._say(stream, self.answer(request.path))
        finally:
            self._now -= 1

    async def _say(self, stream: trio.SocketStream, said: str | tuple[int, dict[str, str], bytes] | None) -> None:
        if said is None:
            said = (404, {}, b"")
        if isinstance(said, str):
            said = (200, {"Content-Type": "text/html; charset=utf-8"}, said.encode())
        status, headers, body = said
        lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        try:
            await stream.send_all("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
            await stream.aclose()
        except trio.BrokenResourceError:
            pass  # the client has had enough


@pytest.fixture
async def site(nursery: trio.Nursery) -> Site:
    """See `Site`."""
    sock = trio.socket.socket()
    await sock.bind(("127.0.0.1", 0))
    sock.listen(64)
    site = Site(sock.getsockname()[1])
    nursery.start_soon(trio.serve_listeners, site.serve, [trio.SocketListener(sock)])
    return site
