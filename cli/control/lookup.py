"""Finds a run by its id, or by the beginning of one."""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.control import own
from ...protocol.control.things import RunInfo
from ...protocol.errors import CallboardError, NotFound, UsageError
from .client import Client

_PAGE = 500


async def find_run(client: Client, word: str) -> RunInfo:
    """The run that is meant.

    Raises:
        CallboardError: there is none, with the code `not_found`; or there are several.
    """
    try:
        return (await client.ask("_run/get", own.OneRun, run=word)).run
    except CallboardError as error:
        if error.code != NotFound.code:
            raise
        known = await runs_of(client)
        id = meant(word, [info.run for info in known])
        if id is None:
            raise NotFound(_unknown(word, known)) from None
    return (await client.ask("_run/get", own.OneRun, run=id)).run


def _unknown(word: str, known: Iterable[RunInfo]) -> str:
    """Who has given the name of what runs wants to know the ids."""
    named = [info.run for info in known if word in (info.target, info.name, info.title)]
    hint = f"runs of that name: {', '.join(named[:5])}" if named else "callboard ps -a lists those there are"
    return f"there is no run '{word[:60]}' ({hint})"


def meant(word: str, ids: Iterable[str]) -> str | None:
    """The one id that begins so, `run-` left out or not; None if there is none.

    Raises:
        UsageError: there are several.
    """
    found = [id for id in ids if id == word] or [id for id in ids if id.startswith((word, f"run-{word}"))]
    if len(found) > 1:
        shown = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
        raise UsageError(f"'{word}' begins the ids of several runs: {shown}")
    return found[0] if found else None


async def runs_of(client: Client, *, status: str | None = None, most: int = 10_000) -> list[RunInfo]:
    """The newest runs that the server knows, past ones included, page by page."""
    found: list[RunInfo] = []
    before: str | None = None
    while len(found) < most:
        limit = min(_PAGE, most - len(found))
        page = await client.ask("_run/list", own.Runs, status=status, limit=limit, before=before)
        found += page.runs
        before = page.next
        if before is None:
            break
    return found
