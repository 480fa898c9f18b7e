"""Fixtures of the tests that call tool files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.tool_bench import Bench

from callboard.supervisors import Root


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """See `Bench`."""
    async with Root() as root:
        yield Bench(root, tmp_path)
