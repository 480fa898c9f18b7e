"""Chooses how a store makes vectors: the model it names, else the user's own, else its words.

Words stand in where nothing else can be had: nothing is named and the weights of `local:static` are not here, or the
named provider makes no vectors at all. A memory that finds words again is of more use than a run that fails. That is
a warning says so, once. A key that is refused, or a server that can't be reached, is no such case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from .....protocol.errors import ConfigError, CredentialsError, ModelError, Unsupported
from .....protocol.events import Warned
from ....work.knowledge.embed import local

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ....work.context import RunContext
    from ....work.knowledge.embed.embedder import Embedder, Vectors
    from ....work.models.call import Emitter


NO_SUCH_THING = frozenset({404, 405, 501})
"""How servers answer that have no embeddings, or no such model."""


class OrWords(msgspec.Struct):
    """Makes vectors as an `Embedder` does, and goes over to words for good, as soon as it must.

    Attributes:
        store: its name.
        named: the id of the model that the file names; None if it names none.
        allowed: whether words may stand in at all.
    """

    context: RunContext
    store: str
    named: Callable[[Actor], str] | None
    allowed: bool
    _embedder: Embedder | None = None

    async def prepare(self, me: Actor, model: str | None = None) -> None:
        """Have the secrets that this model needs, or the usual one."""
        knowledge = self.context.knowledge.of(me)
        await knowledge.embedders.prepare(model or knowledge.settings.rag_embedding_model)

    def model_for(self, me: Actor) -> str | None:
        """The model of a store whose file names none: words, if the usual one is not here; None for the usual one."""
        try:
            self.context.knowledge.of(me).embedder()
        except ConfigError as error:
            if not self.stands_in(error):
                return None  # who needs it learns what is wrong, and how to mend it
            self.warn(me, error)
            return local.WORDS
        return None

    @property
    def model(self) -> str:
        """See `Embedder.model`. It is known once something was embedded."""
        assert self._embedder is not None
        return self._embedder.model

    async def embed(self, me: Actor, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """See `Embedder.embed`."""
        try:
            if self._embedder is None:
                named = None if self.named is None else self.named(me)
                await self.prepare(me, named)
                self._embedder = self.context.knowledge.of(me).embedder(named)
            return await self._embedder.embed(me, texts, query=query)
        except (ConfigError, ModelError, Unsupported) as error:
            by_words = self._embedder is not None and self._embedder.model == local.WORDS
            if by_words or not self.stands_in(error):
                raise
            self.warn(me, error)
            self._embedder = self.context.knowledge.of(me).embedder(local.WORDS)
            return await self._embedder.embed(me, texts, query=query)

    def stands_in(self, error: Exception) -> bool:
        """Whether words stand in after such a failure."""
        if not self.allowed:
            return False
        if self.named is None:  # what the user has chosen must work
            chosen = self.context.settings.rag_embedding_model
            return not chosen and isinstance(error, ConfigError) and not isinstance(error, CredentialsError)
        return isinstance(error, Unsupported) or (isinstance(error, ModelError) and error.status in NO_SUCH_THING)

    def warn(self, me: Emitter, error: Exception) -> None:
        """Tell that words stand in."""
        text = f"the memory '{self.store}' is searched by its words, since no vectors are to be had: {error}"
        me.emit(Warned(code="memory_by_words", message=text))
