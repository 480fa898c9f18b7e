"""Where the Python files are whose functions a workflow may name.

    functions/edge/              conditions
    functions/edge_processor/    processors
    functions/function_calling/  tools

They are looked for where the environment says, then beside the workflow, beside the directories above it (as DevAll's
own repository has them), and in the working directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias, get_args

Kind: TypeAlias = Literal["edge", "edge_processor", "function_calling"]
KINDS: tuple[Kind, ...] = get_args(Kind)

HOST = Path(__file__).parent / "workers" / "devall" / "host.py"
"""What functions find in their process: see there."""

ABOVE = 2
"""Directories above a workflow that may have functions: DevAll's own subgraphs stand two below its root."""

_NAMED: dict[Kind, str] = {
    "edge": "MAC_EDGE_FUNCTIONS_DIR",
    "edge_processor": "MAC_EDGE_PROCESSOR_FUNCTIONS_DIR",
    "function_calling": "MAC_FUNCTIONS_DIR",
}


def functions_directory(directory: Path, kind: Kind, environ: Mapping[str, str]) -> Path | None:
    """The functions of this kind that the workflows in `directory` may name; None if there are none."""
    above = directory.absolute().parents[:ABOVE]
    places = [place / "functions" / kind for place in (directory, *above, Path.cwd())]
    named = environ.get(_NAMED[kind])
    if named:
        places.insert(0, Path(named).expanduser())
    return next((place for place in places if place.is_dir()), None)


def function_files(directory: Path | None) -> list[Path]:
    """The Python files in a directory of functions and below it, without those that are hidden from DevAll's engine."""
    found = directory.absolute().rglob("*.py") if directory is not None else ()
    return sorted(file for file in found if not file.name.startswith("_") and "__pycache__" not in file.parts)


def module_name(file: Path, directory: Path | None) -> str:
    """A file as `:All` names it: `web`, or `search/web` for one in a directory below."""
    return file.relative_to(directory.absolute() if directory is not None else file.parent).with_suffix("").as_posix()


def roots_of(file: Path) -> list[Path]:
    """Where modules that a file of functions imports are looked for first: beside `functions/`, else where we are."""
    above = [place.parent for place in file.absolute().parents if place.name == "functions"]
    return above[:1] or [Path.cwd()]
