"""File store: read-only documents that are searched by similarity, as a knowledge base."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import trio

from .....protocol.errors import CallboardError
from .....protocol.workflow.model import FileSource
from .....supervisors import Actor
from ....work.context import RunContext
from ....work.knowledge.embed import local
from ....work.knowledge.recipe import Recipe
from .stores import MemoryStore
from .vectors import OrWords

# DevAll's figures.
CHUNK, OVERLAP = 500, 50
"""Characters of a chunk, and of its overlap with the next."""


class Documents(msgspec.Struct, MemoryStore):
    """Memory store over a knowledge base.

    Attributes:
        sources: the documents.
        directory: directory of the knowledge base.
        base: directory that relative sources start from.
        model: returns the embedding model for an actor; None for the user's default model.
        words: fallback to a word index if embeddings are unavailable.
    """

    name: str
    context: RunContext
    sources: tuple[FileSource, ...]
    directory: Path
    base: Path
    model: Callable[[Actor], str] | None
    words: OrWords
    _by_words: bool = False
    _recipe: Recipe | None = None

    async def recall(self, me: Actor, text: str, *, top_k: int, threshold: float) -> list[str]:
        recipe = await self._there(me)
        above = min(threshold, 0.0) if self._by_words else threshold
        above -= local.LEAST
        found = await self.context.knowledge.of(me).retrieve(
            me, recipe, text, top_k=top_k, min_score=above, mode="vector"
        )
        return [hit.text for hit in found.chunks]

    async def _there(self, me: Actor) -> Recipe:
        knowledge, recipe = self.context.knowledge, self._recipe
        if recipe is None:
            await self.words.prepare(me)
            model = self.model(me) if self.model else self.words.model_for(me)
            recipe = await trio.to_thread.run_sync(self._made, model)
        try:
            await knowledge.ready(me, [recipe])
        except CallboardError as error:
            if not self.words.stands_in(error):
                raise
            self.words.warn(me, error)
            recipe = msgspec.structs.replace(recipe, embedding_model=local.WORDS)
            await knowledge.ready(me, [recipe])
        if self._recipe is None:
            meta = await knowledge.of(me).meta(recipe)
            self._by_words = meta is not None and meta.model == local.WORDS
            self._recipe = recipe
        return recipe

    def _made(self, model: str | None) -> Recipe:
        documents = tuple(spec for source in self.sources for spec in specs(source, self.base))
        return Recipe(
            what=f"memory '{self.name}'",
            target=str(self.directory),
            directory=self.directory,
            documents=documents,
            base=self.base,
            embedding_model=model,
            chunk_size=CHUNK,
            chunk_overlap=OVERLAP,
        )


def specs(source: FileSource, base: Path) -> list[str]:
    """Return a source as entries of `documents:`."""
    path = Path(source.path).expanduser()
    if not path.is_absolute() and not (base / path).exists() and path.exists():
        path = path.absolute()  # DevAll resolves its paths against the current directory
    found = base / path
    if not found.is_dir():
        return [str(path)]
    below = "**/" if source.recursive else ""
    if not source.file_types:
        return [str(path)] if source.recursive else [str(path / "*")]
    return [str(path / f"{below}*.{ending.lstrip('*').lstrip('.')}") for ending in source.file_types]
