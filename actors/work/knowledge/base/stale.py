"""What has changed since a base was built: the same look that a build takes first, without doing anything."""

from __future__ import annotations

from collections.abc import AsyncIterable

import msgspec

from .....protocol.knowledge import Unreadable
from .base import Base
from .catalogue import Known
from .handed import is_unicode, no_unicode
from .lost import Kept, by_name
from .model import Source


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Names of sources that differ from what a base holds; all empty if it is up to date.

    Attributes:
        added, changed, removed: what a build would report.
        unreadable: what can't be compared.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


async def changes(base: Base, sources: AsyncIterable[Source | Unreadable]) -> Changes:
    """Compare a base with its sources. Reads only those whose size or time of change is another or unknown."""
    known = by_name(await base.sources())
    lost = by_name((await base.lost()).sources)
    seen: set[str] = set()
    added: list[str] = []
    changed: list[str] = []
    unreadable: list[Unreadable] = []
    async for source in sources:
        if isinstance(source, Unreadable):
            unreadable.append(source)
            continue
        name = source.source
        if name in seen:
            continue
        if not is_unicode(name):
            unreadable.append(no_unicode(name))
            continue
        seen.add(name)
        before = [each[name] for each in (known, lost) if name in each]
        if not before:
            added.append(name)
        elif not any(same_stamp(each, source) for each in before):
            digest = await source.digest()
            if isinstance(digest, Unreadable):
                unreadable.append(digest)
            elif all(digest != each.digest for each in before):
                (changed if name in known else added).append(name)
    kept = Kept(unreadable)
    removed = (name for name in known if name not in seen and not kept.has(name))
    return Changes(added=tuple(added), changed=tuple(changed), removed=tuple(removed), unreadable=tuple(unreadable))


def same_stamp(known: Known, source: Source) -> bool:
    """Whether size, time of change and reader are as they were, so it need not be read."""
    stamp = (source.size, source.mtime)
    return known.mtime is not None and (known.size, known.mtime) == stamp and known.digest.startswith(source.reader)
