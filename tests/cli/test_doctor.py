"""`callboard doctor` says what is there and what is missing, and never fails."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from callboard.cli import examination

Callboard = Callable[..., "tuple[int, str, str]"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration directory."""
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(tmp_path))
    return tmp_path


def test_it_names_what_tools_are_run_and_read_with(callboard: Callboard) -> None:
    code, out, err = callboard("doctor", "-o", "json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["interpreters"]["bash"]["path"] == shutil.which("bash")
    assert {"bash", "python3", "node", "npx"} == set(found["interpreters"])
    assert set(found["typescript"]) == {"tree-sitter", "tree-sitter-typescript"}


def test_what_is_missing_says_how_to_get_it(callboard: Callboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "_TYPESCRIPT", ("tree-sitter-nowhere",))
    monkeypatch.setenv("PATH", "/nowhere")
    code, out, _err = callboard("doctor")
    assert code == 0
    assert "tree-sitter-nowhere not installed (pip install 'callboard[typescript]')" in out
    assert "not found (npm install --global tsx)" in out
