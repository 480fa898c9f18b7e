"""Benchmarks and examples name what is there: a benchmark that runs by hand only would tell of a move months later."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]


def named() -> Iterator[tuple[str, str, str]]:
    """File, module and name of each import from the package."""
    for path in sorted([*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("callboard"):
                yield from ((str(path.relative_to(ROOT)), node.module or "", alias.name) for alias in node.names)


def test_every_name_that_they_import_is_there() -> None:
    found = list(named())
    assert len(found) > 50
    modules = {module: import_module(module) for _, module, _ in found}
    missing = [each for each in found if not hasattr(modules[each[1]], each[2]) and not _is_module(*each[1:])]
    assert missing == []


def _is_module(package: str, name: str) -> bool:
    try:
        import_module(f"{package}.{name}")
    except ModuleNotFoundError:
        return False
    return True
