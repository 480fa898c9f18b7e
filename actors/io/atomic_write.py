"""Atomic file replacement: a reader finds the old content or all of the new, never a part.

The new file is written next to the old one and then renamed over it. A process killed in between leaves a file whose
name begins with the target's (`unfinished`); a process that gets the same id overwrites it, and a cleanup may delete
it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ENDING = ".part"


def write_whole(file: Path, data: bytes, *, private: bool = False, durable: bool = False) -> None:
    """Replace the content of the file. Blocks.

    Args:
        private: True makes it readable only for its owner. False uses the umask.
        durable: True syncs the data and the name to the disk before returning.

    Raises:
        OSError: it could not be written, and is unchanged.
    """
    with replacing(file) as part:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600 if private else 0o666)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            if durable:
                stream.flush()
                os.fsync(handle)
    if durable:
        sync(file.parent)


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """Yield an unused path in the same directory. A file created there replaces the target, unless the block fails."""
    part = file.with_name(f"{file.name}.{os.getpid()}-{threading.get_native_id()}{_ENDING}")
    part.unlink(missing_ok=True)
    try:
        yield part
        part.replace(file)
    except BaseException:  # no partial file may remain, whatever the exception
        part.unlink(missing_ok=True)
        raise


def unfinished(file: Path) -> list[Path]:
    """Return the temporary files that killed and current writers of this file have made next to it."""
    start = f"{file.name}."
    names = (path.name for path in file.parent.iterdir()) if file.parent.is_dir() else ()
    return [file.with_name(name) for name in names if name.startswith(start) and name.endswith(_ENDING)]


def sync(path: Path) -> None:
    """Sync a file, or the names in a directory, to the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
