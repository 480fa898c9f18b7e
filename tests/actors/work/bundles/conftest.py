"""Fixtures of the tests of bundles."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.bundles import BUNDLE, BundleInstaller, Repository

from callboard.supervisors import Root


@pytest.fixture
async def bundle_installer(tmp_path: Path) -> AsyncIterator[BundleInstaller]:
    """See `BundleInstaller`."""
    async with Root() as root:
        yield BundleInstaller(tmp_path / "config", root, tmp_path)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """One with an agent, two roles, a macro, a tool and an MCP server."""
    made = Repository(tmp_path / "team")
    made.commit(BUNDLE)
    return made
