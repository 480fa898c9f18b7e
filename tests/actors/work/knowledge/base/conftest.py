"""A library under a root."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.knowledge_library import Library

from callboard.supervisors import Root

MEMORY = Path("/dev/shm")
"""A file system where nobody waits for a disk: every build syncs some twenty files."""


@pytest.fixture
async def library() -> AsyncIterator[Library]:
    """See `Library`."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        async with Root() as root:
            yield Library(root, Path(directory) / "test.kb")
