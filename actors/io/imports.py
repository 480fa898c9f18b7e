"""Imports modules in a thread: some take 50 ms and more, in which no task of the event loop would go on.

    await imported("jsonschema", ".actors.work.models.client")

A room that few runs need is imported at its first use, by a statement inside a function. Where that is a task, it is
awaited here first, and the statement finds the module ready.
"""

from __future__ import annotations

from importlib import import_module

_PACKAGE = __name__.partition(".actors")[0]
_ready: set[str] = set()


async def imported(*names: str) -> None:
    """Return when these modules are imported; a name that begins with a dot is one of this package.

    A library that is not installed is passed over: its user says what is missing. No checkpoint if all are there.
    """
    if not _ready.issuperset(names):
        import trio  # the checks of files get here and have no event loop

        await trio.to_thread.run_sync(_import, names)


def _import(names: tuple[str, ...]) -> None:
    for name in names:
        try:
            import_module(name, _PACKAGE)
        except ImportError as error:
            if (error.name or "").startswith(f"{_PACKAGE}."):  # ours are always there: the name is a wrong one
                raise
        _ready.add(name)
