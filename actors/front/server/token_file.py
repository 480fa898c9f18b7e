"""The token of a server, for the programs of the user who has started it: `ps`, `attach`, the page.

One file per server in the state directory, `servers/<port>.json`, which only its user may read. It is written when the
port listens and removed at the end; the next reader removes the file of a killed server.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ....protocol.decoding import decode_json
from ...io.directories import private_directory, state_dir
from ...io.whole_file import write_whole


class ServerFile(msgspec.Struct, frozen=True, kw_only=True):
    """A server that can be asked: where, with which token, and who it is. `started` is seconds since 1970.

    A worker of a cluster knows its own runs alone, so it is meant only where nobody else is there to be asked.
    """

    url: str
    token: str
    pid: int
    started: float
    worker: bool = False


def new_token() -> str:
    """A random token with a known prefix, like the keys of `callboard keys`."""
    return f"cb_local_{secrets.token_urlsafe(32)}"


def write_server(server: ServerFile, port: int, environ: Mapping[str, str]) -> Path:
    """Leave the file; where it is."""
    folder = _folder(environ)
    for each in (folder.parent, folder):  # a user with write access to either could replace the directory
        private_directory(each)
        if each.is_symlink() or each.stat().st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it is a link, or belongs to somebody else", str(each))
        each.chmod(0o700)
    path = folder / f"{port}.json"
    write_whole(path, msgspec.json.encode(server), private=True)
    return path


def remove_server(path: Path, token: str) -> None:
    """Take the file away, if it is still ours."""
    found = _read(path)
    if found is not None and found.token == token:
        path.unlink(missing_ok=True)


def read_servers(environ: Mapping[str, str]) -> list[ServerFile]:
    """The servers of this user that are alive: the newest first, behind all others workers of a cluster."""
    alive = []
    for path in sorted(_folder(environ).glob("[0-9]*.json")):
        server = _read(path)
        if server is None or not is_alive(server.pid):
            path.unlink(missing_ok=True)
        else:
            alive.append(server)
    return sorted(alive, key=lambda server: (server.worker, -server.started))


def _folder(environ: Mapping[str, str]) -> Path:
    return state_dir(environ) / "servers"


def _read(path: Path) -> ServerFile | None:
    try:
        return decode_json(path.read_bytes(), ServerFile)
    except (OSError, msgspec.MsgspecError):
        return None


def is_alive(pid: int) -> bool:
    """Whether there is such a process, of any user; a zombie is none."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:1]
    except OSError:  # another system, or it has just gone; then the next look tells
        return True
    return state not in ([b"Z"], [b"X"])
