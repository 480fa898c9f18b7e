"""The files of a base's directory, and their locks.

    current           the name of the generation that is read: one line, replaced as a whole
    gen-000007/       meta.json, catalogue.sqlite, words/, vectors.*, readers
    building/         the next one, unfinished: plan.json, catalogue.sqlite
    work.sqlite       what the unfinished one has that a finished one has not: vectors not yet in an index
    builder.lock      who builds
    recipe.json       what it is made of, by its last build; nothing here reads it
    unreadable.json   what could not be read the last time (`catalogue.Lost`); not there if that is nothing

Locks are `flock`s: the kernel takes them from dead processes, so none is ever stale. The builder holds `builder.lock`;
a reader holds a shared lock on its generation's `readers`, and an old generation is removed by the process that gets it
alone.
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
from ....io.whole_file import sync, unfinished, write_whole
from .catalogue import Lost
from .model import FORMAT, Meta

ENDING = ".kb"
"""Of a base's directory."""

PREFIX = "gen-"
TRIES = 10
"""How often a reader looks for the current generation while builders swap it away."""


class Builder(msgspec.Struct, frozen=True):
    """Who holds `builder.lock`."""

    pid: int
    started: float


@final
class Layout:
    """The paths of one base. Everything here blocks; call it in a thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.current = directory / "current"
        self.building = directory / "building"
        self.work = directory / "work.sqlite"
        self.lock = directory / "builder.lock"
        self.recipe = directory / "recipe.json"
        self.unreadable = directory / "unreadable.json"

    def generation(self, number: int) -> Path:
        """Where the generation of this number is."""
        return self.directory / f"{PREFIX}{number:06d}"

    def generations(self) -> list[int]:
        """The numbers of all that are there, complete ones only, in order."""
        names = (path.name for path in self.directory.glob(f"{PREFIX}*"))
        return sorted(int(name.removeprefix(PREFIX)) for name in names if name.removeprefix(PREFIX).isdigit())

    def number(self) -> int:
        """The generation to be read; 0 if there is none."""
        try:
            name = self.current.read_text(errors="replace").strip()
        except FileNotFoundError:
            return 0
        digits = name.removeprefix(PREFIX)
        if not digits.isdigit():
            raise self.broken(f"{self.current} holds {name[:40]!r} instead of a generation's name")
        return int(digits)

    def meta(self, number: int) -> Meta:
        """What that generation says of itself.

        Raises:
            KnowledgeError: it is not of our format, or files of it are missing or cut short.
        """
        home = self.generation(number)
        try:
            data = (home / "meta.json").read_bytes()
            format = decode_json(data, _Format).format
            if format != FORMAT:
                raise self.broken(f"it has format {format}, and this version of callboard reads {FORMAT}")
            meta = decode_json(data, Meta)
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
        """Make that generation the current one, at once and for good."""
        write_whole(self.current, f"{self.generation(number).name}\n".encode(), durable=True)

    def keep_recipe(self, recipe: bytes) -> None:
        """Remember what it is made of."""
        if not self.recipe.is_file() or self.recipe.read_bytes() != recipe:
            write_whole(self.recipe, recipe, durable=True)

    def lost(self) -> Lost:
        """What could not be read the last time. A file that makes no sense says nothing."""
        try:
            return decode_json(self.unreadable.read_bytes(), Lost)
        except (FileNotFoundError, *UNREADABLE):
            return Lost()

    def keep_lost(self, lost: Lost) -> None:
        """Remember what can't be read now."""
        if lost == self.lost():
            return
        if lost == Lost():
            self.unreadable.unlink(missing_ok=True)
        else:
            write_whole(self.unreadable, msgspec.json.encode(lost), durable=True)

    def settle(self, *, rebuild: bool) -> int:
        """The builder's first step: finish the swap of one that was killed in the middle; the current number."""
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
            else:  # its removal was interrupted by a kill
                shutil.rmtree(self.generation(newer))
        if not self.building.is_dir():
            self.drop_work()
        return number

    def drop_building(self) -> None:
        """Remove what is unfinished."""
        if self.building.exists():
            shutil.rmtree(self.building)
        self.drop_work()

    def drop_work(self) -> None:
        """Remove what only an unfinished generation needs."""
        for path in self.directory.glob(f"{self.work.name}*"):
            path.unlink()

    def sweep(self) -> None:
        """Remove the old generations without readers."""
        current = self.number()
        for number in self.generations():
            if number < current:
                home = self.generation(number)
                with suppress(OSError), _alone(home / "readers"):
                    shutil.rmtree(home)

    def drop(self) -> None:
        """Remove all that is ours, `current` first, and the directory if that was all."""
        self.current.unlink(missing_ok=True)
        for number in self.generations():
            (self.generation(number) / "meta.json").unlink(missing_ok=True)  # so half of it never counts as complete
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
        """The current generation and a descriptor that keeps it from being removed until it is closed.

        Raises:
            KnowledgeMissing: nothing was built here.
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
                    raise self.broken(f"{self.current} names a generation that is not there") from None
                continue
            with ExitStack() as closing, suppress(BlockingIOError):  # it is being removed: there is another
                closing.callback(os.close, handle)
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if self.number() == number:
                    closing.pop_all()
                    return number, handle
        raise KnowledgeBusy(f"the knowledge base in {self.directory} is built anew all the time; try again")

    def is_of(self, handle: int, number: int) -> bool:
        """Whether a lock that `read_lock` gave is on the generation that has this number by now."""
        try:
            return os.path.samestat(os.fstat(handle), (self.generation(number) / "readers").stat())
        except FileNotFoundError:
            return False

    def build_lock(self) -> int:
        """Be the one who builds, until the descriptor is closed. Makes the directory if need be.

        Raises:
            KnowledgeBusy: another process is.
            KnowledgeError: it is a directory of something else.
        """
        for _ in range(TRIES):
            self.directory.mkdir(parents=True, exist_ok=True)
            # In this order: another builder may just be making the lock.
            if any(self.directory.iterdir()) and not (self.lock.exists() or self.current.exists()):
                raise KnowledgeError(
                    f"{self.directory} holds other things; a knowledge base needs a directory of its own"
                )
            with suppress(FileNotFoundError):  # all of it has just been removed
                handle = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                with ExitStack() as closing:
                    closing.callback(os.close, handle)
                    try:
                        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        who = _told(handle)
                        raise KnowledgeBusy(
                            f"{self.directory} is being built by {who}; wait for it, or end it"
                        ) from None
                    if os.path.samestat(os.fstat(handle), self.lock.stat()):
                        os.ftruncate(handle, 0)
                        os.pwrite(handle, msgspec.json.encode(Builder(os.getpid(), time.time())), 0)
                        closing.pop_all()
                        return handle
        raise KnowledgeBusy(f"{self.directory} is removed all the time; try again")

    def builder(self) -> str:
        """Who builds it at this moment, in words; "" if none. Only to show: it locks for an instant."""
        try:
            handle = os.open(self.lock, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _told(handle)
        finally:
            os.close(handle)
        return ""

    def broken(self, what: str) -> KnowledgeError:
        """The error for a base that can only be made anew."""
        return KnowledgeError(
            f"the knowledge base in {self.directory} can't be used: {what}; run: callboard kb rebuild {self.directory}"
        )


class _Format(msgspec.Struct):
    format: int


def sync_all(directory: Path) -> dict[str, int]:
    """Have all files below on disk for good; their sizes by relative path."""
    sizes = {}
    for path in sorted(directory.rglob("*")):
        sync(path)
        if path.is_file() and not path.name.endswith(".lock"):
            sizes[str(path.relative_to(directory))] = path.stat().st_size
    sync(directory)
    return sizes


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the only lock on it; BlockingIOError if there is another. A missing file is free."""
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


def _told(handle: int) -> str:
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
"""Something is short, and the files are as good as they were."""

SQLITE_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
FULL_WORDS = ("No space left", "disk is full", "quota exceeded", "File too large")
NEXT_TO_NOTHING = 1024 * 1024
"""Bytes free, below which an error counts as a full disk."""


@contextmanager
def told(layout: Layout) -> Iterator[None]:
    """Turn errors of the disk and of broken files into a KnowledgeError. Inside, only files of the base are used."""
    try:
        yield
    except (OSError, sqlite3.Error, ValueError, RuntimeError) as error:
        if _is_full(error, layout):
            raise KnowledgeError(
                f"no space left for {layout.directory}: {error}; free some and build again, which goes on from here"
            ) from error
        if isinstance(error, OSError) and error.errno in FORBIDDEN:
            raise KnowledgeError(f"{layout.directory}: {error} (a build has to write there)") from error
        if isinstance(error, OSError) and error.errno in NO_FAULT:
            raise KnowledgeError(f"{layout.directory} can't be used now: {error}") from error
        raise layout.broken(str(error)) from error


def _is_full(error: Exception, layout: Layout) -> bool:
    """Whether the disk, or our share of it, is full. Some engines tell it in words, and some not at all."""
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
