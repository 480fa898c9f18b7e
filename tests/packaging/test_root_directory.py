"""The tests run in a clone of any name (tests/support/root_directory.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["callboard-main", "callboard-0.3.1", "callboard"])
def test_a_clone_may_be_called_anything(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    (root / "tests").mkdir(parents=True)
    (root / "__init__.py").write_text("from .protocol.version import VERSION\n")
    (root / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    (root / "tests" / "test_it.py").write_text("def test_it(): pass\n")

    def run(*options: str) -> str:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:trio", "-p", "no:hypothesispytest", *options]
        command.append("--import-mode=importlib")
        environment = {**os.environ, "PYTHONPATH": str(SUPPORT)}
        return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=120).stdout

    assert "1 passed" in run("-p", "support.root_directory")
    if not name.isidentifier():
        assert "1 passed" not in run(), "pytest does it by itself: the plugin can go"
