"""Who imports whom, read from the code: modules, and the rooms and floors that they stand in.

A room is a package below a floor, with all that is in it. A module that stands beside rooms is a room of its own. The
kernel (`supervisors`) is one room.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOUSE = ("protocol", "supervisors", "actors", "cli")
FILES = sorted(path for floor in HOUSE for path in (ROOT / floor).rglob("*.py"))


def module(path: Path) -> str:
    """`actors.io.http` for `actors/io/http/__init__.py`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module(file): file for file in FILES}


@cache
def tree_of(path: Path) -> ast.Module:
    """What a module's text says; read once, as many rules look at all of them."""
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path, *, for_types: bool) -> Iterator[str]:
    """Modules of this package that a file imports; with `for_types`, also those under `if TYPE_CHECKING`."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.If) and not for_types and "TYPE_CHECKING" in ast.unparse(node.test):
            skipped.update(child for statement in node.body for child in ast.walk(statement))
        if isinstance(node, ast.ImportFrom) and node.level and node not in skipped:
            package = path.relative_to(ROOT).parent.parts
            base = package[: len(package) - (node.level - 1)]
            target = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            names = [f"{target}.{alias.name}" for alias in node.names]
            yield from {name if name in MODULES else target for name in names}


@cache
def arrows(*, for_types: bool) -> dict[str, set[str]]:
    """For each module those that it imports, at the top of the file or inside functions."""
    return {
        name: {target for target in imported(path, for_types=for_types) if target in MODULES} - {name}
        for name, path in MODULES.items()
    }


def floor_of(name: str) -> str:
    """`actors.work` for `actors.work.tools.calls`, `protocol` for `protocol.chat`."""
    floor, *below = name.split(".")
    return f"{floor}.{below[0]}" if floor == "actors" and below else floor


def room_of(name: str) -> str:
    """`actors.work.tools` for `actors.work.tools.calls`, `protocol.chat` for itself."""
    if name.startswith("supervisors"):
        return "supervisors"
    return ".".join(name.split(".")[: floor_of(name).count(".") + 2])


def between_rooms(arrows: Mapping[str, Iterable[str]]) -> dict[str, dict[str, list[str]]]:
    """For each room those that it knows, each with the imports that make it so."""
    rooms: dict[str, dict[str, list[str]]] = {room_of(name): {} for name in MODULES}
    for name, targets in sorted(arrows.items()):
        for target in sorted(targets):
            if room_of(target) != room_of(name):
                rooms[room_of(name)].setdefault(room_of(target), []).append(f"{name} -> {target}")
    return rooms


def circle(arrows: Mapping[str, Iterable[str]]) -> list[str]:
    """One way that leads back to where it began; empty if there is none."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        way: list[str] = error.args[1]
        return way[::-1]  # the sorter tells it from the imported to the importing
    return []
