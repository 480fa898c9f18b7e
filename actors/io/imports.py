"""Module imports in a thread: some take 50 ms and more, during which no task of the event loop would run.

    await imported("jsonschema", ".actors.work.models.client")

A package that few runs need is imported at its first use, by a statement inside a function. In a task, this function is
awaited first, and the statement then finds the module loaded.
"""

from __future__ import annotations

from importlib import import_module

PROCESSES = ".supervisors.process"
"""Module that starts processes; many runs start none."""

_PACKAGE = __name__.partition(".actors")[0]
_ready: set[str] = set()


async def imported(*names: str) -> None:
    """Import these modules; a name with a leading dot is relative to this package.

    A library that is not installed is ignored: its user reports the error. No checkpoint if all are imported.
    """
    if not _ready.issuperset(names):
        import trio  # file validation calls this without an event loop

        await trio.to_thread.run_sync(_import, names)


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        try:
            import_module(name, _PACKAGE)
        except ImportError as error:
            if (error.name or "").startswith(f"{_PACKAGE}."):  # modules of this package always exist: the name is wrong
                raise
        _ready.add(name)
