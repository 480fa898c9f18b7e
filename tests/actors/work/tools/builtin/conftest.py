"""A project directory, the built-in tools over it, and a way to call them as an actor would."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from support.fake_models import Incoming

from callboard.actors.work.tools.builtin.table import builtin_tools
from callboard.protocol.errors import ActorFailed
from callboard.protocol.events import Event
from callboard.supervisors import Actor, Root


class Bench:
    """Calls tools.

    Attributes:
        project: the working directory.
        root: of all actors.
        environ, roots, timeout: of the table.
        within: seconds after which a call is cut off, as whoever plays calls does.
        events: so far.
    """

    def __init__(self, project: Path, root: Root) -> None:
        self.project = project
        self.root = root
        self.environ: dict[str, str] = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self.roots: list[Path] = []
        self.timeout = 30.0
        self.within = float("inf")
        self.events: list[Event] = []

    async def __call__(self, tool: str, /, **arguments: Any) -> Any:
        """The result of one call, in an actor of its own; its failure is raised as it is."""
        tools = builtin_tools(self.environ, self.roots, timeout=self.timeout)

        async def body(me: Actor) -> Any:
            with trio.move_on_after(self.within):
                return await tools[tool].run(me, arguments)
            raise TimeoutError("the call was cut off from outside")

        ref = self.root.spawn(body, name=tool, link=False)
        try:
            return await ref.result()
        except ActorFailed as failed:
            raise (failed.__cause__ or failed) from None
        finally:
            ref.cancel()

    def file(self, name: str, contents: str | bytes = "") -> Path:
        """Write a file of the project."""
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        return path


@pytest.fixture
async def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """See `Bench`."""
    project = (tmp_path / "project").resolve()
    project.mkdir()
    monkeypatch.chdir(project)
    async with Root() as root:
        bench = Bench(project, root)
        with root.bus.listen(bench.events.append):
            yield bench


class Site:
    """A web server on loopback. `answer(target)` gives (status, headers, body); `targets` were asked for;
    with `stall` it answers nothing, and `hung_up` is set when the client goes."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.targets: list[str] = []
        self.answer: Callable[[str], tuple[int, dict[str, str], bytes]] = lambda target: (404, {}, b"")
        self.stall = False
        self.hung_up = trio.Event()

    def page(self, body: str | bytes, kind: str = "text/html; charset=utf-8", status: int = 200) -> None:
        """Answer everything with this."""
        data = body if isinstance(body, bytes) else body.encode()
        self.answer = lambda target: (status, {"Content-Type": kind}, data)

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection."""
        request = await Incoming(stream).next()
        if request is None:
            return
        self.targets.append(request.path)
        if self.stall:
            assert not await stream.receive_some()
            self.hung_up.set()
            return
        status, headers, body = self.answer(request.path)
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
    sock.listen(16)
    site = Site(sock.getsockname()[1])
    nursery.start_soon(trio.serve_listeners, site.serve, [trio.SocketListener(sock)])
    return site


@pytest.fixture
def nowhere() -> str:
    """A URL of loopback where nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}"
