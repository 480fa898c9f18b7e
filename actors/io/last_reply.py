"""Storage of this machine's last reply for `-f %%`: one file in the cache directory that only its owner can read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .directories import cache_dir, private_directory
from .handed_out import hidden
from .whole_file import write_whole

LIMIT = 10 * 1024 * 1024
"""Maximum bytes; a longer reply is not stored."""


def last_reply_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the file, which may not exist."""
    return cache_dir(environ) / "last-reply.txt"


def keep_reply(text: str, environ: Mapping[str, str]) -> None:
    """Replace the stored reply atomically.

    Raises:
        OSError: it can't be written.
    """
    data = hidden(text).encode("utf-8", "replace")
    if len(data) > LIMIT:
        return
    file = last_reply_file(environ)
    private_directory(file.parent)
    write_whole(file, data, private=True)


def last_reply(environ: Mapping[str, str]) -> str | None:
    """Return the last reply; None if there is none yet.

    Raises:
        OSError: it can't be read.
    """
    try:
        return last_reply_file(environ).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
