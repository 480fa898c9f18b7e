"""A stage whose user lets agents write files, and a project that the run is started in."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fake_models import FakeModels
from stage import Stage

import callboard

SHOP = Path(__file__).parents[2] / "fixtures" / "repos" / "shop"


@pytest.fixture
async def stage(
    tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[Stage]:
    """See `Stage`; `permissions` of its config.yaml are the fixture's parameter, if it has one."""
    config_dir = fake_model.config_dir(tmp_path / "config")
    file = config_dir / "config.yaml"
    permissions = getattr(request, "param", {"fs_write": "allow", "fs_patch": "allow"})
    file.write_text(json.dumps({**json.loads(file.read_text()), "permissions": permissions}))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    async with callboard.Root(config_dir=config_dir) as root:
        yield Stage(config_dir, fake_model, root)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The broken shop, as the directory that the run is started in."""
    directory = tmp_path / "shop"
    shutil.copytree(SHOP, directory, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(directory)
    for name in ("BUILD_CMD", "TEST_CMD", "CODER_AUTOAPPROVE"):
        monkeypatch.delenv(name, raising=False)
    # Ours is a program; what else is called python3 may be a slow script in front of one.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return directory
