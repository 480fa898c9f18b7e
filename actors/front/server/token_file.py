"""The token file of a server, for programs of the user who started it: `ps`, `attach`, the page.

Each server has one file in the state directory, `servers/<port>.json`, readable only by its user. It is written when
the port is bound and removed at the end. The file of a killed server is removed by the next reader.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ....protocol.decoding import decode_json
from ...io.atomic_write import write_whole
from ...io.directories import private_directory, state_dir


class ServerFile(msgspec.Struct, frozen=True, kw_only=True):
    """Address, token and process of a running server. `started` is seconds since 1970.

    A worker of a cluster knows only its own runs, so clients use it only if there is no other server.
    """

    url: str
    token: str
    pid: int
    started: float
    worker: bool = False


def new_token() -> str:
    """Return a random token with a known prefix, like the keys of `callboard keys`."""
    return f"cb_local_{secrets.token_urlsafe(32)}"


def write_server(server: ServerFile, port: int, environ: Mapping[str, str]) -> Path:
    """Write the token file; return its path.

    Raises:
        PermissionError: a directory is a symbolic link, or belongs to another user.
    """
    folder = _folder(environ)
    for each in (folder.parent, folder):  # a user with write access to either directory could replace it
        private_directory(each)
        if each.is_symlink() or each.stat().st_uid != os.geteuid():
            raise PermissionError(
                errno.EPERM, "the directory is a symbolic link, or belongs to another user", str(each)
            )
        each.chmod(0o700)
    path = folder / f"{port}.json"
    write_whole(path, msgspec.json.encode(server), private=True)
    return path


def remove_server(path: Path, token: str) -> None:
    """Remove the file if it still holds this token."""
    found = _read(path)
    if found is not None and found.token == token:
        path.unlink(missing_ok=True)


def read_servers(environ: Mapping[str, str]) -> list[ServerFile]:
    """Return this user's live servers: newest first, workers of a cluster last."""
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
    """Return whether a process with this id exists, of any user. A zombie counts as dead."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:1]
    except OSError:  # not Linux, or the process has just ended: the next call will see it
        return True
    return state not in ([b"Z"], [b"X"])
