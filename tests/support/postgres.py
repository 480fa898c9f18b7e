"""A PostgreSQL server of a test's own: its programs, a directory in /tmp, a socket and a port of 127.0.0.1."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.waiting import PATIENCE

_NUMBERS = count()


class Postgres:
    """A server. `database()` makes an empty one in it; `stop`, `start` and `signal` do that to the process.

    Args:
        address: where it listens beside its socket, if it has a port.
        settings: more lines of its configuration, as `key=value`.
        primary: the server that it is a replica of; else it is empty.
    """

    def __init__(
        self,
        home: Path,
        port: int = 0,
        *,
        fsync: bool = False,
        address: str = "127.0.0.1",
        settings: Sequence[str] = (),
        primary: Postgres | None = None,
    ) -> None:
        self.home = home
        self.port = port
        self._address = address
        self._more = settings
        self._fsync = "on" if fsync else "off"
        self._as_user: dict[str, Any] = {"user": "nobody"} if os.getuid() == 0 else {}
        self._env = {**os.environ, "LC_ALL": "C"}
        self._process: subprocess.Popen[bytes] | None = None
        if self._as_user:
            shutil.chown(home, "nobody")
        made = ["initdb", "-D", str(home / "data"), "-U", "me", "-A", "trust", "-N", "-E", "UTF8"]
        if primary is not None:
            made = ["pg_basebackup", "-D", str(home / "data"), "-d", primary.dsn("postgres"), "-R", "-c", "fast", "-N"]
        subprocess.run(made, check=True, capture_output=True, env=self._env, cwd=home, **self._as_user)
        if address != "127.0.0.1":
            with (home / "data" / "pg_hba.conf").open("a") as permits:
                permits.write("host all all samenet trust\n")

    def start(self) -> None:
        listens = self._address if self.port else ""
        settings = [f"listen_addresses={listens}", f"fsync={self._fsync}", "max_connections=60", "shared_buffers=32MB"]
        settings += self._more
        argv = ["postgres", "-D", str(self.home / "data"), "-k", str(self.home)]
        argv += [part for each in settings for part in ("-c", each)]
        argv += ["-p", str(self.port)] if self.port else []
        log = self.home / "log"
        with log.open("w") as written:
            self._process = subprocess.Popen(argv, stderr=written, env=self._env, cwd=self.home, **self._as_user)
        while "ready to accept" not in log.read_text():
            assert self._process.poll() is None, log.read_text()
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: connections are cut, and it ends in order. SIGQUIT: as after a loss of power."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE)
            self._process = None

    def crash(self) -> None:
        """As if its machine were gone: all of its processes are killed at once."""
        assert self._process is not None
        server = psutil.Process(self._process.pid)
        for each in [server, *server.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self._process.wait(PATIENCE)
        self._process = None

    @property
    def alive(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    def send(self, what: signal.Signals) -> None:
        """To the process that accepts connections."""
        assert self._process is not None
        self._process.send_signal(what)

    def dsn(self, database: str, **more: str) -> str:
        parts = {"host": str(self.home), "user": "me", "dbname": database, **more}
        if self.port and "host" not in more:
            parts["port"] = str(self.port)
        return " ".join(f"{key}={value}" for key, value in parts.items())

    def database(self) -> str:
        """The DSN of a new one."""
        import psycopg

        name = f"test{next(_NUMBERS)}"
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as db:
            db.execute(f"create database {name}")
        return self.dsn(name)


@contextmanager
def running(port: int = 0, **more: Any) -> Iterator[Postgres]:
    """A server, with what `Postgres` takes; the test is skipped where its programs are not installed."""
    find_programs()
    home = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    try:
        server = Postgres(home, port, **more)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def find_programs() -> None:
    """Have the programs of PostgreSQL in PATH; the test is skipped where they are not installed."""
    pytest.importorskip("psycopg")
    for each in sorted(Path("/usr/lib/postgresql").glob("*/bin")):  # Debian keeps them out of PATH
        if str(each) not in os.environ["PATH"]:
            os.environ["PATH"] += f":{each}"
    if shutil.which("initdb") is None or shutil.which("postgres") is None:
        pytest.skip("needs the programs of PostgreSQL")
