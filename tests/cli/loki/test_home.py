"""Which configuration `callboard loki` works with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from callboard.cli.loki.flags import loki_home


def test_the_variable_of_loki_comes_first(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "LOKI_CONFIG_DIR": "/there", "CALLBOARD_CONFIG_DIR": "/here"}
    assert loki_home(environ) == "/there"


@pytest.mark.parametrize("xdg", [False, True])
def test_lokis_directory_counts_as_long_as_there_is_none_of_ours(tmp_path: Path, xdg: bool) -> None:
    base = tmp_path / ("xdg" if xdg else ".config")
    environ = {"HOME": str(tmp_path), **({"XDG_CONFIG_HOME": str(base)} if xdg else {})}
    assert loki_home(environ) is None
    (base / "loki").mkdir(parents=True)
    assert loki_home(environ) == str(base / "loki")
    assert loki_home({**environ, "CALLBOARD_CONFIG_DIR": str(tmp_path / "new")}) is None
    (base / "callboard").mkdir()
    (base / "callboard" / "vault.age").touch()
    assert loki_home(environ) == str(base / "loki")  # `vault add` and `install` make the directory
    (base / "callboard" / "config.yaml").touch()
    assert loki_home(environ) is None


def test_on_a_mac_it_is_where_programs_keep_their_things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    (tmp_path / "Library/Application Support/loki").mkdir(parents=True)
    assert loki_home({"HOME": str(tmp_path)}) == str(tmp_path / "Library/Application Support/loki")
    (tmp_path / ".config/loki").mkdir(parents=True)
    assert loki_home({"HOME": str(tmp_path)}) == str(tmp_path / ".config/loki")
