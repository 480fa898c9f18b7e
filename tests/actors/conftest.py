"""Fixtures of the tests that run agents."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.agent_runs import AgentRunner
from support.fake_models import FakeModels
from support.second_decider import Twin, twins
from support.tiny_weights import WORDS, put_weights

import callboard


@pytest.fixture(autouse=True)
def replayed() -> Iterator[list[Twin]]:
    """Whatever decides in a test decides the same when its messages are told again to another decider."""
    with twins() as played:
        yield played


@pytest.fixture
async def agent_runner(tmp_path: Path, fake_model: FakeModels) -> AsyncIterator[AgentRunner]:
    """See `AgentRunner`."""
    config_dir = fake_model.config_dir(tmp_path / "config")
    async with callboard.Root(config_dir=config_dir) as root:
        yield AgentRunner(config_dir, fake_model, root)


@pytest.fixture
async def knowing(
    tmp_path: Path, fake_model: FakeModels, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AgentRunner]:
    """A stage with a cache directory of its own, in which `local:static` has weights that know `WORDS`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    put_weights(monkeypatch, tmp_path / "cache", WORDS)
    config_dir = fake_model.config_dir(tmp_path / "config")
    async with callboard.Root(config_dir=config_dir) as root:
        yield AgentRunner(config_dir, fake_model, root)


@pytest.fixture(params=["standard", "loki"])
def compat(request: pytest.FixtureRequest) -> str:
    """Both dialects: the test must hold in each."""
    return str(request.param)


WIRES = [(kind, stream) for kind in ("openai-compatible", "claude") for stream in (False, True)]


@pytest.fixture(params=WIRES, ids=lambda wire: f"{wire[0]}-{'stream' if wire[1] else 'whole'}")
async def wired(request: pytest.FixtureRequest, tmp_path: Path, fake_model: FakeModels) -> AsyncIterator[AgentRunner]:
    """A stage whose model speaks OpenAI's or Anthropic's format, in pieces or not."""
    kind, stream = request.param
    config_dir = fake_model.config_dir(tmp_path / "config", type=kind)
    settings = {**json.loads((config_dir / "config.yaml").read_text()), "stream": stream}
    (config_dir / "config.yaml").write_text(json.dumps(settings))
    async with callboard.Root(config_dir=config_dir) as root:
        yield AgentRunner(config_dir, fake_model, root)
