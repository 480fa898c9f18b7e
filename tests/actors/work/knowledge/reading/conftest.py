"""Reads bytes as an actor would, and makes Office files out of their parts."""

from __future__ import annotations

import io
import zipfile
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from callboard.actors.work.knowledge.reading.limits import Bounds
from callboard.actors.work.knowledge.reading.read import Contents, RawDocument, read
from callboard.protocol.errors import ActorFailed
from callboard.protocol.knowledge import Document
from callboard.supervisors import Actor, Root


class Reader:
    """See the module. `bounds` are those of every reading."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.bounds = Bounds(seconds=60)

    async def __call__(self, data: bytes, path: str = "a", media: str = "", charset: str = "") -> Contents:
        """What is in it; `CantRead` is raised as it is."""
        raw = RawDocument(source=path, data=data, path=path, media=media, charset=charset)

        async def body(me: Actor) -> Contents:
            return await read(me, raw, self.bounds, trio.CapacityLimiter(2))

        try:
            return await self.root.spawn(body, name="reader", link=False).result()
        except ActorFailed as failed:
            raise (failed.__cause__ or failed) from None

    async def one(self, data: bytes, path: str = "a", **options: Any) -> Document:
        """The only document in it."""
        (document,) = (await self(data, path, **options)).documents
        return document


@pytest.fixture
async def reader() -> AsyncIterator[Reader]:
    """See `Reader`."""
    async with Root() as root:
        yield Reader(root)


def archive(parts: dict[str, str | bytes]) -> bytes:
    """A ZIP file of these parts."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, contents in parts.items():
            packed.writestr(name, contents)
    return out.getvalue()


@pytest.fixture
def packed() -> Any:
    """See `archive`."""
    return archive
