"""The files of roles: `roles/NAME.md` of the configuration directory, and those that come with Callboard."""

from __future__ import annotations

from pathlib import Path

from ....protocol.errors import UsageError
from ....protocol.role import Role, read_role, split_name
from ...io.named_files import NamedFiles, Place
from ..library import ROLES

FILES = NamedFiles(kind="role", scope="read:roles", folder="roles", suffix=".md", ours=ROLES, read=read_role)


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
    return FILES.load(locate(name, base)).with_arguments(split_name(name)[1])


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
    return FILES.save(name, text, base, replace=replace)
