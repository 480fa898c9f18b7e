"""Where the Python files are whose functions a workflow may name.

    functions/edge/              conditions
    functions/edge_processor/    processors
    functions/function_calling/  tools

They are looked for where the environment says, then beside the workflow, beside its directory (as DevAll's own
repository has them), and in the working directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["edge", "edge_processor", "function_calling"]

_NAMED: dict[Kind, str] = {
    "edge": "MAC_EDGE_FUNCTIONS_DIR",
    "edge_processor": "MAC_EDGE_PROCESSOR_FUNCTIONS_DIR",
    "function_calling": "MAC_FUNCTIONS_DIR",
}


def functions_directory(directory: Path, kind: Kind, environ: Mapping[str, str]) -> Path | None:
    """The functions of this kind that the workflows in `directory` may name; None if there are none."""
    places = [place / "functions" / kind for place in (directory, directory.parent, Path.cwd())]
    named = environ.get(_NAMED[kind])
    if named:
        places.insert(0, Path(named).expanduser())
    return next((place for place in places if place.is_dir()), None)
