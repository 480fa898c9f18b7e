"""The command that adds an extra works for the installation that runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from callboard.supervisors.installation import install_command

METADATA = """Metadata-Version: 2.4
Name: callboard
Version: 1.0
Provides-Extra: local
Requires-Dist: no-such-engine>=1; extra == "local"
Provides-Extra: vault
Requires-Dist: trio>=0.1; extra == "vault"
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A prefix with an installation of its own; returns the directory of its metadata."""
    info = tmp_path / "lib" / "callboard-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(METADATA)
    monkeypatch.setattr(sys, "path", [str(info.parent), *sys.path])
    return info


def says(info: Path, prefix: Path, url: dict[str, object] | None = None, by: str = "pip") -> str:
    if url is not None:
        (info / "direct_url.json").write_text(json.dumps(url))
    (info / "INSTALLER").write_text(f"{by}\n")
    return install_command("local", prefix=prefix, python="/p/python")


def test_of_an_index_a_checkout_a_wheel_and_a_repository(installed: Path, tmp_path: Path) -> None:
    assert says(installed, tmp_path) == "/p/python -m pip install 'callboard[local]'"
    checkout = tmp_path / "a checkout"
    checkout.mkdir()
    url = checkout.as_uri()
    edited: dict[str, object] = {"url": url, "dir_info": {"editable": True}}
    assert says(installed, tmp_path, edited) == f"/p/python -m pip install -e '{checkout}[local]'"
    assert says(installed, tmp_path, {"url": url, "dir_info": {}}) == f"/p/python -m pip install '{checkout}[local]'"
    wheel = tmp_path / "callboard-1.0-py3-none-any.whl"
    archive: dict[str, object] = {"url": wheel.as_uri(), "archive_info": {}}
    assert says(installed, tmp_path, archive) == "/p/python -m pip install 'callboard[local]'"  # it is gone
    wheel.touch()
    assert says(installed, tmp_path, archive) == f"/p/python -m pip install 'callboard[local] @ {wheel.as_uri()}'"
    git: dict[str, object] = {"url": "https://example.com/c.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
    wanted = "/p/python -m pip install 'callboard[local] @ git+https://example.com/c.git@abc'"
    assert says(installed, tmp_path, git) == wanted


def test_uv_pipx_and_uv_tool_have_commands_of_their_own_and_keep_the_extras_that_are_there(
    installed: Path, tmp_path: Path
) -> None:
    assert says(installed, tmp_path, by="uv") == "uv pip install --python /p/python 'callboard[local]'"
    (tmp_path / "uv-receipt.toml").touch()
    assert says(installed, tmp_path, by="uv") == "uv tool install --force 'callboard[local,vault]'"
    edited: dict[str, object] = {"url": tmp_path.as_uri(), "dir_info": {"editable": True}}
    assert says(installed, tmp_path, edited) == f"uv tool install --force --editable '{tmp_path}[local,vault]'"
    (tmp_path / "pipx_metadata.json").touch()
    assert says(installed, tmp_path, {"url": tmp_path.as_uri(), "dir_info": {}}) == (
        f"pipx install --force '{tmp_path}[local,vault]'"
    )


@pytest.mark.parametrize("text", ["", "[]", "{", '{"url": 3}'])
def test_metadata_that_is_broken_is_passed_over(installed: Path, tmp_path: Path, text: str) -> None:
    (installed / "direct_url.json").write_text(text)
    assert "callboard[local]" in install_command("local", prefix=tmp_path)
