"""State of a knowledge base for display, read without opening it: build time, size, model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ....protocol.errors import KnowledgeError
from ....protocol.knowledge import Unreadable
from .base.layout import BaseLayout
from .base.model import GenerationMeta
from .recipe import Recipe
from .split import OVERLAP


@dataclass(frozen=True, kw_only=True)
class BaseInfo:
    """State of one knowledge base for display: its recipe and metadata, its size, and its builds.

    Attributes:
        meta: metadata of the current generation; None if there is none.
        size: bytes on disk.
        building: there is an unfinished build.
        builder: description of the building process; "" after an interruption, which a build resumes.
        unreadable: sources that the last build could not read.
        error: reason why the base can't be used.
    """

    recipe: Recipe
    meta: GenerationMeta | None = None
    size: int = 0
    building: bool = False
    builder: str = ""
    unreadable: Sequence[Unreadable] = ()
    error: str | None = None

    @property
    def overlap(self) -> int | None:
        """Characters that adjacent chunks may share."""
        if self.meta is None:
            return None
        settings = self.meta.settings
        return settings.chunk_size // OVERLAP if settings.chunk_overlap is None else settings.chunk_overlap

    def to_wire(self) -> dict[str, Any]:
        """Return the state as the JSON object that `callboard kb` prints."""
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
    """Return the state of a base. Takes no lock, so a builder may change the base at the same time."""
    layout = BaseLayout(recipe.directory)
    size, building = _size(layout), layout.building.is_dir()
    builder = layout.builder() if building else ""
    try:
        number = layout.number()
        meta = layout.meta(number) if number else None
        unreadable = layout.lost().told
    except (KnowledgeError, OSError) as error:
        return BaseInfo(recipe=recipe, size=size, building=building, builder=builder, error=str(error))
    return BaseInfo(recipe=recipe, meta=meta, size=size, building=building, builder=builder, unreadable=unreadable)


def _size(layout: BaseLayout) -> int:
    total = 0
    for path in layout.directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # a generation was removed during the iteration
            continue
    return total
