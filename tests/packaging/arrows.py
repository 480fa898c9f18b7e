"""Who imports whom, read from the code: modules, and the rooms and floors that they stand in.

A room is a package below a floor, with all that is in it. A module that stands beside rooms is a room of its own. The
kernel (`supervisors`) is one room.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOUSE = ("protocol", "supervisors", "actors", "cli")
FILES = sorted(path for floor in HOUSE for path in (ROOT / floor).rglob("*.py"))


BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")
"""Fields of nodes that hold statements, in the order of the text."""


def module(path: Path) -> str:
    """`actors.io.http` for `actors/io/http/__init__.py`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module(file): file for file in FILES}


def tree_of(path: Path) -> ast.Module:
    """What a module's text says; read once, as many rules look at all of them."""
    return _trees().get(path) or ast.parse(path.read_text(encoding="utf-8"))  # a test's own file is none of the package


@cache
def _trees() -> dict[Path, ast.Module]:
    gc.disable()  # nothing of a tree is garbage, and to look for some takes twice as long as to read it
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
    gc.freeze()
    gc.enable()
    return trees


@cache
def imports_of(path: Path) -> list[tuple[ast.ImportFrom, bool]]:
    """The imports from this package, wherever they stand, and whether they are there for types alone."""
    found: list[tuple[ast.ImportFrom, bool]] = []
    left: list[tuple[ast.AST, bool]] = [(tree_of(path), False)]
    while left:
        node, for_types = left.pop()
        if isinstance(node, ast.ImportFrom) and node.level:
            found.append((node, for_types))
        checked = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for block in BLOCKS:  # statements stand nowhere else, and most of a tree are expressions
            left += [(each, for_types or (checked and block == "body")) for each in getattr(node, block, ())]
    return found


def imported(path: Path, *, for_types: bool) -> Iterator[str]:
    """Modules of this package that a file imports; with `for_types`, also those under `if TYPE_CHECKING`."""
    for node, types_alone in imports_of(path):
        if for_types or not types_alone:
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
