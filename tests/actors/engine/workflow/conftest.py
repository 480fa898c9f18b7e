"""Fixtures of the tests that run workflows on the kernel, with agents and without."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.fake_models import FakeModels
from support.tiny_weights import WORDS, put_weights
from support.workflow_agents import Agents
from support.workflow_run import Naps, WorkflowRunner, open_workflow_runner

import callboard
from callboard.actors.engine.workflow.nodes import custom


@pytest.fixture
async def workflow_runner(tmp_path: Path) -> AsyncIterator[WorkflowRunner]:
    """See `WorkflowRunner`."""
    async with open_workflow_runner(tmp_path) as found:
        yield found


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> Naps:
    """See `Naps`; with `autojump_clock` they take no time."""
    found = Naps()
    monkeypatch.setattr(custom, "node_types", lambda: {"nap": found})
    return found


@pytest.fixture
async def agents(tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Agents]:
    """See `Agents`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = tmp_path / "home"
    home.mkdir()
    config_dir = fake_model.config_dir(tmp_path / "config")
    async with callboard.Root(config_dir=config_dir) as root:
        yield Agents(home, fake_model, root)


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`local:static` has weights that know `WORDS`."""
    put_weights(monkeypatch, tmp_path / "cache", WORDS)
