"""Imports the heavy libraries of this room in a thread: they take a second, and the loop goes on meanwhile."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module

import trio

HEAVY = ("numpy", "tantivy", "usearch.index", "tokenizers")


async def loaded() -> None:
    """Return when a run's knowledge can be used without anybody waiting for imports."""
    if f"{__package__}.of_run" not in sys.modules:
        await trio.to_thread.run_sync(_load)


def _load() -> None:
    for name in HEAVY:
        with suppress(ImportError):  # its user says what to install
            import_module(name)
    import_module(".of_run", __package__)
