"""Fixtures of the tests of bundles."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.bundles import BUNDLE, House, Repository

from callboard.supervisors import Root


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """See `House`."""
    async with Root() as root:
        yield House(tmp_path / "config", root, tmp_path)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """One with an agent, two roles, a macro, a tool and an MCP server."""
    made = Repository(tmp_path / "team")
    made.commit(BUNDLE)
    return made
