"""A server of the control channel in a thread of its own, with real runs on the scripted model server.

The tests' own thread stays free for the commands, which run trio and hear signals in the main thread.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

import callboard
from callboard.actors.front.access.access_control import AccessControl
from callboard.actors.front.control.hub import Hub
from callboard.actors.front.control.methods import open_hub
from callboard.actors.front.control.websocket import serve_websocket
from callboard.actors.front.server.token_file import ServerFile, remove_server, write_server
from callboard.protocol.control.caller import LOCAL
from callboard.protocol.control.method_structs import StartRun
from callboard.protocol.control.resources import RunInfo
from callboard.protocol.settings.api import ApiSettings
from callboard.supervisors import Actor
from support.fake_models import FakeModels, listening
from support.waiting import PATIENCE


class ControlServer:
    """The server, as the tests' thread sees it.

    Attributes:
        config_dir: where its agents are; its default model is `models`.
        url, token: what clients need.
        hub: use it through `call`.
    """

    def __init__(self, config_dir: Path, models: FakeModels) -> None:
        self.config_dir = config_dir
        self.models = models
        self.token = "local-server-token"
        self.url = ""
        self.hub: Hub
        self.root: callboard.Root
        self.connections: list[trio.SocketStream] = []
        self.trio_token = trio.lowlevel.current_trio_token()
        self.scope = trio.CancelScope()

    def call(self, work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What `work` returns, called in the server's thread; awaited, if it is to be."""

        async def play() -> Any:
            found = work(*arguments, **options)
            return await found if hasattr(found, "__await__") else found

        return trio.from_thread.run(play, trio_token=self.trio_token)

    def agent(self, name: str, graph: str) -> None:
        """Write `agents/<name>/graph.yaml`."""
        home = self.config_dir / "agents" / name
        home.mkdir(parents=True, exist_ok=True)
        (home / "graph.yaml").write_text(f"name: {name}\n{graph}")

    def start(self, target: str, prompt: str = "go", **more: Any) -> RunInfo:
        """Start a run."""
        info = self.call(self.hub.start, LOCAL, StartRun(target=target, prompt=prompt, **more))
        assert isinstance(info, RunInfo)
        return info

    def get(self, run: str) -> RunInfo:
        """How it stands."""
        info = self.call(self.hub.get, LOCAL, run)
        assert isinstance(info, RunInfo)
        return info

    def asked(self, run: str) -> str:
        """The id of the run's open question, once there is one."""

        async def look() -> str:
            with trio.fail_after(PATIENCE):
                while not (found := self.hub.questions(LOCAL, run)):
                    await trio.sleep(0.005)
            return found[0].id

        return str(self.call(look))

    def answer(self, question: str, value: str) -> bool:
        """Answer it, as another client of the same user would."""
        return bool(self.call(self.hub.answer, LOCAL, question, value))

    def ended(self, run: str) -> RunInfo:
        """The run, once it is over and its log is on disk, where `callboard logs` reads it."""

        async def wait() -> None:
            with trio.fail_after(PATIENCE):
                while not self.hub.get(LOCAL, run).over:
                    await trio.sleep(0.005)
                await self.hub.logs.flush()

        self.call(wait)
        return self.get(run)

    def drop(self) -> None:
        """Cut the connections of all clients."""

        async def cut() -> None:
            for stream in list(self.connections):
                await trio.aclose_forcefully(stream)

        self.call(cut)


@contextmanager
def open_control_server(tmp_path: Path) -> Iterator[ControlServer]:
    """The server, until the block ends. `XDG_STATE_HOME` says where it leaves its file and its logs."""
    ready: queue.Queue[ControlServer | BaseException] = queue.Queue()
    thread = threading.Thread(target=trio.run, args=(_serve, tmp_path, ready))
    thread.start()
    control_server = ready.get(timeout=PATIENCE)
    if isinstance(control_server, BaseException):
        thread.join()
        raise control_server
    try:
        yield control_server
    finally:
        control_server.trio_token.run_sync_soon(control_server.scope.cancel)
        thread.join()


async def _serve(tmp_path: Path, ready: queue.Queue[ControlServer | BaseException]) -> None:
    try:
        listener, port = listening()
        models = FakeModels(port)
        control_server = ControlServer(models.config_dir(tmp_path / "config"), models)
        with control_server.scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(models.serve, listener)
                async with callboard.Root(config_dir=control_server.config_dir, wait_for_front_end=True) as root:
                    control_server.root = root
                    ref = root.kernel.spawn(partial(_control, control_server, ready), name="control", link=False)
                    end = await ref.wait()
                    ready.put(end.error or RuntimeError("the server has ended"))
    except BaseException as error:
        ready.put(error)
        raise


async def _control(control_server: ControlServer, ready: queue.Queue[ControlServer | BaseException], me: Actor) -> None:
    access = AccessControl(ApiSettings(), local_token=control_server.token, loopback=True)
    async with open_hub(control_server.root) as control_server.hub, trio.open_nursery() as nursery:

        async def serve(stream: trio.SocketStream) -> None:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # a reader who stands still is felt soon
            control_server.connections.append(stream)
            try:
                await serve_websocket(me, stream, control_server.hub, access, peer="127.0.0.1")
            finally:
                control_server.connections.remove(stream)

        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        control_server.url = f"http://127.0.0.1:{port}"
        file = ServerFile(url=control_server.url, token=control_server.token, pid=os.getpid(), started=1.0)
        path = write_server(file, port, os.environ)
        try:
            ready.put(control_server)
            await trio.sleep_forever()
        finally:
            remove_server(path, control_server.token)
