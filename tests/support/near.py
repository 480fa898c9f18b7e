"""Run the tests near a change, within 30 seconds: `make near`, or `python tests/support/near.py [FILE...]`.

The change is what `git diff` shows against HEAD, with new files; in a clean checkout, the last commit. Files named as
arguments take its place. Tests are chosen by file and run in this order:

    1. changed test files
    2. test files that import a changed module
    3. tests/packaging/test_layers.py, the rules on imports
    4. the folder of tests that mirrors the module's folder
    5. test files that import a module that imports a changed one, and so on; the fewest steps first

Within each of them the files that took the shortest time in the last run come first. Tests of the tiers `terminal`,
`postgres`, `full` and `soak` are left out. After `SECONDS` all is ended, and what was not executed is printed. A test
that is being executed then, and usually takes far less than it has had, has failed: it hangs. A green result is no
proof: `make test` is.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("protocol", "supervisors", "actors", "cli")
SECONDS = 30.0
_STARTING = 1.5
"""Seconds of these for the start of two interpreters and for the summary."""
_START = time.monotonic()
COLLECTED = 120
"""Test files that are collected at most: more than this cannot run in the time, and collecting costs time too."""


def main(arguments: list[str]) -> int:
    changed = [Path(each) for each in arguments] or changed_files()
    ranked = ranks(changed)
    if not ranked:
        print("near: no tests are near this change (no Python file of the product or of tests/ has changed)")
        return 0
    seconds = last_durations()
    files = sorted(ranked, key=lambda file: (ranked[file], seconds.get(file, 1.0), file))
    chosen, beyond = files[:COLLECTED], files[COLLECTED:]
    print(f"near: {len(files)} test files for {', '.join(map(str, changed[:5]))}{' ...' if len(changed) > 5 else ''}")
    if beyond:
        print(f"near: {len(beyond)} of them are too far away for {SECONDS:.0f} seconds, from {beyond[0]} on")
    sys.stdout.flush()
    marks = "not (terminal or postgres or full or soak)"
    command = [sys.executable, "-m", "pytest", "-q", "-m", marks, "--workers", str(2 * (os.cpu_count() or 1))]
    left = SECONDS - (time.monotonic() - _START) - _STARTING
    done = subprocess.run([*command, "--budget", f"{left:.1f}", *chosen], cwd=ROOT)
    return 0 if done.returncode == 5 else done.returncode  # 5: all tests of these files are of other tiers


def changed_files() -> list[Path]:
    """Return the files of the change, relative to the repository."""
    names = git("diff", "--name-only", "HEAD") + git("ls-files", "--others", "--exclude-standard")
    return [Path(name) for name in names or git("diff", "--name-only", "HEAD~1")]


def git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()


def ranks(changed: Iterable[Path]) -> dict[str, int]:
    """Return the test files near the changed files, with the number of their group in the module's docstring."""
    found: dict[str, int] = {}

    def add(file: Path, rank: int) -> None:
        name = str(file.relative_to(ROOT))
        found[name] = min(rank, found.get(name, rank))

    modules = set[str]()
    for path in changed:
        full = ROOT / path
        if path.suffix != ".py" or not full.exists():
            continue
        if path.parts[0] in PRODUCT:
            modules.add(module_name(full))
            for test in mirror(path).glob("**/test_*.py"):
                add(test, 4)
        elif path.parts[0] == "tests" and path.name.startswith("test_"):
            add(full, 1)
        elif path.parts[0] == "tests":
            modules.add(module_name(full))
    steps = distances(modules)
    for test in (ROOT / "tests").glob("**/test_*.py"):
        distance = steps.get(module_name(test))
        if distance is not None:
            add(test, 2 if distance == 1 else 4 + distance)
    if modules:
        add(ROOT / "tests/packaging/test_layers.py", 3)
    return found


def mirror(path: Path) -> Path:
    """Return the folder of tests that mirrors a module's folder, or the nearest one above it that exists."""
    folder = ROOT / "tests" / path.parent
    while not folder.is_dir():
        folder = folder.parent
    return folder if folder != ROOT / "tests" else ROOT / "tests/packaging"


def distances(modules: Iterable[str]) -> dict[str, int]:
    """Return how many imports lead from a module or test to the nearest of `modules`, where any do."""
    importers: dict[str, set[str]] = defaultdict(set)
    for folder in (*PRODUCT, "tests"):
        for file in (ROOT / folder).glob("**/*.py"):
            for imported in imports(file):
                importers[imported].add(module_name(file))
    found = dict.fromkeys(modules, 0)
    level = list(found)
    while level:
        following = {each for name in level for each in importers[name]} - found.keys()
        found |= dict.fromkeys(following, found[level[0]] + 1)
        level = list(following)
    return found


@cache
def module_name(file: Path) -> str:
    """Return the dotted name that imports use: `actors.io.http`, and below tests/ `fake_models`, `cli.test_ask`."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] == "tests" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(file: Path) -> set[str]:
    """Return the modules that a file imports, as `module_name` names them; names from modules count as modules too."""
    found = set[str]()
    package = module_name(file).split(".") if file.name == "__init__.py" else module_name(file).split(".")[:-1]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("callboard.") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *(node.module or "").split(".")]).strip(".").removeprefix("callboard.")
            found |= {name, *(f"{name}.{alias.name}".strip(".") for alias in node.names)}
    return found


def last_durations() -> dict[str, float]:
    """Return the seconds that each test file took in the last run, from pytest's cache."""
    cached = ROOT / ".pytest_cache/v/callboard/durations"
    seconds: dict[str, float] = defaultdict(float)
    if cached.exists():
        for test, took in json.loads(cached.read_text()).items():
            seconds[test.split("::", 1)[0]] += took
    return dict(seconds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
