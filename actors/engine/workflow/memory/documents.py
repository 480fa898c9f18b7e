"""A file store: documents that are looked up in by likeness, and never written to. It is a knowledge base of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.errors import CallboardError
from .....protocol.workflow.agents import FileSource
from ....work.knowledge.embed import local
from ....work.knowledge.recipe import Recipe
from .stores import Experience, Question
from .vectors import OrWords

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ....work.context import RunContext

CHUNK, OVERLAP = 500, 50
"""Characters of a piece, and of what it shares with the next."""


class Documents:
    """See the module.

    Args:
        directory: of the base.
        base: what relative sources start from.
        model: what makes vectors, on behalf of the actor it is given; None for the user's own.
        words: whether words stand in for it.
    """

    def __init__(
        self,
        name: str,
        context: RunContext,
        sources: tuple[FileSource, ...],
        *,
        directory: Path,
        base: Path,
        model: Callable[[Actor], str] | None,
        words: OrWords,
    ) -> None:
        self._name = name
        self._context = context
        self._sources = sources
        self._directory = directory
        self._base = base
        self._model = model
        self._words = words
        self._by_words = False
        self._recipe: Recipe | None = None

    async def recall(self, me: Actor, question: Question) -> list[str]:
        """See `Store.recall`."""
        recipe = await self._there(me)
        above = min(question.threshold, 0.0) if self._by_words else question.threshold
        above -= local.LEAST
        found = await self._context.knowledge.of(me).retrieve(
            me, recipe, question.text, top_k=question.top_k, min_score=above, mode="vector"
        )
        return [hit.text for hit in found.chunks]

    async def remember(self, me: Actor, experience: Experience) -> None:
        """Nothing: documents are only read."""

    async def aclose(self) -> None:
        """Nothing: bases are the process's."""

    async def _there(self, me: Actor) -> Recipe:
        """How the base was made, which is there from then on."""
        knowledge, recipe = self._context.knowledge, self._recipe
        if recipe is None:
            model = self._model(me) if self._model else self._words.model_for(me)
            recipe = await trio.to_thread.run_sync(self._made, model)
        try:
            await knowledge.ready(me, [recipe])
        except CallboardError as error:
            if not self._words.stands_in(error):
                raise
            self._words.warn(me, error)
            recipe = msgspec.structs.replace(recipe, embedding_model=local.WORDS)
            await knowledge.ready(me, [recipe])
        if self._recipe is None:
            meta = await knowledge.of(me).meta(recipe)
            self._by_words = meta is not None and meta.model == local.WORDS
            self._recipe = recipe
        return recipe

    def _made(self, model: str | None) -> Recipe:
        documents = tuple(spec for source in self._sources for spec in specs(source, self._base))
        return Recipe(
            what=f"memory '{self._name}'",
            target=str(self._directory),
            directory=self._directory,
            documents=documents,
            base=self._base,
            embedding_model=model,
            chunk_size=CHUNK,
            chunk_overlap=OVERLAP,
        )


def specs(source: FileSource, base: Path) -> list[str]:
    """A source as lines of `documents:`."""
    path = Path(source.path).expanduser()
    if not path.is_absolute() and not (base / path).exists() and path.exists():
        path = path.absolute()  # DevAll's own paths start from where it is started
    found = base / path
    if not found.is_dir():
        return [str(path)]
    below = "**/" if source.recursive else ""
    if not source.file_types:
        return [str(path)] if source.recursive else [str(path / "*")]
    return [str(path / f"{below}*.{ending.lstrip('*').lstrip('.')}") for ending in source.file_types]
