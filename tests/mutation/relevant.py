"""Test selection for a mutated module: those of its package, the most relevant files first."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from mutations import Mutation

LEFT_OUT = {"postgres", "tmux", "browser", "browser_keeper", "breaking_terminal", "terminal_model"}
"""Modules of `tests/support` for PostgreSQL, terminals and browsers. Test files that import them are not run."""

LEFT_OUT_BEFORE = {"postgres_house", "tmux", "browser", "browser_keeper", "breaking_terminal", "small_terminal"}
"""The same, in commits in which the helper modules were in `tests/` itself."""


@cache
def _imports(path: Path) -> frozenset[str]:
    """Return the dotted names that a file imports: modules, and names in modules."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


@cache
def _left_out(tests: Path, path: Path) -> bool:
    """Return True if a file needs one of the modules that are left out, itself or through a helper."""
    todo, seen = [path], {path}
    while todo:
        parts = {tuple(name.split(".")) for name in _imports(todo.pop())}
        supports = {each[1] for each in parts if each[0] == "support" and len(each) > 1}
        if supports & LEFT_OUT or {each[0] for each in parts} & LEFT_OUT_BEFORE:
            return True
        helpers = {tests / f"{each[0]}.py" for each in parts} | {tests / "support" / f"{name}.py" for name in supports}
        todo.extend(helper for helper in helpers - seen if helper.is_file())
        seen |= helpers
    return False


def test_files(root: Path, package: str, folder: str, mutation: Mutation) -> list[str]:
    """Return the test files of `folder` for a mutation below it, relative to `root`.

    Order: files that import the module or the mutated class or function, files of its mirror folder, files of each
    parent folder up to `folder`. Within a folder, files with the module's name come first, and subfolders last.
    """
    tests = root / "tests"
    mirror = tests / Path(mutation.path).parent
    module = ".".join((package, *mutation.path.removesuffix(".py").split("/")))
    stem = Path(mutation.path).stem
    # Packages re-export names: `from callboard.supervisors import Retry` imports `supervisors/policy.py`.
    name = mutation.function.partition(".")[0]

    def rank(file: Path) -> tuple[bool, int, bool, int, str]:
        imports = any(
            each == module
            or each.startswith(f"{module}.")
            or (each.startswith(f"{package}.") and each.endswith(f".{name}"))
            for each in _imports(file)
        )
        shared = next(each for each in (mirror, *mirror.parents) if file.is_relative_to(each))
        up = len(mirror.relative_to(shared).parts)
        named = stem in file.stem or file.stem.removeprefix("test_") in stem
        return not imports, up, not named, len(file.relative_to(shared).parts), file.as_posix()

    usable = (
        file
        for file in (tests / folder).rglob("test_*.py")
        if not _left_out(tests, file) and not {"interop", "golden"}.intersection(file.parts)
    )
    return [file.relative_to(root).as_posix() for file in sorted(usable, key=rank)]
