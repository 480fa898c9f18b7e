"""Files of a base's directory, and their locks.

    current           name of the current generation: one line, replaced atomically
    gen-000007/       meta.json, catalogue.sqlite, words/, vectors.*, readers
    building/         the next generation, unfinished: plan.json, catalogue.sqlite
    work.sqlite       data that only the unfinished generation needs: vectors not yet in an index
    builder.lock      lock of the builder
    recipe.json       description of the sources, from the last build; not read by this package
    unreadable.json   sources that the last build could not read (`catalogue.LostSources`); missing if none

Locks are `flock`s: the kernel releases the locks of dead processes, so none is ever stale. The builder holds
`builder.lock`. A reader holds a shared lock on the file `readers` of its generation. An old generation is removed by
the process that gets an exclusive lock on that file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import final

import msgspec

from .....protocol.decoding import decode_json
from .....protocol.errors import KnowledgeBusy, KnowledgeError, KnowledgeMissing
from .....protocol.json_values import UNREADABLE
from ....io.atomic_write import sync, unfinished, write_whole
from .catalogue import LostSources
from .model import FORMAT, GenerationMeta

ENDING = ".kb"
"""Suffix of a base's directory."""

PREFIX = "gen-"
TRIES = 10
"""Attempts of a reader to open the current generation while builders replace it."""


class Builder(msgspec.Struct, frozen=True):
    """Process that holds `builder.lock`."""

    pid: int
    started: float


@final
class BaseLayout:
    """Paths of one base. Its methods block: call them in a thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.current = directory / "current"
        self.building = directory / "building"
        self.work = directory / "work.sqlite"
        self.lock = directory / "builder.lock"
        self.recipe = directory / "recipe.json"
        self.unreadable = directory / "unreadable.json"

    def generation(self, number: int) -> Path:
        """Return the directory of the generation with this number."""
        return self.directory / f"{PREFIX}{number:06d}"

    def generations(self) -> list[int]:
        """Return the numbers of all generations in the directory, sorted."""
        names = (path.name for path in self.directory.glob(f"{PREFIX}*"))
        return sorted(int(name.removeprefix(PREFIX)) for name in names if name.removeprefix(PREFIX).isdigit())

    def number(self) -> int:
        """Return the number of the current generation; 0 if there is none.

        Raises:
            KnowledgeError: the file `current` does not contain the name of a generation.
        """
        try:
            name = self.current.read_text(errors="replace").strip()
        except FileNotFoundError:
            return 0
        digits = name.removeprefix(PREFIX)
        if not digits.isdigit():
            raise self.broken(f"{self.current} contains {name[:40]!r} instead of the name of a build")
        return int(digits)

    def meta(self, number: int) -> GenerationMeta:
        """Return the metadata of a generation.

        Raises:
            KnowledgeError: its format is not `FORMAT`, or one of its files is missing or has another size.
        """
        home = self.generation(number)
        try:
            data = (home / "meta.json").read_bytes()
            format = decode_json(data, _Format).format
            if format != FORMAT:
                raise self.broken(f"its format is {format}, and this version of Callboard reads format {FORMAT}")
            meta = decode_json(data, GenerationMeta)
        except (FileNotFoundError, *UNREADABLE) as error:
            raise self.broken(f"{home / 'meta.json'} can't be read: {error}") from error
        for name, size in meta.files.items():
            path = home / name
            found = path.stat().st_size if path.is_file() else None
            if found != size:
                raise self.broken(
                    f"{path} should have {size} bytes, and {'is missing' if found is None else f'has {found}'}"
                )
        return meta

    def swap(self, number: int) -> None:
        """Make a generation the current one, atomically and durably."""
        write_whole(self.current, f"{self.generation(number).name}\n".encode(), durable=True)

    def keep_recipe(self, recipe: bytes) -> None:
        """Store the description of the sources, if it has changed."""
        if not self.recipe.is_file() or self.recipe.read_bytes() != recipe:
            write_whole(self.recipe, recipe, durable=True)

    def lost(self) -> LostSources:
        """Return the sources that the last build could not read. An undecodable file counts as none."""
        try:
            return decode_json(self.unreadable.read_bytes(), LostSources)
        except (FileNotFoundError, *UNREADABLE):
            return LostSources()

    def keep_lost(self, lost: LostSources) -> None:
        """Store the sources that can't be read now, if they have changed."""
        if lost == self.lost():
            return
        if lost == LostSources():
            self.unreadable.unlink(missing_ok=True)
        else:
            write_whole(self.unreadable, msgspec.json.encode(lost), durable=True)

    def complete_swap(self, *, rebuild: bool) -> int:
        """Complete the swap, or the removal, that a killed builder began. Return the number of the current generation.

        This is the first step of a builder, which holds the build lock.

        Args:
            rebuild: an unreadable `current` counts as no generation, instead of an error.
        """
        try:
            number = self.number()
        except KnowledgeError:
            if not rebuild:
                raise
            number = 0
        for newer in [each for each in self.generations() if each > number]:
            if (self.generation(newer) / "meta.json").exists():
                number = newer
                self.swap(number)
            else:  # a kill interrupted its removal
                shutil.rmtree(self.generation(newer))
        # A killed builder had renamed `building/` already, but not yet removed its work file.
        if not self.building.is_dir():
            self.drop_work()
        return number

    def drop_building(self) -> None:
        """Remove the unfinished generation."""
        if self.building.exists():
            shutil.rmtree(self.building)
        self.drop_work()

    def drop_work(self) -> None:
        """Remove the data that only an unfinished generation needs."""
        for path in self.directory.glob(f"{self.work.name}*"):
            path.unlink()

    def sweep(self) -> None:
        """Remove old generations without readers."""
        current = self.number()
        for number in self.generations():
            if number < current:
                home = self.generation(number)
                with suppress(OSError), _alone(home / "readers"):
                    shutil.rmtree(home)

    def drop(self) -> None:
        """Remove all files of the base, `current` first, and then the directory if it is empty."""
        # `current` first: from now on readers find no base.
        self.current.unlink(missing_ok=True)
        for number in self.generations():
            # after a kill, a half removed generation must not count as complete
            (self.generation(number) / "meta.json").unlink(missing_ok=True)
        self.drop_building()
        for number in self.generations():
            shutil.rmtree(self.generation(number))
        for path in (self.recipe, self.unreadable):
            path.unlink(missing_ok=True)
        for path in (self.current, self.recipe, self.unreadable):
            for left in unfinished(path):
                left.unlink(missing_ok=True)
        self.lock.unlink()
        with suppress(OSError):
            self.directory.rmdir()

    # --- locks ---------------------------------------------------------------------------------------------------

    def read_lock(self) -> tuple[int, int]:
        """Return the number of the current generation, and a descriptor that prevents its removal until it is closed.

        Raises:
            KnowledgeMissing: there is no base in the directory.
            KnowledgeError: `current` is invalid, or names a generation that does not exist.
            KnowledgeBusy: builders replaced the generation during each of `TRIES` attempts.
        """
        for _ in range(TRIES):
            number = self.number()
            if not number:
                raise KnowledgeMissing(
                    f"there is no knowledge base in {self.directory}; run: callboard kb build {self.directory}"
                )
            try:
                handle = os.open(self.generation(number) / "readers", os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                if self.number() == number:
                    raise self.broken(f"{self.current} names a build that does not exist") from None
                continue
            with ExitStack() as closing, suppress(BlockingIOError):  # locked by its removal, so there is a newer one
                closing.callback(os.close, handle)
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if self.number() == number:
                    closing.pop_all()
                    return number, handle
        raise KnowledgeBusy(
            f"the knowledge base in {self.directory} was rebuilt each time while it was being opened; try again"
        )

    def is_of(self, handle: int, number: int) -> bool:
        """Return whether the descriptor from `read_lock` belongs to the generation that has this number now."""
        try:
            return os.path.samestat(os.fstat(handle), (self.generation(number) / "readers").stat())
        except FileNotFoundError:
            return False

    def build_lock(self) -> int:
        """Become the only builder. Return a descriptor that holds the lock until it is closed.

        The directory is created if needed.

        Raises:
            KnowledgeBusy: another process is building, or removed the base during each of `TRIES` attempts.
            KnowledgeError: the directory contains files, and no base.
        """
        for _ in range(TRIES):
            self.directory.mkdir(parents=True, exist_ok=True)
            # List the directory before looking for the lock: another builder may be creating it at this moment.
            if any(self.directory.iterdir()) and not (self.lock.exists() or self.current.exists()):
                raise KnowledgeError(
                    f"{self.directory} contains other files; a knowledge base needs a directory of its own"
                )
            with suppress(FileNotFoundError):  # the base was removed at this moment
                handle = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                with ExitStack() as closing:
                    closing.callback(os.close, handle)
                    try:
                        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        who = _open_failure(handle)
                        raise KnowledgeBusy(
                            f"{self.directory} is being built by {who}; wait until it has finished, or stop it"
                        ) from None
                    # Between `open` and `flock` another process may have removed the base with its lock file.
                    if os.path.samestat(os.fstat(handle), self.lock.stat()):
                        os.ftruncate(handle, 0)
                        os.pwrite(handle, msgspec.json.encode(Builder(os.getpid(), time.time())), 0)
                        closing.pop_all()
                        return handle
        raise KnowledgeBusy(f"another program removed {self.directory} repeatedly during the build; try again")

    def builder(self) -> str:
        """Describe the process that is building now; "" if none. For display only: it locks for an instant."""
        try:
            handle = os.open(self.lock, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _open_failure(handle)
        finally:
            os.close(handle)
        return ""

    def broken(self, what: str) -> KnowledgeError:
        """Return the error for a base that can only be rebuilt."""
        return KnowledgeError(
            f"the knowledge base in {self.directory} can't be used: {what}; run: callboard kb rebuild {self.directory}"
        )


class _Format(msgspec.Struct):
    format: int


def sync_all(directory: Path) -> dict[str, int]:
    """Flush all files below a directory to disk. Return their sizes by relative path."""
    sizes = {}
    for path in sorted(directory.rglob("*")):
        sync(path)
        if path.is_file() and not path.name.endswith(".lock"):
            sizes[str(path.relative_to(directory))] = path.stat().st_size
    sync(directory)
    return sizes


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file. Raises BlockingIOError if it is locked; a missing file counts as free."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _open_failure(handle: int) -> str:
    try:
        builder = decode_json(os.pread(handle, 1000, 0), Builder)
    except UNREADABLE:
        return "another process"
    since = time.strftime("%H:%M:%S", time.localtime(builder.started))
    return f"process {builder.pid} since {since}"


# --- errors of files and disks

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
NO_FAULT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOLCK)
"""Shortages of the machine, which say nothing about the files."""

SQLITE_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
FULL_WORDS = ("No space left", "disk is full", "quota exceeded", "File too large")
NEXT_TO_NOTHING = 1024 * 1024
"""Free bytes below which any error counts as a full disk."""


@contextmanager
def knowledge_errors(layout: BaseLayout) -> Iterator[None]:
    """Turn errors of the disk and of broken files into a KnowledgeError.

    Inside the block, only files of the base may be used.
    """
    try:
        yield
    except (OSError, sqlite3.Error, ValueError, RuntimeError) as error:
        if _is_full(error, layout):
            raise KnowledgeError(
                f"no space is left on the disk of {layout.directory}: {error}; free some space and build "
                "again, the build resumes where it stopped"
            ) from error
        if isinstance(error, OSError) and error.errno in FORBIDDEN:
            raise KnowledgeError(f"{layout.directory} can't be written to, and a build needs to: {error}") from error
        if isinstance(error, OSError) and error.errno in NO_FAULT:
            raise KnowledgeError(f"{layout.directory} can't be used at the moment: {error}") from error
        raise layout.broken(str(error)) from error


def _is_full(error: Exception, layout: BaseLayout) -> bool:
    """Return whether the disk, or the quota, is full. Some engines say so only in the text, and some not at all."""
    if isinstance(error, OSError) and error.errno in FULL:
        return True
    if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in SQLITE_FULL:
        return True
    if any(words.lower() in str(error).lower() for words in FULL_WORDS):
        return True
    try:
        return shutil.disk_usage(layout.directory).free < NEXT_TO_NOTHING
    except OSError:
        return False
