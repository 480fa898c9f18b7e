"""The files of roles: `roles/NAME.md` of the configuration directory, and those that come with Callboard."""

from __future__ import annotations

from pathlib import Path

from ....protocol.errors import UsageError
from ....protocol.role import Role, read_role, split_name
from ...io.named_files import NamedFiles, Place, invalid
from ..library import ROLES

FILES = NamedFiles(kind="role", folder="roles", suffix=".md", ours=ROLES)


def locate(name: str, base: Path) -> Place:
    """Where the role of this name is. What stands behind a `#` are arguments.

    Raises:
        NotFound: there is none.
    """
    return FILES.locate(split_name(name)[0], base)


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
    role, problems = read_role(FILES.text_of(place.file), str(place.file), place.name)
    if role is None:
        raise invalid(problems, place.file)
    return role


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
    place = FILES.place_for(name, base)
    role, problems = read_role(text, str(place.file), name)
    if role is None:
        raise invalid(problems, place.file)
    return role, FILES.write(place, text, replace=replace)
