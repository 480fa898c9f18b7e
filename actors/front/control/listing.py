"""Pages of run summaries, limited in bytes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ....protocol.control.things import RunInfo

LONGEST_PAGE = 256 * 1024
"""Bytes of a page of runs, unless a single one is longer."""

LONGEST_LISTED = 2_000
"""Characters of each run's output on a page; a request for a single run returns more of it."""


def first_page(runs: Sequence[RunInfo], limit: int) -> tuple[list[RunInfo], str | None]:
    """Return the first `limit` runs at most, and the id of the last one if more follow."""
    page: list[RunInfo] = []
    size = 0
    for info in runs[:limit]:
        shown = info
        if len(info.output) > LONGEST_LISTED:
            cut = {"output": len(info.output), **info.cut}
            shown = msgspec.structs.replace(info, output=info.output[:LONGEST_LISTED], cut=cut)
        size += len(msgspec.json.encode(shown))
        if page and size > LONGEST_PAGE:
            break
        page.append(shown)
    return page, page[-1].run if len(page) < len(runs) else None
