"""Files of roles: `roles/NAME.md` of the configuration directory, and the built-in ones."""

from __future__ import annotations

from pathlib import Path

from ....protocol.errors import UsageError
from ....protocol.role import Role, read_role, split_name
from ...io.named_files import FilePlace, NamedFiles
from ..library import ROLES

FILES = NamedFiles(kind="role", scope="read:roles", folder="roles", suffix=".md", ours=ROLES, read=read_role)


def locate(name: str, base: Path) -> FilePlace:
    """Return the place of a role. The part of the name after `#` is ignored, since it contains arguments.

    Raises:
        NotFound: there is no such role.
    """
    return FILES.locate(split_name(name)[0], base)


def find(name: str, base: Path) -> Role:
    """Return the role of this name with its arguments inserted: `translate#it`.

    Raises:
        NotFound: there is no such role.
        InvalidFile: its file has errors, or is not text.
        UsageError: it takes more or fewer arguments.
    """
    return FILES.load(locate(name, base)).with_arguments(split_name(name)[1])


def save(name: str, text: str, base: Path, *, replace: bool = True) -> tuple[Role, bool]:
    """Store the text as the user's role of this name. Return the role, and True if its file is new.

    Raises:
        UsageError: the name is invalid for a role.
        Conflict: the role exists, and `replace` is False.
        InvalidFile: the text is not a valid role; nothing is written.
        NotKept: the file cannot be written.
    """
    if "#" in name:
        raise UsageError(f"Unable to save the role with arguments (whose name contains '#'): {name[:100]}")
    return FILES.save(name, text, base, replace=replace)
