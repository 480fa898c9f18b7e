"""Shell history entry for an executed command, so that the arrow up finds it.

Each shell has a file in its own format. A line is appended with one write, as shells do that share their history
between windows; a missing file is not created. A running shell may read it late (bash: `history -n`) or overwrite it at
its end (bash without `histappend`), which is the user's setting for all windows alike.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from ...actors.io.directories import config_dir as configured
from ...actors.io.settings import load_settings

_TAIL = 4096
_METAFIED = {code: bytes((0x83, code ^ 0x20)) for code in (0, *range(0x83, 0xA3))}
"""Encoding of the bytes that zsh reserves for itself."""


def add_to_history(command: str, shell: str, config_dir: str | None) -> None:
    """Append the command, unless `save_shell_history` is false. Write errors are ignored."""
    settings, _ = load_settings(configured(config_dir, os.environ)[0])
    if settings.other.get("save_shell_history") is False:
        return
    kind = _KINDS.get(Path(shell).name)
    if kind is None:
        return
    where, entry = kind
    file = where(os.environ)
    with suppress(OSError):
        end = _end_of(file)
        cut_off = b"\n" if end and not end.endswith(b"\n") else b""
        _append(file, cut_off + entry(command, end))


def _append(file: Path, data: bytes) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fish holds this lock while it rewrites the file
        os.write(fd, data)
    finally:
        os.close(fd)


def _end_of(file: Path) -> bytes:
    with file.open("rb") as stream:
        stream.seek(0, os.SEEK_END)
        stream.seek(max(stream.tell() - _TAIL, 0))
        return stream.read()


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or Path.home())


def _of_bash(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HISTFILE") or _home(environ) / ".bash_history")


def _in_bash(command: str, end: bytes) -> bytes:
    """Return the entry, with a timestamp if others have one. Only with timestamps do several lines form one command."""
    timed = any(line.startswith(b"#") and line[1:].isdigit() for line in end.splitlines())
    return (f"#{int(time.time())}\n" if timed else "").encode() + command.encode() + b"\n"


def _of_zsh(environ: Mapping[str, str]) -> Path:
    if named := environ.get("HISTFILE"):
        return Path(named)
    home = Path(environ.get("ZDOTDIR") or _home(environ))
    return next(
        (file for name in (".zsh_history", ".histfile") if (file := home / name).is_file()), home / ".zsh_history"
    )


def _in_zsh(command: str, end: bytes) -> bytes:
    """Return the entry in extended format (`: time:0;command`) if recent entries use it, with zsh's escapes."""
    extended = any(line.startswith(b": ") and b";" in line for line in end.splitlines()[-5:])
    ends = " " if command.endswith("\\") else ""  # otherwise the entry would continue on the next line
    text = (command.replace("\n", "\\\n") + ends).encode()
    head = f": {int(time.time())}:0;".encode() if extended else b""
    return head + b"".join(_METAFIED.get(code, bytes((code,))) for code in text) + b"\n"


def _of_fish(environ: Mapping[str, str]) -> Path:
    data = Path(environ.get("XDG_DATA_HOME") or _home(environ) / ".local" / "share")
    return data / "fish" / f"{environ.get('fish_history') or 'fish'}_history"


def _in_fish(command: str, _end: bytes) -> bytes:
    text = command.replace("\\", "\\\\").replace("\n", "\\n")
    return f"- cmd: {text}\n  when: {int(time.time())}\n".encode()


_KINDS: dict[str, tuple[Callable[[Mapping[str, str]], Path], Callable[[str, bytes], bytes]]] = {
    "bash": (_of_bash, _in_bash),
    "zsh": (_of_zsh, _in_zsh),
    "fish": (_of_fish, _in_fish),
}
"""History file of each shell, and the function that formats a command, given the end of the file."""
