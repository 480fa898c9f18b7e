"""Changes files of the configuration directory so that a kill leaves the old state or leads to the new one.

Everything new is written below `.installing/` first, and a journal beside it last. Without a journal nothing has
happened, and the next install throws the directory away. With one, everything is there that is needed: what a kill
has left undone, the next `callboard install` of any kind does before anything else. The record is the last file of
the journal.

One install at a time: the configuration directory itself is locked (`flock`), which ends with the process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

import msgspec

from ....protocol.decoding import decode_json
from ....protocol.errors import Conflict, InvalidFile, NotKept
from ...io.directories import private_directory
from ...io.whole_file import write_whole
from .layout import is_safe

STAGE = ".installing"
JOURNAL = "journal.json"


class Put(msgspec.Struct, frozen=True):
    """A file that is to be there: its path, the name of its contents below `STAGE`, and `NewFile.personal`."""

    path: str
    staged: str
    personal: bool = False


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done, in this order; doing it twice does no harm."""

    puts: list[Put] = []
    removes: list[str] = []


class NewFile(msgspec.Struct, frozen=True):
    """What a file is to hold.

    A file that is there keeps who may read and write it.

    Attributes:
        executable: whether it can be started.
        personal: it is the person's own, and some of it is ours: where it is a link, what that leads to is changed,
            and a new one is for its owner alone.
    """

    data: bytes
    executable: bool = False
    personal: bool = False


@contextmanager
def alone(base: Path) -> Iterator[None]:
    """Keep other processes from installing in this directory during the block. It is made if it is not there.

    Raises:
        Conflict: another process installs there.
        NotKept: the directory can't be made or read.
    """
    try:
        private_directory(base)
        handle = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise NotKept(f"{base} can't be used: {error.strerror or error}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(f"another `callboard install` is under way in {base}; wait for its end") from None
        yield
    finally:
        os.close(handle)


def carry_out(base: Path, puts: Mapping[str, NewFile], removes: Sequence[str]) -> None:
    """Have these files be there, and those not. Blocks.

    Raises:
        NotKept: the disk refuses; what was done of it is finished by the next install.
    """
    stage = base / STAGE
    try:
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir(mode=0o700)
        journal = Journal(removes=list(removes))
        for number, (path, new) in enumerate(puts.items()):
            staged = stage / str(number)
            staged.write_bytes(new.data)
            before = stat.S_IMODE(staged.stat().st_mode)
            mode = _mode(base / path, new, before)
            if mode != before:
                staged.chmod(mode)
            journal.puts.append(Put(path, staged.name, new.personal))
        write_whole(stage / JOURNAL, msgspec.json.encode(journal), durable=True)
        _follow(base, journal)
    except OSError as error:
        raise NotKept(f"{base} can't be written to: {error.strerror or error} ({error.filename})") from error


def finish(base: Path) -> bool:
    """Do what a killed install has left undone, or throw away what it has begun; whether there was something to do.

    Raises:
        InvalidFile: its journal is none.
        NotKept: the disk refuses.
    """
    stage = base / STAGE
    try:
        text = (stage / JOURNAL).read_bytes()
    except OSError:
        shutil.rmtree(stage, ignore_errors=True)
        return False
    try:
        journal = decode_json(text, Journal)
        named = [name for put in journal.puts for name in (put.path, put.staged)]
        if not all(map(is_safe, [*named, *journal.removes])):
            raise ValueError("it names a path outside of the configuration directory")
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidFile(f"{stage / JOURNAL} is no journal of ours: {error}; move {stage} away") from error
    try:
        _follow(base, journal)
    except OSError as error:
        raise NotKept(f"{base} can't be written to: {error.strerror or error} ({error.filename})") from error
    return True


def _mode(target: Path, new: NewFile, usual: int) -> int:
    """The mode for what is to be at the target; `usual` is what the umask says."""
    mode = 0o600 if new.personal else usual
    with suppress(FileNotFoundError, NotADirectoryError):
        mode = target.stat().st_mode & 0o666
    return mode | (mode & 0o444) >> 2 if new.executable else mode  # started by all who may read it


def _follow(base: Path, journal: Journal) -> None:
    for put in journal.puts[:-1]:
        _put(base, put)
    for path in journal.removes:
        (base / path).unlink(missing_ok=True)
        _drop_empty(base, PurePosixPath(path).parent)
    for put in journal.puts[-1:]:
        _put(base, put)
    (base / STAGE / JOURNAL).unlink(missing_ok=True)
    shutil.rmtree(base / STAGE, ignore_errors=True)


def _put(base: Path, put: Put) -> None:
    staged, target = base / STAGE / put.staged, base / put.path
    if not staged.exists():
        return  # done already, before we were killed
    if put.personal:
        target = Path(os.path.realpath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        staged.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        write_whole(target, staged.read_bytes(), private=True)  # `agents` may be a link to another disk
        target.chmod(staged.stat().st_mode & 0o777)
        staged.unlink()


def _drop_empty(base: Path, directory: PurePosixPath) -> None:
    """Remove directories that have become empty, up to the configuration directory."""
    while directory.parts:
        with suppress(OSError):
            (base / directory).rmdir()
        directory = directory.parent
