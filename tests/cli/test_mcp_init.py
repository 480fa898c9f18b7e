"""`callboard mcp init` writes a file that is free of problems, and never overwrites what somebody wrote."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.messages import has_message

from callboard.protocol.mcp.config import read_mcp

Callboard = Callable[..., "tuple[int, str, str]"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration directory, with a name of its own."""
    monkeypatch.setenv("CALLBOARD_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path / "config"


def test_what_it_writes_has_no_problems_and_one_server_that_is_enabled(
    callboard: Callboard, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    code, out, err = callboard("mcp", "init")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"wrote {home}/mcp.json"
    assert out.splitlines()[-1] == "callboard mcp test time"
    config = read_mcp((home / "mcp.json").read_text(), "mcp.json")
    assert config.problems == ()
    assert config.names == ("time",)
    assert len(config.servers) > 1


def test_what_the_server_needs_is_told_if_it_is_missing(callboard: Callboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    out = callboard("mcp", "init")[1]
    assert has_message(out, "cli.actions.mcp")
    assert "mcp test" not in out


@pytest.mark.parametrize("place", ["mcp.json", "functions/mcp.json"])
def test_a_file_that_is_there_is_left_alone_without_force(callboard: Callboard, home: Path, place: str) -> None:
    file = home / place
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    code, out, err = callboard("mcp", "init")
    assert (code, out) == (2, "")
    assert f"{file} exists, and was not changed" in err
    assert file.read_text() == "{}"
    code, out, _err = callboard("mcp", "init", "--force")
    assert code == 0
    assert (home / "mcp.json").read_text() != "{}"
    assert (f"{file} is no longer used" in out) == (place != "mcp.json")


def test_a_directory_that_cannot_be_written_is_named(callboard: Callboard) -> None:
    code, _out, err = callboard("mcp", "init", "--config-dir", "/proc/nowhere")
    assert code == 2
    assert "/proc/nowhere: can't be written" in err
