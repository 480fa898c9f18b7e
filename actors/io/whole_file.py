"""Replaces files atomically: a reader finds the old content or all of the new, never half.

The new file is written beside the old one and then renamed over it. A process killed in between leaves a file whose
name begins with the target's (`unfinished`); a process that gets the same id overwrites it, and a clean-up may
remove it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ENDING = ".part"


def write_whole(file: Path, data: bytes, *, private: bool = False, durable: bool = False) -> None:
    """Have the file hold this. Blocks.

    Args:
        private: only its owner may read it. Else that is what the umask says.
        durable: when this returns it is on the disk, and so is its name; it survives the machine.

    Raises:
        OSError: it could not be written, and is as it was.
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
    """A path beside the file where nothing is. What the block makes there becomes the file, unless the block fails."""
    part = file.with_name(f"{file.name}.{os.getpid()}-{threading.get_native_id()}{_ENDING}")
    part.unlink(missing_ok=True)
    try:
        yield part
        part.replace(file)
    except BaseException:  # whatever it was, no half of a file stays
        part.unlink(missing_ok=True)
        raise


def unfinished(file: Path) -> list[Path]:
    """What those have left who were killed while they replaced it, and what others just write."""
    start = f"{file.name}."
    names = (path.name for path in file.parent.iterdir()) if file.parent.is_dir() else ()
    return [file.with_name(name) for name in names if name.startswith(start) and name.endswith(_ENDING)]


def sync(path: Path) -> None:
    """Have a file, or the names in a directory, on the disk for good."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
