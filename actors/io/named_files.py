"""Small text files with names: roles, macros. Files of the configuration directory hide built-in ones.

A name is a file's name without its suffix, and never leads to another directory. Dot files are not listed. Files are
read again for each use, because the user may edit them.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from ...protocol.errors import Conflict, InvalidFile, NotFound, NotKept, UsageError
from ...protocol.problems import Problem, did_you_mean, errors_in
from .atomic_write import write_whole
from .directories import Kind, user_folder

T = TypeVar("T")

MOST_BYTES = 4_000_000
"""Maximum bytes; a longer file is refused before it is read."""

_MOST_BYTES_OF_NAME = 200
_NAME = re.compile(r"[^\W_][\w. +:@-]{0,99}")


class FilePlace(msgspec.Struct, frozen=True, kw_only=True):
    """Path of a file with its name; `built_in` if it ships with Callboard."""

    name: str
    file: Path
    built_in: bool


def is_name(name: str) -> bool:
    """Return True for a valid name: a letter or a digit, then letters, digits, blanks and `_ . + : @ -`.

    A file system counts bytes, a letter may have four, and the temporary file for writing has a longer name.
    """
    fits = _NAME.fullmatch(name) is not None and len(name.encode()) <= _MOST_BYTES_OF_NAME
    return fits and not name.endswith((".", " "))


class NamedFiles(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Files of one kind.

    Attributes:
        kind: name of the kind in messages: `role`.
        scope: scope that a caller needs to see their names.
        folder: directory below the configuration directory.
        suffix: suffix of the files.
        ours: directory of the built-in ones.
        read: parses a text, given also its file and name; returns the value, None if it has errors, and its problems.
    """

    kind: str
    scope: str
    folder: Kind
    suffix: str
    ours: Path
    read: Callable[[str, str, str], tuple[T | None, list[Problem]]]

    def directory(self, base: Path) -> Path:
        """Return the directory of the user's files in the configuration directory `base`."""
        return user_folder(self.folder, base)

    def places(self, base: Path) -> list[FilePlace]:
        """Return all files, sorted by name; a user's file hides the built-in one of its name."""
        found = {name: FilePlace(name=name, file=file, built_in=True) for name, file in self._listed(self.ours)}
        own = self._listed(self.directory(base))
        found |= {name: FilePlace(name=name, file=file, built_in=False) for name, file in own}
        return [found[name] for name in sorted(found)]

    def locate(self, name: str, base: Path) -> FilePlace:
        """Return the file with this name.

        Raises:
            NotFound: there is none.
        """
        if is_name(name):
            for home, built_in in ((self.directory(base), False), (self.ours, True)):
                file = home / f"{name}{self.suffix}"
                # A directory that may not be searched counts as one without the file.
                with suppress(OSError):
                    if file.exists():
                        return FilePlace(name=name, file=file, built_in=built_in)
        known = [place.name for place in self.places(base)]
        hint = did_you_mean(name, known) or (f"there are: {', '.join(known)}" if known else "there are none")
        plain = f"Unknown {self.kind} `{name[:100]}`"
        raise NotFound(f"{plain}; {hint}").for_readers(self.scope, plain)

    def text_of(self, file: Path) -> str:
        """Return the text of a file.

        Raises:
            InvalidFile: it can't be read, is too long, or is not text.
        """
        try:
            # Checked before reading: a named pipe would block for ever, and a device may be endless.
            about = file.stat()
            if not stat.S_ISREG(about.st_mode):
                raise InvalidFile(f"{file} can't be used as a {self.kind}: it is not a regular file")
            if about.st_size > MOST_BYTES:
                size = f"the file has {about.st_size} bytes, and at most {MOST_BYTES} are allowed"
                raise InvalidFile(f"{file} is no {self.kind}: {size}")
            return file.read_text("utf-8")
        except UnicodeDecodeError as error:
            why = f"the file is not UTF-8 text ({error.reason} at byte {error.start})"
            raise InvalidFile(f"{file} is no {self.kind}: {why}") from None
        except OSError as error:
            raise InvalidFile(f"{file} can't be read: {error.strerror or error}") from error

    def load(self, place: FilePlace) -> T:
        """Return the parsed file.

        Raises:
            InvalidFile: it has errors, or is not text.
        """
        return self._read(self.text_of(place.file), place)

    def save(self, name: str, text: str, base: Path, *, replace: bool = True) -> tuple[T, bool]:
        """Store the text as the user's file of this name; return the parsed value, and True if the file is new.

        Raises:
            UsageError: the name is invalid.
            Conflict: the file exists, and `replace` is False.
            InvalidFile: the text has errors; nothing is written.
            NotKept: it can't be written.
        """
        place = self.place_for(name, base)
        return self._read(text, place), self.write(place, text, replace=replace)

    def place_for(self, name: str, base: Path) -> FilePlace:
        """Return the path for the user's file of this name.

        Raises:
            UsageError: the name is invalid.
        """
        if not is_name(name):
            raise UsageError(
                f"{name[:100]!r} can't be the name of a {self.kind}: a name has letters, digits, blanks and "
                "_ . + : @ -, begins with a letter or a digit, and has at most 100 characters and "
                f"{_MOST_BYTES_OF_NAME} bytes"
            )
        return FilePlace(name=name, file=self.directory(base) / f"{name}{self.suffix}", built_in=False)

    def write(self, place: FilePlace, text: str, *, replace: bool) -> bool:
        """Write a file; return True if it is new.

        Raises:
            Conflict: it exists, and `replace` is False.
            NotKept: it can't be written.
        """
        there = place.file.exists()
        if there and not replace:
            raise Conflict(f"the {self.kind} '{place.name}' exists already ({place.file})")
        try:
            place.file.parent.mkdir(parents=True, exist_ok=True)
            # Other processes read these files at any time, so a file is replaced as a whole.
            write_whole(place.file, (text if text.endswith("\n") else f"{text}\n").encode())
        except OSError as error:
            raise NotKept(f"{place.file} can't be written: {error.strerror or error}") from error
        return not there

    def delete(self, name: str, base: Path) -> Path:
        """Delete the user's file of this name, which may reveal a built-in one.

        Raises:
            NotFound: there is none.
            UsageError: it is a built-in one.
            NotKept: it can't be deleted.
        """
        place = self.locate(name, base)
        if place.built_in:
            raise UsageError(f"the {self.kind} '{place.name}' is built into Callboard and can't be deleted")
        try:
            place.file.unlink()
        except OSError as error:
            raise NotKept(f"{place.file} can't be deleted: {error.strerror or error}") from error
        return place.file

    def _listed(self, home: Path) -> list[tuple[str, Path]]:
        try:
            entries = [path for path in home.iterdir() if path.suffix == self.suffix and path.is_file()]
        except OSError:
            return []
        return [(path.stem, path) for path in entries if is_name(path.stem)]

    def _read(self, text: str, place: FilePlace) -> T:
        found, problems = self.read(text, str(place.file), place.name)
        if found is None:
            errors = errors_in(problems)
            count = f"{len(errors)} error{'' if len(errors) == 1 else 's'}"
            told = "\n".join([f"{count} in {place.file}:", *(f"  {error}" for error in errors)])
            raise InvalidFile(told, problems)
        return found
