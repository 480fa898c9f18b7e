"""Choice of the embedding model of a store: the named model, else the user's default, else a word index.

The word index is used if nothing better is available: no model is named and the weights of `local:static` are
missing, or the named provider has no embeddings. A memory that finds words is more useful than a run that fails. A
warning reports this once. A rejected key or an unreachable server is an error and not a reason for the word index.
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
"""HTTP status of servers without embeddings, or without the model."""


class OrWords(msgspec.Struct):
    """Embedder that changes to a word index permanently when embeddings are unavailable.

    Attributes:
        store: the store's name.
        named: returns the id of the model that the file names; None if it names none.
        allowed: the word index may be used at all.
    """

    context: RunContext
    store: str
    named: Callable[[Actor], str] | None
    allowed: bool
    _embedder: Embedder | None = None

    async def prepare(self, me: Actor, model: str | None = None) -> None:
        """Load the secrets that this model needs, or the default model."""
        knowledge = self.context.knowledge.of(me)
        await knowledge.embedders.prepare(model or knowledge.settings.rag_embedding_model)

    def model_for(self, me: Actor) -> str | None:
        """Return the word model if the default model is unavailable here; None for the default model.

        For a store whose file names no model.
        """
        try:
            self.context.knowledge.of(me).embedder()
        except ConfigError as error:
            if not self.stands_in(error):
                return None  # the first use raises the error with its remedy
            self.warn(me, error)
            return local.WORDS
        return None

    @property
    def model(self) -> str:
        """Model of the computed vectors; known after the first `embed`."""
        assert self._embedder is not None
        return self._embedder.model

    async def embed(self, me: Actor, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """Compute vectors; see `Embedder.embed`."""
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
        """Return True if the word index replaces embeddings after this failure."""
        if not self.allowed:
            return False
        if self.named is None:  # a model that the user has chosen must work
            chosen = self.context.settings.rag_embedding_model
            return not chosen and isinstance(error, ConfigError) and not isinstance(error, CredentialsError)
        return isinstance(error, Unsupported) or (isinstance(error, ModelError) and error.status in NO_SUCH_THING)

    def warn(self, me: Emitter, error: Exception) -> None:
        """Emit a warning that the word index is used."""
        text = f"the memory '{self.store}' is searched by its words, since no vectors are to be had: {error}"
        me.emit(Warned(code="memory_by_words", message=text))
