"""Detection of the commands that build and test a project, by its files and by what this machine has.

`BUILD_CMD` and `TEST_CMD` in the environment replace what is detected; empty, they turn the check off.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

SKIPPED = {"node_modules", "__pycache__", "site-packages", "target", "venv", "env", "vendor", "dist", "build"}
"""Directories in which no tests of the project itself are looked for; hidden ones are skipped as well."""

MOST_FILES = 5_000
"""Test files that are looked at."""

PYTHON = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "requirements-dev.txt", "tox.ini")
PYTEST_STYLE = re.compile(
    r"^(?:async\s+)?def\s+test|^\s*(?:import|from)\s+pytest\b|^class\s+Test\w*\s*(?:\(\s*\))?\s*:", re.MULTILINE
)
"""What unittest does not run: functions outside of classes, fixtures, classes without a base."""

NODE_TESTS = re.compile(r"(?:\.|-|_)test\.[cm]?js$|^test(?:-.+)?\.[cm]?js$")
"""What `node --test` finds by itself, besides all that is in directories named `test`."""

LOCKS = {
    "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "yarn",
    "bun.lockb": "bun",
    "bun.lock": "bun",
    "package-lock.json": "npm",
}


class Check:
    """One command of the project.

    Attributes:
        name: of the runner or tool, for reports.
        command: a line of shell; "" if it can't be run.
        directory: where it is run.
        missing: why it can't be run on this machine; "" if it can.
        definition: what a file of the project has the command run; "" for tools that decide by themselves.
    """

    def __init__(self, name: str, command: str, directory: Path, missing: str = "", definition: str = "") -> None:
        self.name, self.command, self.directory, self.missing = name, command, directory, missing
        self.definition = definition


def builds(directory: Path) -> list[Check]:
    """The commands that build or check the project."""
    own = os.environ.get("BUILD_CMD")
    if own is not None:
        return [Check("BUILD_CMD", own, directory)] if own.strip() else []
    return _detected(directory, 0)


def tests(directory: Path) -> list[Check]:
    """The commands that run the tests of the project."""
    own = os.environ.get("TEST_CMD")
    if own is not None:
        return [Check("TEST_CMD", own, directory)] if own.strip() else []
    return _detected(directory, 1)


def _detected(directory: Path, which: int) -> list[Check]:
    """Builds (0) or tests (1) of the directory; if it is no project itself, of the projects in it as well."""
    found = _suites(directory)
    if not _is_project(directory):
        below = sorted(each for each in directory.iterdir() if each.is_dir() and _is_own(each.name))
        known = {test.name for _, test in found if test is not None}
        for each in filter(_is_project, below):
            found += [suite for suite in _suites(each) if suite[1] is None or suite[1].name not in known]
    return [suite[which] for suite in found if suite[which] is not None]  # type: ignore[misc] # mypy does not see that no item is None


def _is_project(directory: Path) -> bool:
    files = (*_BY_FILE, *PYTHON, "package.json", "Makefile", "makefile", "GNUmakefile")
    return any((directory / file).is_file() for file in files)


def _suites(directory: Path) -> list[Any]:
    """Per kind of project that the directory is, the check that builds it and the one that tests it, or None."""
    found = []
    for file, (program, build, test) in _BY_FILE.items():
        if (directory / file).is_file():
            missing = "" if _has(program, directory) else f"{program} is not installed"
            found.append((Check(program, build, directory, missing), Check(program, test, directory, missing)))
    for detect in (_node, _python):
        suite = detect(directory)
        if suite is not None:
            found.append(suite)
    if not any(test is not None for _, test in found):
        make = _make(directory)
        if make is not None:
            found = [(build, None) for build, _ in found if build is not None] + [make]
    return found


# Tests are listed by name where the tool can do that: a set of names shows which of them are gone.
_BY_FILE = {
    "Cargo.toml": ("cargo", "cargo build --all-targets", "cargo test --no-fail-fast"),
    "go.mod": ("go", "go build ./... && go vet ./...", "go test -v ./..."),
    "pom.xml": ("mvn", "mvn -q -B compile", "mvn -B test"),
    "gradlew": ("./gradlew", "./gradlew -q classes", "./gradlew cleanTest test"),
    "build.zig": ("zig", "zig build", "zig build test --summary all"),
    "mix.exs": ("mix", "mix compile", "mix test"),
    "deno.json": ("deno", "deno check .", "deno test"),
}


def _python(directory: Path) -> Any:
    """Tests that only pytest can run need pytest; all others are run by it if the project names it and it is there."""
    files = _files(directory, ".py")
    configured = [directory / name for name in PYTHON if (directory / name).is_file()]
    if not files and not configured:
        return None
    own = next((each for each in (".venv", "venv") if (directory / each / "bin" / "python").exists()), None)
    python = str(directory / own / "bin" / "python") if own else _program("python3", "python")
    if not python:
        missing = "python3 is not installed"
        return Check("python", "", directory, missing), Check("python", "", directory, missing)
    quoted = shlex.quote(python)
    # Hidden directories hold other people's code (.venv, .tox).
    build = Check("compileall", f"{quoted} -m compileall -q -x '/[.]' .", directory)
    named = [file for file in files if re.match(r"test.*\.py$|.*_test\.py$", file.name)]
    settings = "".join(_text(file) for file in configured)
    ini = (directory / "pytest.ini").is_file() or "[tool.pytest" in settings or "[tool:pytest]" in settings
    wants = ini or "pytest" in settings or any(file.name == "conftest.py" for file in files)
    if not named and not (wants and any("tests" in file.relative_to(directory).parts[:-1] for file in files)):
        return build, None
    needs = [file for file in named if PYTEST_STYLE.search(_text(file))]
    start = _unittest_start(directory, named)
    if needs or wants or start is None:
        if _runs(python, "-c", "import pytest"):
            return build, Check("pytest", f"{quoted} -m pytest -q", directory)
        if needs or start is None or not named:
            why = f": {needs[0].relative_to(directory)} needs it" if needs else ""
            return build, Check("pytest", "", directory, f"pytest is not installed for {python}{why}")
    return build, Check("unittest", f"{quoted} -m unittest discover -v {start}".rstrip(), directory)


def _unittest_start(directory: Path, files: list[Path]) -> str | None:
    """The arguments with which unittest finds all these files; None if it can't."""
    if any(not file.name.startswith("test") for file in files):
        return None
    tops = {file.relative_to(directory).parts[0] for file in files}
    if all(file.parent == directory for file in files):
        return ""
    if len(tops) > 1:
        return None
    top = directory / tops.pop()
    below = {parent for file in files for parent in file.parents if parent != top and top in parent.parents}
    if any(not (each / "__init__.py").is_file() for each in below):  # discovery descends into packages only
        return None
    name = shlex.quote(top.name)
    return f"-s {name} -t ." if (top / "__init__.py").is_file() else f"-s {name}"


def _node(directory: Path) -> Any:
    tool, scripts = "npm", {}
    package = directory / "package.json"
    if package.is_file():
        try:
            content = json.loads(_text(package))
            scripts = content.get("scripts", {})
            scripts = scripts if isinstance(scripts, dict) else {}
            manager = re.match(r"(npm|pnpm|yarn|bun)@", str(content.get("packageManager", "")))
        except (ValueError, AttributeError):
            return None
        tool = next((tool for lock, tool in LOCKS.items() if (directory / lock).is_file()), tool)
        tool = manager[1] if manager else tool
    missing = "" if _has(tool, directory) else f"{tool} is not installed"
    build = Check(tool, f"{tool} run build", directory, missing) if "build" in scripts else None
    # `npm init` puts a test there that always fails.
    if "no test specified" not in str(scripts.get("test", "no test specified")):
        return build, Check(tool, f"{tool} run test", directory, missing, str(scripts["test"]))
    files = _files(directory, ".js", ".mjs", ".cjs")
    found = [each for each in files if NODE_TESTS.search(each.name) or "test" in each.relative_to(directory).parts[:-1]]
    if not found:
        return (build, None) if build is not None else None
    if tool == "bun":
        return build, Check(tool, "bun test", directory, missing)
    missing = "" if _has("node", directory) else "node is not installed"
    return build, Check("node", "node --test", directory, missing)


def _make(directory: Path) -> Any:
    file = next(
        (directory / name for name in ("GNUmakefile", "makefile", "Makefile") if (directory / name).is_file()), None
    )
    if file is None:
        return None
    targets = set(re.findall(r"^([\w-]+)\s*:(?!=)", _text(file), re.MULTILINE))
    missing = "" if _has("make", directory) else "make is not installed"
    target = next((target for target in ("test", "check") if target in targets), None)
    recipe = re.search(rf"^{target}\s*:.*(?:\n\t.*)*", _text(file), re.MULTILINE) if target else None
    test = Check("make", f"make {target}", directory, missing, recipe[0] if recipe else "") if target else None
    return Check("make", "make", directory, missing), test


def _files(directory: Path, *suffixes: str) -> list[Path]:
    """The project's own files with these endings."""
    found: list[Path] = []
    for path, directories, names in os.walk(directory):
        directories[:] = sorted(
            name for name in directories if _is_own(name) and not (Path(path) / name / "pyvenv.cfg").is_file()
        )
        found += [Path(path) / name for name in sorted(names) if name.endswith(suffixes)]
        if len(found) > MOST_FILES:
            break
    return found


def _is_own(name: str) -> bool:
    return not name.startswith(".") and name not in SKIPPED


def _has(program: str, directory: Path) -> bool:
    if program.startswith("./"):
        return os.access(directory / program, os.X_OK)
    return shutil.which(program) is not None


def _program(*names: str) -> str:
    return next((name for name in names if shutil.which(name)), "")


def _runs(*argv: str) -> bool:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
