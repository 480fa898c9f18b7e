"""The arrows of docs/architecture.md: imports only go down, and nothing goes in circles."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FLOORS = ["protocol", "supervisors", "actors", "cli"]
FILES = sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))
MOST_LINES = 500


def module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


KNOWN = {module(file) for file in FILES}


def imported(path: Path, *, for_types: bool) -> Iterator[str]:
    """Modules of this package that a file imports; with `for_types`, also those under `if TYPE_CHECKING`."""
    tree = ast.parse(path.read_text())
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not for_types:
            skipped.update(child for statement in node.body for child in ast.walk(statement))
        if isinstance(node, ast.ImportFrom) and node.level and node not in skipped:
            package = path.relative_to(ROOT).parent.parts
            base = package[: len(package) - (node.level - 1)]
            target = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            names = [f"{target}.{alias.name}" for alias in node.names]
            yield from {name if name in KNOWN else target for name in names}


@pytest.mark.parametrize("floor", FLOORS)
def test_imports_only_go_down(floor: str) -> None:
    above = FLOORS[FLOORS.index(floor) + 1 :]
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in FILES
        if path.relative_to(ROOT).parts[0] == floor
        for name in imported(path, for_types=True)
        if name.split(".")[0] in above
    ]
    assert wrong == []


def test_no_module_imports_itself_by_a_detour() -> None:
    arrows = {module(path): set(imported(path, for_types=False)) - {module(path)} for path in FILES}
    arrows = {name: {target for target in targets if target in arrows} for name, targets in arrows.items()}
    # A package's `__init__` gathers its own rooms; going through it from inside would be the circle.
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_lowest_floor_knows_neither_trio_nor_files() -> None:
    wrong = []
    for path in (ROOT / "protocol").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            wrong += [f"{path.name}: {name}" for name in names if name.split(".")[0] in {"trio", "os", "pathlib", "io"}]
    assert wrong == []


def test_no_file_has_outgrown_its_room() -> None:
    long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES}
    assert {name: lines for name, lines in long.items() if lines > MOST_LINES} == {}
