"""Fixtures of the tests that run other projects' workflows: see `workflow_agents`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.fake_models import FakeModels
from support.workflow_agents import Agents

import callboard


@pytest.fixture
async def agents(tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Agents]:
    """See `Agents`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = tmp_path / "home"
    home.mkdir()
    async with callboard.Root(config_dir=fake_model.config_dir(tmp_path / "config")) as root:
        yield Agents(home, fake_model, root)
