"""A machine with something to lose: secrets, other processes, sockets, servers; and processes in a sandbox there."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from callboard.actors.io.temporary import LazyDirectory, ProcessDirectoryBase
from callboard.actors.work.sandbox.backends import Backend, backend
from callboard.actors.work.sandbox.grants import Grants
from callboard.actors.work.sandbox.policy import Nature
from callboard.actors.work.sandbox.run_sandbox import Sandbox
from callboard.protocol.sandbox import UserSandbox
from callboard.supervisors import Actor, Root
from callboard.supervisors.process import Completed, run_process

SECRET = "the-secret-of-the-host"
OURS = b"only a look"

BACKENDS = ("bubblewrap", "landlock")

PYTHON_ALONE = (sys.executable, "-I", "-S", "-c")  # without site-packages, whose search takes half of a start


def need(kind: str, monkeypatch: pytest.MonkeyPatch) -> Backend:
    """Have this backend used; the test is skipped where it does not work."""
    monkeypatch.setenv("CALLBOARD_SANDBOX_BACKEND", kind)
    way = backend()
    if way.kind != kind:
        pytest.skip(f"no {kind} here: {'; '.join(way.why_not)}")
    return way


class World:
    """See the module.

    Attributes:
        workspace, outside, home: directories; what is below `outside` and `home` is nobody's to change.
        victim: a process of the user's, with a secret in its environment and its memory.
        port: of a server that notes each connection in `connections`.
        abstract, socket: addresses of two more, over Unix sockets; the last lies in a directory of its own.
    """

    def __init__(self, base: Path) -> None:
        self.workspace, self.outside, self.home = (base / name for name in ("workspace", "outside", "home"))
        for directory in (self.workspace, self.outside, self.home / ".ssh", self.home / ".aws", base / "config"):
            directory.mkdir(parents=True)
        self.config = base / "config"
        secrets = (self.home / ".ssh/id", self.home / ".aws/credentials", self.config / "config.yaml")
        for file in (*secrets, self.outside / "kept"):
            file.write_text(SECRET + "\n")
        (self.workspace / "code.txt").write_text("code\n")
        self.connections: list[str] = []
        self._open: list[socket.socket] = []
        self._ours: dict[socket.socket, threading.Semaphore] = {}
        self.victim = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"],
            stdin=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "VICTIM_SECRET": SECRET},
        )
        self.port = self._serve(socket.AF_INET, ("127.0.0.1", 0))[1]
        self.port6 = self._serve(socket.AF_INET6, ("::1", 0))[1]
        self.abstract = f"callboard-test-{os.getpid()}-{self.victim.pid}"
        self._serve(socket.AF_UNIX, f"\0{self.abstract}")
        self.udp = self._serve(socket.AF_INET, ("127.0.0.1", 0), kind=socket.SOCK_DGRAM)[1]
        self.socket = f"/run/callboard-test-{self.victim.pid}.sock"
        with contextlib.suppress(OSError):  # only root may; without it, there is one door less to try
            self._serve(socket.AF_UNIX, self.socket)
        self._before = self._state()

    def close(self) -> None:
        """All of it ends."""
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        Path(self.socket).unlink(missing_ok=True)
        self.victim.kill()
        self.victim.communicate()

    @property
    def names(self) -> dict[str, str]:
        """What attempts know of the world, as variables."""
        return {
            "OUTSIDE": str(self.outside),
            "WORKSPACE": str(self.workspace),
            "HOME": str(self.home),
            "CONFIG": str(self.config),
            "VICTIM": str(self.victim.pid),
            "HOST": str(os.getpid()),
            "PORT": str(self.port),
            "PORT6": str(self.port6),
            "UDP": str(self.udp),
            "ABSTRACT": self.abstract,
            "SOCKET": self.socket,
        }

    def sandbox(self, *, here: Path | None = None, **rules: object) -> Sandbox:
        """One of a run in the workspace, or in another directory."""
        return Sandbox(
            msgspec.convert({"profile": "workspace", **rules}, UserSandbox),
            here=here or self.workspace,
            config_dir=self.config,
            environ={"HOME": str(self.home), "XDG_CACHE_HOME": str(self.workspace.parent / "cache")},
            temporary=LazyDirectory("run-1", lambda: [ProcessDirectoryBase(self.workspace.parent / "temporary")]),
            grants=Grants(None, None),
        )

    async def run(self, argv: Sequence[str], sandbox: Sandbox, **more: object) -> Completed:
        """Run a command in the sandbox, under a root of its own."""
        async with Root() as root:
            return await self.run_below(root, argv, sandbox, **more)

    async def run_below(self, root: Root, argv: Sequence[str], sandbox: Sandbox, **more: object) -> Completed:
        """Run a command in the sandbox. Commands that share a sandbox at the same time need one root, as in a run."""
        done: list[Completed] = []

        async def body(me: Actor) -> None:
            held = await sandbox.held(me, Nature(name="attempt", **more))  # type: ignore[arg-type] - as given
            env = {**os.environ, **self.names}
            done.append(await run_process(me, argv, env=env, cwd=self.workspace, timeout=50, confinement=held))

        await root.spawn(body).wait()
        return done[0]

    def harm(self, done: Completed) -> list[str]:
        """What has come of an attempt that must not have."""
        self._settle()
        found = []
        if SECRET.encode() in done.stdout or SECRET in done.stderr_tail:
            found.append("a secret was read")
        if self._state() != self._before:
            found.append("something outside was changed")
        if self.connections:
            found.append(f"somebody was reached: {self.connections}")
        if self.victim.poll() is not None:
            found.append("another process was ended")
        return found

    def note_state(self) -> None:
        """Take what is there now for what must not change."""
        self._before = self._state()

    def _settle(self) -> None:
        """Wait until what was sent before is noted: whatever we send now comes after it."""
        for each in self._open:
            with socket.socket(each.family, each.type) as ours:
                ours.connect(each.getsockname())
                ours.send(OURS)
                assert self._ours[each].acquire(timeout=50)

    def _state(self) -> dict[str, tuple[int, bytes]]:
        """All files that are not the workspace's."""
        files = [path for top in (self.outside, self.home, self.config) for path in sorted(top.rglob("*"))]
        return {
            str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
            for path in files
            if not path.is_symlink() or path.exists()
        }

    def _serve(self, family: int, address: object, *, kind: int = socket.SOCK_STREAM) -> tuple[str, int]:
        listening = socket.socket(family, kind)
        listening.bind(address)  # type: ignore[arg-type] - of that family
        self._open.append(listening)
        ours = self._ours[listening] = threading.Semaphore(0)

        def note() -> None:
            with contextlib.suppress(OSError):
                while True:
                    if kind == socket.SOCK_DGRAM:
                        said = listening.recv(100)
                    else:
                        with listening.accept()[0] as accepted:
                            said = accepted.recv(100)
                    if said == OURS:
                        ours.release()
                    else:
                        self.connections.append(f"{address!r}: {said!r}")

        if kind == socket.SOCK_STREAM:
            listening.listen()
        threading.Thread(target=note, daemon=True).start()
        name: tuple[str, int] = listening.getsockname()[:2]
        return name


@contextlib.contextmanager
def world(base: Path) -> Iterator[World]:
    """One, until the end of the block."""
    made = World(base)
    try:
        yield made
    finally:
        made.close()
