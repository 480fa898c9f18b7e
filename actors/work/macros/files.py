"""Files of macros: `macros/NAME.yaml` of the configuration directory, and the built-in ones."""

from __future__ import annotations

from pathlib import Path

from ....protocol.macro import Macro, read_macro
from ...io.named_files import NamedFiles
from ..library import MACROS

FILES = NamedFiles(kind="macro", scope="read:agents", folder="macros", suffix=".yaml", ours=MACROS, read=read_macro)


def find(name: str, base: Path) -> Macro:
    """Return the macro of this name.

    Raises:
        NotFound: there is no such macro.
        InvalidFile: its file has errors, or is not text.
    """
    return FILES.load(FILES.locate(name, base))
