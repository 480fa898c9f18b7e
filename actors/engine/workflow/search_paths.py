"""Search paths of the Python files with a workflow's functions.

    functions/edge/              conditions
    functions/edge_processor/    processors
    functions/function_calling/  tools

The search starts with a variable of the environment. It continues next to the workflow, next to the directories
above it (as in DevAll's own repository), and in the working directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias, get_args

Kind: TypeAlias = Literal["edge", "edge_processor", "function_calling"]
KINDS: tuple[Kind, ...] = get_args(Kind)

HOST = Path(__file__).parent / "workers" / "devall" / "host.py"
"""Module that prepares the process of a function; its docstring has the details."""

ABOVE = 2
"""Parent directories of a workflow that are searched: DevAll's own subgraphs are two levels below its root."""

# Variables of DevAll's program, so that an environment for it works here.
_NAMED: dict[Kind, str] = {
    "edge": "MAC_EDGE_FUNCTIONS_DIR",
    "edge_processor": "MAC_EDGE_PROCESSOR_FUNCTIONS_DIR",
    "function_calling": "MAC_FUNCTIONS_DIR",
}


def functions_directory(directory: Path, kind: Kind, environ: Mapping[str, str]) -> Path | None:
    """Return the directory with functions of this kind for workflows in `directory`; None if there is none."""
    above = directory.absolute().parents[:ABOVE]
    places = [place / "functions" / kind for place in (directory, *above, Path.cwd())]
    named = environ.get(_NAMED[kind])
    if named:
        places.insert(0, Path(named).expanduser())
    return next((place for place in places if place.is_dir()), None)


def function_files(directory: Path | None) -> list[Path]:
    """Return the Python files in a directory of functions and below, without the ones that DevAll's engine ignores."""
    found = directory.absolute().rglob("*.py") if directory is not None else ()
    return sorted(file for file in found if not file.name.startswith("_") and "__pycache__" not in file.parts)


def module_name(file: Path, directory: Path | None) -> str:
    """Return a file's name for `:All`: `web`, or `search/web` for a file in a subdirectory."""
    return file.relative_to(directory.absolute() if directory is not None else file.parent).with_suffix("").as_posix()


def roots_of(file: Path) -> list[Path]:
    """Return the first search path for imports of a file with functions: the parent of `functions/`, else the working
    directory.
    """
    above = [place.parent for place in file.absolute().parents if place.name == "functions"]
    return above[:1] or [Path.cwd()]
