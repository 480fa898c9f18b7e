"""Fixtures of the command line's tests."""

from __future__ import annotations

import io
import json
import queue
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
import trio
from support.control_server import ControlServer, open_control_server
from support.fake_models import FakeModels, listening
from support.screen import Screen

from callboard.cli import main
from callboard.protocol.events import Event, EventData


class Recorder:
    """Numbers the events of one run; all of them happen at one moment."""

    def __init__(self) -> None:
        self._seq = 0

    def __call__(self, data: EventData, actor: str = "/run-1", id: str = "") -> Event:
        self._seq += 1
        now = datetime(2026, 11, 3, 12, 0, 0, tzinfo=UTC)
        return Event(seq=self._seq, ts=now, run="run-1", actor=actor, kind=data.kind, id=id, data=data)


class Terminal(io.StringIO):
    """A stream that says it is a terminal and remembers what was written."""

    def isatty(self) -> bool:
        return True


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache directory of all commands: runs leave their replies there, and the user's is none of ours.

    So with the directory of the state, where it is kept what models have cost.
    """
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(place))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield place


@pytest.fixture
def event() -> Recorder:
    """Makes events: `event(NodeEntered(...), "/run-1/plan")`."""
    return Recorder()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A colourless terminal of 80 columns."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    return Terminal()


@pytest.fixture
def callboard(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Runs one command line in this process: `callboard("init", "x")`."""

    def run(*arguments: str) -> Ended:
        code = main.run(arguments)
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return run


@pytest.fixture
def screen() -> Iterator[Screen]:
    """See `Screen`."""
    screen = Screen()
    yield screen
    screen.close()


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeModels]:
    """A model server in a thread of its own, since these tests give the main one to the command."""
    ready: queue.Queue[tuple[FakeModels, trio.lowlevel.TrioToken, trio.CancelScope]] = queue.Queue()

    async def serve() -> None:
        listener, port = listening()
        server = FakeModels(port)
        with trio.CancelScope() as scope:
            ready.put((server, trio.lowlevel.current_trio_token(), scope))
            await server.serve(listener)

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    server, token, scope = ready.get()
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(server.config_dir(tmp_path / "config")))
    yield server
    token.run_sync_soon(scope.cancel)
    thread.join()


@pytest.fixture
def control_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlServer]:
    """A server that the commands find; see `ControlServer`."""
    for name in ("CALLBOARD_URL", "CALLBOARD_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with open_control_server(tmp_path) as control_server:
        monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(control_server.config_dir))
        yield control_server


@pytest.fixture
def mcp_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes the `mcp.json` of a configuration directory: `mcp_json(time={...})`."""
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "config").mkdir(exist_ok=True)

    def write(**servers: object) -> Path:
        file = tmp_path / "config" / "mcp.json"
        file.write_text(json.dumps({"mcpServers": servers}))
        return file

    return write
