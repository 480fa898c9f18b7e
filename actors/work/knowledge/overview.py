"""What can be seen of a base without opening it: whether it is built, when, of how much, with which model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ....protocol.errors import KnowledgeError
from ....protocol.knowledge import Unreadable
from .base.layout import Layout
from .base.model import Meta
from .recipe import Recipe
from .split.split import OVERLAP


@dataclass(frozen=True, kw_only=True)
class BaseInfo:
    """One base.

    Attributes:
        meta: what the current generation says of itself; None if there is none.
        size: bytes on disk.
        building: whether there is an unfinished build.
        builder: the building process, in words; "" after an interruption, which a build resumes.
        unreadable: what could not be read the last time.
        error: why it can't be used.
    """

    recipe: Recipe
    meta: Meta | None = None
    size: int = 0
    building: bool = False
    builder: str = ""
    unreadable: Sequence[Unreadable] = ()
    error: str | None = None

    @property
    def overlap(self) -> int | None:
        """Characters that neighbours may share."""
        if self.meta is None:
            return None
        settings = self.meta.settings
        return settings.chunk_size // OVERLAP if settings.chunk_overlap is None else settings.chunk_overlap

    def to_wire(self) -> dict[str, Any]:
        """As JSON shows it."""
        meta = self.meta
        about: dict[str, Any] = {
            "target": self.recipe.target,
            "what": self.recipe.what,
            "directory": str(self.recipe.directory),
            "documents": list(self.recipe.documents),
            "built": None,
            "bytes": self.size,
            "error": self.error,
        }
        if meta is not None:
            about |= {
                "built": datetime.fromtimestamp(meta.built, UTC).isoformat(timespec="seconds"),
                "generation": meta.generation,
                "chunks": meta.chunks,
                "sources": meta.sources,
                "model": meta.model,
                "dimension": meta.dimension,
                "chunk_size": meta.settings.chunk_size,
                "chunk_overlap": self.overlap,
                "language": meta.settings.language,
                "unreadable": [{"source": each.source, "reason": each.reason} for each in self.unreadable],
            }
        return about


def base_info(recipe: Recipe) -> BaseInfo:
    """What there is now. Takes no lock, so a builder may be at work meanwhile."""
    layout = Layout(recipe.directory)
    size, building = _size(layout), layout.building.is_dir()
    builder = layout.builder() if building else ""
    try:
        number = layout.number()
        meta = layout.meta(number) if number else None
        unreadable = layout.lost().told
    except (KnowledgeError, OSError) as error:
        return BaseInfo(recipe=recipe, size=size, building=building, builder=builder, error=str(error))
    return BaseInfo(recipe=recipe, meta=meta, size=size, building=building, builder=builder, unreadable=unreadable)


def _size(layout: Layout) -> int:
    total = 0
    for path in layout.directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # a generation that was removed meanwhile
            continue
    return total
