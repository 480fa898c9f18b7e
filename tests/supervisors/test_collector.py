"""While a root is open Python's collector starts more seldom; the thresholds of a program are its own."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import callboard
from callboard.supervisors import collector


@pytest.fixture
def default() -> Iterator[tuple[int, int, int]]:
    """Python's own thresholds, whatever the tests before have left."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield (700, 10, 10)
    gc.set_threshold(*before)


async def test_an_open_root_raises_the_threshold_and_a_closed_one_restores_it(default: tuple[int, int, int]) -> None:
    async with callboard.Root():
        assert gc.get_threshold() == (collector.THRESHOLD, 10, 10)
        async with callboard.Root():
            pass
        assert gc.get_threshold() == (collector.THRESHOLD, 10, 10)
    assert gc.get_threshold() == default


async def test_thresholds_of_the_program_stay(default: tuple[int, int, int]) -> None:
    gc.set_threshold(1_234, 5, 6)
    async with callboard.Root():
        assert gc.get_threshold() == (1_234, 5, 6)
    gc.set_threshold(*default)
    async with callboard.Root():
        gc.set_threshold(1_234, 5, 6)
    assert gc.get_threshold() == (1_234, 5, 6)


async def test_a_disabled_collector_is_left_alone(default: tuple[int, int, int]) -> None:
    gc.disable()
    try:
        async with callboard.Root():
            assert gc.get_threshold() == default
    finally:
        gc.enable()
