"""Fixtures of the tests of tools."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from callboard.supervisors import Actor, Root


@pytest.fixture
async def root() -> AsyncIterator[Root]:
    """A kernel root, without signals."""
    async with Root() as kernel:
        yield kernel


@pytest.fixture
def me(root: Root) -> Actor:
    """The actor at the top."""
    return root.actor
