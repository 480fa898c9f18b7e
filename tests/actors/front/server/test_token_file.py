"""The files that servers leave for the programs of their user, and what becomes of those that were killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from callboard.actors.front.server.token_file import (
    ServerFile,
    is_alive,
    new_token,
    read_servers,
    remove_server,
    write_server,
)


def test_the_file_of_a_server_that_was_killed_is_removed_even_while_nobody_has_waited_for_it(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        server = ServerFile(url="http://127.0.0.1:1", token="a", pid=process.pid, started=1.0)
        path = write_server(server, 1, environ)
        assert read_servers(environ) == [server]
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is still to be waited for
        assert not is_alive(process.pid)
        assert read_servers(environ) == []
        assert not path.exists()
    finally:
        process.kill()
        process.communicate()
    assert not is_alive(process.pid)
    assert is_alive(os.getpid())


def test_a_file_that_another_server_has_put_there_meanwhile_is_left(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    first = ServerFile(url="http://127.0.0.1:1", token=new_token(), pid=os.getpid(), started=1.0)
    second = ServerFile(url="http://127.0.0.1:1", token=new_token(), pid=os.getpid(), started=2.0)
    path = write_server(first, 1, environ)
    write_server(second, 1, environ)
    remove_server(path, first.token)
    assert read_servers(environ) == [second]
    remove_server(path, second.token)
    assert read_servers(environ) == []


def test_a_token_is_recognised_by_who_looks_for_secrets() -> None:
    from support import secret_watch

    from callboard.actors.io.secret_redaction import Redactor

    token = new_token()
    assert secret_watch.secrets_in(f"x {token} y")
    assert token not in Redactor().text(f"x {token} y")
    assert len({new_token() for _ in range(100)}) == 100
