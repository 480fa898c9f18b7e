"""Import graph of the package, read from the source: modules, their packages, and their layers.

A package is a folder directly below a layer, with everything in it, or a module beside those folders. The kernel
(`supervisors`) counts as one package.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP_LEVEL = ("protocol", "supervisors", "actors", "cli")
"""Folders of the package, the lowest layer first."""

FILES = sorted(path for folder in TOP_LEVEL for path in (ROOT / folder).rglob("*.py"))


BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")
"""Fields of nodes that contain statements, in the order of the text."""


def module(path: Path) -> str:
    """Return the dotted name: `actors.io.http` for `actors/io/http/__init__.py`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module(file): file for file in FILES}


def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a file; those of the package are parsed once, because many rules read all of them."""
    return _trees().get(path) or ast.parse(path.read_text(encoding="utf-8"))  # a test's own file is not in the package


@cache
def _trees() -> dict[Path, ast.Module]:
    gc.disable()  # no tree contains garbage, and collecting doubles the time of parsing
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
    gc.freeze()
    gc.enable()
    return trees


@cache
def import_statements(path: Path) -> list[tuple[ast.ImportFrom, bool]]:
    """Return the relative imports of a file, at any depth, each with True if it is for types only."""
    found: list[tuple[ast.ImportFrom, bool]] = []
    left: list[tuple[ast.AST, bool]] = [(tree_of(path), False)]
    while left:
        node, for_types = left.pop()
        if isinstance(node, ast.ImportFrom) and node.level:
            found.append((node, for_types))
        checked = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for block in BLOCKS:  # only these contain statements, and most nodes of a tree are expressions
            left += [(each, for_types or (checked and block == "body")) for each in getattr(node, block, ())]
    return found


def imported(path: Path, *, for_types: bool) -> Iterator[str]:
    """Yield the modules of this package that a file imports; with `for_types`, also those under `if TYPE_CHECKING`."""
    for node, only_types in import_statements(path):
        if for_types or not only_types:
            package = path.relative_to(ROOT).parent.parts
            base = package[: len(package) - (node.level - 1)]
            target = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            names = [f"{target}.{alias.name}" for alias in node.names]
            yield from {name if name in MODULES else target for name in names}


@cache
def import_graph(*, for_types: bool) -> dict[str, set[str]]:
    """Return for each module the modules that it imports, inside functions too."""
    return {
        name: {target for target in imported(path, for_types=for_types) if target in MODULES} - {name}
        for name, path in MODULES.items()
    }


def layer_of(name: str) -> str:
    """Return the layer of a module: `actors.work` for `actors.work.tools.calls`, `protocol` for `protocol.chat`."""
    top, *below = name.split(".")
    return f"{top}.{below[0]}" if top == "actors" and below else top


def package_of(name: str) -> str:
    """Return the package of a module: `actors.work.tools` for `actors.work.tools.calls`, `protocol.chat` for itself."""
    if name.startswith("supervisors"):
        return "supervisors"
    return ".".join(name.split(".")[: layer_of(name).count(".") + 2])


def between_packages(graph: Mapping[str, Iterable[str]]) -> dict[str, dict[str, list[str]]]:
    """Return for each package the packages that it imports, each with the imports of modules that make it so."""
    packages: dict[str, dict[str, list[str]]] = {package_of(name): {} for name in MODULES}
    for name, targets in sorted(graph.items()):
        for target in sorted(targets):
            if package_of(target) != package_of(name):
                packages[package_of(name)].setdefault(package_of(target), []).append(f"{name} -> {target}")
    return packages


def cycle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the nodes of one cycle, the first repeated at the end; an empty list if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        nodes: list[str] = error.args[1]
        return nodes[::-1]  # the sorter lists imported modules before importing ones
    return []
