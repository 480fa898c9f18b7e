"""A thousand runs at once in one process, each parked on a question (benchmarks/runs.py measures the same)."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import ModuleType

import pytest
import trio
from support.agent_runs import at_work

import callboard

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "runs.py"


@pytest.fixture(scope="module")
def runs() -> ModuleType:
    """The benchmark's module."""
    spec = importlib.util.spec_from_file_location("benchmark_of_runs", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_a_thousand_parked_runs_finish_whatever_the_order_of_their_answers(
    runs: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "graph.yaml").write_text(runs.GRAPH)
    async with callboard.Root(config_dir=tmp_path) as root:
        parked = runs.Parked(tmp_path, root)
        with root.inbox.attach(parked):
            async with trio.open_nursery() as nursery:
                await parked.start(range(1000), nursery)
                assert parked.outcomes == {}
                assert len(root.inbox.open) == 1000
                parked.answer_all(random.Random(7))
        assert root.inbox.open == ()
        assert at_work(root) == []
    assert len(parked.outcomes) == 1000
    for number, outcome in parked.outcomes.items():
        assert outcome.output == f"{number}: {number}"
        assert outcome.order == ["ask", "done"]


async def test_a_thousand_parked_runs_end_with_their_root(runs: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "graph.yaml").write_text(runs.GRAPH)
    async with callboard.Root(config_dir=tmp_path) as root:
        parked = runs.Parked(tmp_path, root)
        with root.inbox.attach(parked):
            async with trio.open_nursery() as nursery:
                await parked.start(range(1000), nursery)
                root.begin_stop()
        assert root.inbox.open == ()
    assert {outcome.status for outcome in parked.outcomes.values()} == {"cancelled"}
    assert len(parked.outcomes) == 1000
