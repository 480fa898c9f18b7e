"""The files of roles: `roles/NAME.md` of the configuration directory, and those that come with Callboard.

A name is a file's name without its ending. What begins with a dot is not listed. Each file is read anew when it is
asked for: it is small, and a person may have an editor open on it.
"""

from __future__ import annotations

import re
import stat
from contextlib import suppress
from pathlib import Path

import msgspec

from ....protocol.errors import Conflict, InvalidFile, NotFound, NotKept, UsageError
from ....protocol.problems import Problem, did_you_mean, errors_in
from ....protocol.role import MOST_CHARACTERS, Role, read_role, split_name
from ...io.whole_file import write_whole
from ..library import ROLES

MOST_BYTES = 4 * MOST_CHARACTERS

_NAME = re.compile(r"[^\W_][\w. +:@-]{0,99}")
_DIRECTORY = "roles"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a role is: its name without arguments, its file, and whether it comes with Callboard."""

    name: str
    file: Path
    built_in: bool


def directory(base: Path) -> Path:
    """Where the roles of the configuration directory `base` are."""
    return base / _DIRECTORY


def places(base: Path) -> list[Place]:
    """Every role that can be named, by name; one of the user's hides the built-in one of its name."""
    found = {name: Place(name=name, file=file, built_in=True) for name, file in _listed(ROLES)}
    found |= {name: Place(name=name, file=file, built_in=False) for name, file in _listed(directory(base))}
    return [found[name] for name in sorted(found)]


def locate(name: str, base: Path) -> Place:
    """Where the role of this name is. What stands behind a `#` are arguments.

    Raises:
        NotFound: there is none.
    """
    called, _ = split_name(name)
    if is_name(called):
        for home, built_in in ((directory(base), False), (ROLES, True)):
            file = home / f"{called}.md"
            with suppress(OSError):
                if file.exists():
                    return Place(name=called, file=file, built_in=built_in)
    known = [place.name for place in places(base)]
    hint = did_you_mean(called, known) or f"there are: {', '.join(known)}"
    raise NotFound(f"Unknown role `{called[:100]}`; {hint}")


def find(name: str, base: Path) -> Role:
    """The role of this name, its arguments put in: `translate#it`.

    Raises:
        NotFound: there is none.
        InvalidFile: its file has errors, or is no text.
        UsageError: it takes more or fewer arguments.
    """
    return load(locate(name, base)).with_arguments(split_name(name)[1])


def load(place: Place) -> Role:
    """The role at a place, before its arguments are put in.

    Raises:
        InvalidFile: its file has errors, or is no text.
    """
    shown = str(place.file)
    role, problems = read_role(text_of(place.file, "role"), shown, place.name)
    if role is None:
        raise InvalidFile(_told(problems, shown), problems)
    return role


def text_of(file: Path, what: str) -> str:
    """The text of a small file.

    Raises:
        InvalidFile: it can't be read, is too long, or is no text.
    """
    try:
        about = file.stat()
        if not stat.S_ISREG(about.st_mode):
            raise InvalidFile(f"{file} is no {what}: it is not a file")
        if about.st_size > MOST_BYTES:
            raise InvalidFile(
                f"{file} is no {what}: {about.st_size} bytes are too many (expected at most {MOST_BYTES})"
            )
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{file} is no {what}: it is not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise InvalidFile(f"{file} can't be read: {error.strerror or error}") from error


def is_name(called: str) -> bool:
    """Whether a role can have this name: a letter or a digit, then letters, digits, blanks and `_ . + : @ -`."""
    return _NAME.fullmatch(called) is not None and not called.endswith((".", " "))


def save(name: str, text: str, base: Path, *, replace: bool = True) -> tuple[Role, bool]:
    """Keep the text as the user's role of this name; the role, and whether its file is new.

    Raises:
        UsageError: no role can have this name.
        Conflict: there is one, and it is not to be replaced.
        InvalidFile: the text is no role; nothing is written.
        NotKept: the disk refuses.
    """
    if "#" in name:
        raise UsageError(f"Unable to save the role with arguments (whose name contains '#'): {name[:100]}")
    if not is_name(name):
        raise UsageError(
            f"'{name[:100]}' can't be a role's name: it takes letters, digits, blanks and _ . + : @ -, and begins with"
            " a letter or a digit"
        )
    file = directory(base) / f"{name}.md"
    role, problems = read_role(text, str(file), name)
    if role is None:
        raise InvalidFile(_told(problems, str(file)), problems)
    there = file.exists()
    if there and not replace:
        raise Conflict(f"there is a role '{name}' already ({file})")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, (text if text.endswith("\n") else f"{text}\n").encode())
    except OSError as error:
        raise NotKept(f"{file} can't be written: {error.strerror or error}") from error
    return role, not there


def delete(name: str, base: Path) -> Path:
    """Remove the user's role of this name; its file. A built-in one that it hid is there again.

    Raises:
        NotFound: there is none.
        UsageError: it is a built-in one.
        NotKept: the disk refuses.
    """
    place = locate(name, base)
    if place.built_in:
        raise UsageError(f"the role '{place.name}' comes with Callboard and can't be deleted")
    try:
        place.file.unlink()
    except OSError as error:
        raise NotKept(f"{place.file} can't be deleted: {error.strerror or error}") from error
    return place.file


def _listed(home: Path) -> list[tuple[str, Path]]:
    try:
        files = [path for path in home.iterdir() if path.suffix == ".md" and is_name(path.stem) and path.is_file()]
    except OSError:
        return []
    return [(path.stem, path) for path in files]


def _told(problems: list[Problem], file: str) -> str:
    errors = errors_in(problems)
    count = f"{len(errors)} error{'' if len(errors) == 1 else 's'}"
    return "\n".join([f"{count} in {file}:", *(f"  {error}" for error in errors)])
