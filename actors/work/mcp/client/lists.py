"""What a server has, page by page, within bounds: a list that does not end is not read for ever."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from .....protocol.errors import McpError
from .....protocol.jsonrpc import UNREADABLE

MAX_PAGES = 1000
MAX_LISTED = 10_000

T = TypeVar("T")


async def whole(
    server: str,
    page: Callable[[str | None], Awaitable[msgspec.Raw]],
    kind: str,
    type: type[T],
    on_odd: Callable[[str], None],
) -> list[T]:
    """All entries.

    Args:
        server: its name, for errors.
        page: asks for the page behind a cursor; None for the first.
        kind: the key of the entries.
        on_odd: told why an entry can't be used; the others are not to suffer from it.

    Raises:
        McpError: there are too many, or a page is none.
    """
    entries: list[T] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        raw = await page(cursor)
        try:
            found = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
            listed = msgspec.json.decode(found[kind], type=list[msgspec.Raw]) if kind in found else []
            following = msgspec.json.decode(found.get("nextCursor", msgspec.Raw(b"null")), type=str | None)
        except UNREADABLE as error:
            raise McpError(f"MCP server '{server}' lists its {kind} in a way that can't be read: {error}") from error
        if len(entries) + len(listed) > MAX_LISTED:
            raise McpError(f"MCP server '{server}' lists more than {MAX_LISTED:,} {kind}; that many are not read")
        for each in listed:
            try:
                entries.append(msgspec.json.decode(each, type=type))
            except UNREADABLE as error:
                on_odd(f"one of its {kind} is left out: {error}; it begins: {bytes(each[:80])!r}")
        if not following:
            return entries
        if following == cursor:
            break
        cursor = following
    raise McpError(f"MCP server '{server}' lists its {kind} on pages without an end; stopped after {len(entries):,}")
