"""Fixtures of the tests that run agents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fake_models import FakeModels
from stage import Stage

import callboard


@pytest.fixture
async def stage(tmp_path: Path, fake_model: FakeModels) -> AsyncIterator[Stage]:
    """See `Stage`."""
    config_dir = fake_model.config_dir(tmp_path / "config")
    async with callboard.Root(config_dir=config_dir) as root:
        yield Stage(config_dir, fake_model, root)


@pytest.fixture(params=["standard", "loki"])
def compat(request: pytest.FixtureRequest) -> str:
    """Both dialects: the test must hold in each."""
    return str(request.param)
