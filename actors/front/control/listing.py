"""Pages of runs, no longer than can be sent at once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ....protocol.control.things import RunInfo

LONGEST_PAGE = 256 * 1024
"""Bytes of a page of runs, unless a single one is longer."""

LONGEST_LISTED = 2_000
"""Characters of each run's output in a page; a request for one run gets more of it."""


def first_page(runs: Sequence[RunInfo], limit: int) -> tuple[list[RunInfo], str | None]:
    """The first of these, `limit` at most; and the id of the last of them, if there are more."""
    page: list[RunInfo] = []
    size = 0
    for info in runs[:limit]:
        shown = msgspec.structs.replace(info, output=info.output[:LONGEST_LISTED])
        size += len(msgspec.json.encode(shown))
        if page and size > LONGEST_PAGE:
            break
        page.append(shown)
    return page, page[-1].run if len(page) < len(runs) else None
