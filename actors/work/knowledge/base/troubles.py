"""Turns errors of files and disks into errors that say what to run."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from .....protocol.errors import KnowledgeError
from .places import Places

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
NO_FAULT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOLCK)
"""Something is short, and the files are as good as they were."""

SQLITE_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
FULL_WORDS = ("No space left", "disk is full", "quota exceeded", "File too large")
NEXT_TO_NOTHING = 1024 * 1024
"""Bytes free, below which an error counts as a full disk."""


@contextmanager
def told(places: Places) -> Iterator[None]:
    """Turn errors of the disk and of broken files into a KnowledgeError. Inside, only files of the base are used."""
    try:
        yield
    except (OSError, sqlite3.Error, ValueError, RuntimeError) as error:
        if _is_full(error, places):
            raise KnowledgeError(
                f"no space left for {places.directory}: {error}; free some and build again, which goes on from here"
            ) from error
        if isinstance(error, OSError) and error.errno in FORBIDDEN:
            raise KnowledgeError(f"{places.directory}: {error} (a build has to write there)") from error
        if isinstance(error, OSError) and error.errno in NO_FAULT:
            raise KnowledgeError(f"{places.directory} can't be used now: {error}") from error
        raise places.broken(str(error)) from error


def _is_full(error: Exception, places: Places) -> bool:
    """Whether the disk, or our share of it, is full. Some engines tell it in words, and some not at all."""
    if isinstance(error, OSError) and error.errno in FULL:
        return True
    if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in SQLITE_FULL:
        return True
    if any(words.lower() in str(error).lower() for words in FULL_WORDS):
        return True
    try:
        return shutil.disk_usage(places.directory).free < NEXT_TO_NOTHING
    except OSError:
        return False
