"""One run's access to the knowledge of its process: bases made ready once, prompts with their findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, final

import trio

from ....protocol.knowledge import Retrieved
from .attached import attached
from .lifecycle import make_ready
from .prompting import together, with_knowledge
from .recipe import Recipe
from .service import Knowledge

if TYPE_CHECKING:
    from ....protocol.settings import ClientSettings
    from ....supervisors.actor import Actor
    from ..meter import Meter
    from .base.model import Embedder


@final
class RunKnowledge:
    """See the module. Nothing is opened, nor asked for, before the first look-up.

    Args:
        service: the process's.
        meter: counts what the run uses.
        rebuild: every base that the run needs is built anew, once.
        agreed: bases are built without asking.
    """

    def __init__(
        self, service: Callable[[], Knowledge], meter: Meter, *, rebuild: bool = False, agreed: bool = False
    ) -> None:
        self._service = service
        self._meter = meter
        self._rebuild = rebuild
        self._agreed = agreed
        self._seen_to: dict[Path, trio.Lock] = {}
        self._ready: set[Path] = set()

    async def ready(self, me: Actor, recipes: Iterable[Recipe]) -> None:
        """Have all these bases there, one after the other; what was seen to once in this run is not seen to again.

        Raises:
            KnowledgeError: see `make_ready`.
        """
        for recipe in recipes:
            async with self._seen_to.setdefault(recipe.directory, trio.Lock()):
                if recipe.directory not in self._ready:
                    await make_ready(self._of(me), me, recipe, rebuild=self._rebuild, agreed=self._agreed)
                    self._ready.add(recipe.directory)

    async def retrieve(
        self, me: Actor, recipes: Sequence[Recipe], query: str, *, top_k: int | None = None, filters: Sequence[str] = ()
    ) -> Retrieved:
        """What these bases know about a query, each asked once. Raises as `Knowledge.retrieve` does."""
        service = self._of(me)
        distinct = {each.directory.absolute(): each for each in recipes}.values()
        return together([await service.retrieve(me, each, query, top_k=top_k, filters=filters) for each in distinct])

    async def near(self, me: Actor, recipe: Recipe, query: str, *, top_k: int, above: float) -> Retrieved:
        """What a base has that is near to a query, words left aside; hits have a cosine of more than `above`.

        Raises as `Knowledge.retrieve` does.
        """
        return await self._of(me).retrieve(me, recipe, query, top_k=top_k, min_score=above, mode="vector")

    async def model_of(self, me: Actor, recipe: Recipe) -> str | None:
        """What made the vectors of the base that is there; None if there is none."""
        meta = await self._of(me).meta(recipe)
        return None if meta is None else meta.model

    def adopt(self, me: Actor, client: ClientSettings) -> str:
        """Know a client that `config.yaml` does not have, for embedding; see `Catalog.adopt`."""
        return self._of(me).embedders.adopt(client)

    def embedder(self, me: Actor, model: str | None = None) -> Embedder:
        """See `Knowledge.embedder`."""
        return self._of(me).embedder(model)

    async def prompt(self, me: Actor, recipes: Sequence[Recipe], prompt: str) -> str:
        """The prompt, with what these bases know about it."""
        if not recipes:
            return prompt
        found = await self.retrieve(me, recipes, prompt)
        return with_knowledge(prompt, found, self._of(me).settings.rag_template)

    async def attached(self, me: Actor, files: Sequence[str], prompt: str) -> str:
        """What is to stand before the prompt of the files that the user attached to it; "" for none."""
        if not files:
            return ""
        service = self._of(me)
        return await attached(
            me, files, prompt, settings=service.sources, environ=service.environ, embedder=service.embedder
        )

    def _of(self, me: Actor) -> Knowledge:
        service = self._service()
        service.charge(me.stream.run, self._meter)
        return service
