"""The files of macros: `macros/NAME.yaml` of the configuration directory, and those that come with Callboard."""

from __future__ import annotations

from pathlib import Path

from ....protocol.macro import Macro, read_macro
from ...io.named_files import NamedFiles, Place, invalid
from ..library import MACROS

FILES = NamedFiles(kind="macro", folder="macros", suffix=".yaml", ours=MACROS)


def find(name: str, base: Path) -> Macro:
    """The macro of this name.

    Raises:
        NotFound: there is none.
        InvalidFile: its file has errors, or is no text.
    """
    return load(FILES.locate(name, base))


def load(place: Place) -> Macro:
    """The macro at a place.

    Raises:
        InvalidFile: its file has errors, or is no text.
    """
    macro, problems = read_macro(FILES.text_of(place.file), str(place.file), place.name)
    if macro is None:
        raise invalid(problems, place.file)
    return macro


def save(name: str, text: str, base: Path, *, replace: bool = True) -> tuple[Macro, bool]:
    """Keep the text as the user's macro of this name; the macro, and whether its file is new.

    Raises:
        UsageError: no macro can have this name.
        Conflict: there is one, and it is not to be replaced.
        InvalidFile: the text is no macro; nothing is written.
        NotKept: the disk refuses.
    """
    place = FILES.place_for(name, base)
    macro, problems = read_macro(text, str(place.file), name)
    if macro is None:
        raise invalid(problems, place.file)
    return macro, FILES.write(place, text, replace=replace)
