"""Fixtures of the tests of Loki's command line."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.starter import CALLBOARD

from ..conftest import Ended


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration directory, which counts; a home that holds nothing else."""
    home = tmp_path / "config"
    home.mkdir()
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(home))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CLAUDE_API_KEY", "LOKI_CONFIG_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def process() -> Callable[..., Ended]:
    """Runs a command line in a process of its own, with a text on standard input."""

    def run(*arguments: str, text: str | None = None, **environment: str) -> Ended:
        done = subprocess.run(
            [*CALLBOARD, *arguments],
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **environment},
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return run
