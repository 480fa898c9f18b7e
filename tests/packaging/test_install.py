"""The wheel installs with what people install programs with, and works with no clone beside it.

What it needs comes from the package index, into directories of the test: HOME and all caches are empty.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

INSTALLERS = Path(sys.prefix) / "interop/install"
REQUIRED = os.environ.get("CALLBOARD_INTEROP") == "required"

pytestmark = [
    pytest.mark.skipif(
        not REQUIRED and not INSTALLERS.with_suffix(".made").exists(), reason="`make interop` has not installed install"
    ),
    pytest.mark.timeout(1200),
]


def pip(home: Path, wheel: str) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home / "venv")], check=True)
    python = home / "venv/bin/python"
    run(home, [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", wheel])
    return home / "venv/bin/callboard"


def pipx(home: Path, wheel: str) -> Path:
    run(home, [str(INSTALLERS / "bin/pipx"), "install", "--python", sys.executable, wheel])
    return home / ".local/bin/callboard"


def uv(home: Path, wheel: str) -> Path:
    run(home, [str(INSTALLERS / "bin/uv"), "tool", "install", "--python", sys.executable, wheel])
    return home / ".local/bin/callboard"


def run(home: Path, argv: list[str]) -> str:
    """Run it with an empty HOME and return its stdout; the index's configuration (PIP_…, UV_…) stays."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_", "HTTP"))}
    environ = {**kept, "HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    environ["PIP_NO_COMPILE"] = "0"  # which is how pip is told to compile nothing: that takes half of its time
    ended = subprocess.run(argv, env=environ, cwd=home, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.full
@pytest.mark.parametrize(
    "install",
    [*(pytest.param(each, marks=pytest.mark.soak) for each in (pip, pipx)), uv],
    ids=lambda install: getattr(install, "__name__", ""),
)
def test_it_installs_and_runs_a_first_agent(install: Callable[[Path, str], Path], built: Path, tmp_path: Path) -> None:
    program = str(install(tmp_path, str(built)))
    assert run(tmp_path, [program, "--version"]).startswith("callboard 0.")
    run(tmp_path, [program, "init", "--template", "script"])
    assert run(tmp_path, [program, "run", "./script", "one two"]) == "short: 2 words\n"
    assert "demo" in run(tmp_path, [program, "--help"])
