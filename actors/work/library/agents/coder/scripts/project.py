"""How a project is built and tested, told by the files it has; a command in the environment wins.

"" stands for "nothing to run": a project without tests is not a project whose tests fail.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from itertools import chain
from pathlib import Path


def commands(directory: Path) -> tuple[str, str]:
    """The command that builds or checks the project, and the one that tests it."""
    build, test = _suggested(directory)
    return os.environ.get("BUILD_CMD", build), os.environ.get("TEST_CMD", test)


def _suggested(directory: Path) -> tuple[str, str]:
    for file, known in _BY_FILE.items():
        if (directory / file).is_file():
            return known
    if (directory / "package.json").is_file():
        return _node(directory)
    if any((directory / file).is_file() for file in _PYTHON) or next(directory.glob("*.py"), None):
        return _python(directory)
    if (directory / "Makefile").is_file():
        targets = set(re.findall(r"^([\w-]+)\s*:(?!=)", _text(directory / "Makefile"), re.MULTILINE))
        return "make", next((f"make {target}" for target in ("test", "check") if target in targets), "")
    return "", ""


_BY_FILE = {
    "Cargo.toml": ("cargo build --all-targets", "cargo test"),
    "go.mod": ("go build ./... && go vet ./...", "go test ./..."),
    "pom.xml": ("mvn -q -B compile", "mvn -q -B test"),
    "gradlew": ("./gradlew -q classes", "./gradlew -q test"),
    "build.zig": ("zig build", "zig build test"),
    "mix.exs": ("mix compile", "mix test"),
}
_PYTHON = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "tox.ini")


def _python(directory: Path) -> tuple[str, str]:
    own = directory / ".venv" / "bin" / "python"
    python = shlex.quote(str(own)) if own.exists() else "python3"
    # Hidden directories hold other people's code (.venv, .tox).
    build = f"{python} -m compileall -q -x '/[.]' ."
    if not any(chain(directory.glob("test*.py"), directory.glob("*_test.py"), directory.glob("tests/**/*.py"))):
        return build, ""
    wants_pytest = (directory / "pytest.ini").is_file() or next(directory.glob("**/conftest.py"), None)
    settings = "".join(_text(directory / file) for file in _PYTHON)
    if wants_pytest or "pytest" in settings:
        return build, f"{python} -m pytest -q"
    where = "-s tests -t ." if (directory / "tests" / "__init__.py").is_file() else ""
    if not where and next(directory.glob("tests/test*.py"), None):
        where = "-s tests"
    return build, f"{python} -m unittest discover {where}".rstrip()


def _node(directory: Path) -> tuple[str, str]:
    tool = "npm"
    for lock, other in (("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lockb", "bun"), ("bun.lock", "bun")):
        if (directory / lock).is_file():
            tool = other
    try:
        scripts = json.loads(_text(directory / "package.json")).get("scripts", {})
    except (ValueError, AttributeError):
        return "", ""
    # `npm init` puts a test there that always fails.
    test = "" if "no test specified" in str(scripts.get("test", "no test specified")) else f"{tool} run test"
    return f"{tool} run build" if "build" in scripts else "", test


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
