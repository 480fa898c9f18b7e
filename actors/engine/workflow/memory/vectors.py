"""Chooses how a store makes vectors: the model it names, else the user's own, else its words.

Words stand in where nothing else can be had: nothing is named and the weights of `local:static` are not here, or the
named provider makes no vectors at all. A memory that finds words again is of more use than a run that fails. That is
a warning says so, once. A key that is refused, or a server that can't be reached, is no such case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from .....protocol.errors import ConfigError, CredentialsError, ModelError, Unsupported
from .....protocol.events import Warned
from ....work.knowledge.embed import local

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ....work.context import RunContext
    from ....work.knowledge.embed.embedder import Embedder, Vectors
    from ....work.models.gateway import Emitter


class Vectorizer(Protocol):
    """What of an `Embedder` a store needs."""

    @property
    def model(self) -> str:
        """See `Embedder.model`."""
        ...

    async def embed(self, me: Actor, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """See `Embedder.embed`."""
        ...


NO_SUCH_THING = frozenset({404, 405, 501})
"""How servers answer that have no embeddings, or no such model."""


class OrWords:
    """A `Vectorizer` that goes over to words for good, as soon as it must.

    Args:
        name: of the store.
        named: the id of the model that the file names; None if it names none.
        allowed: whether words may stand in at all.
    """

    def __init__(self, context: RunContext, name: str, named: Callable[[Actor], str] | None, *, allowed: bool) -> None:
        self._context = context
        self._name = name
        self._named = named
        self._allowed = allowed
        self._embedder: Embedder | None = None

    def model_for(self, me: Actor) -> str | None:
        """The model of a store whose file names none: words, if the usual one is not here; None for the usual one."""
        try:
            self._context.knowledge.of(me).embedder()
        except ConfigError as error:
            if not self.stands_in(error):
                return None  # who needs it learns what is wrong, and how to mend it
            self.warn(me, error)
            return local.WORDS
        return None

    @property
    def by_words(self) -> bool:
        """Whether words stand in."""
        return self._embedder is not None and self._embedder.model == local.WORDS

    @property
    def model(self) -> str:
        """See `Embedder.model`. It is known once something was embedded."""
        assert self._embedder is not None
        return self._embedder.model

    async def embed(self, me: Actor, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """See `Embedder.embed`."""
        try:
            if self._embedder is None:
                named = None if self._named is None else self._named(me)
                self._embedder = self._context.knowledge.of(me).embedder(named)
            return await self._embedder.embed(me, texts, query=query)
        except (ConfigError, ModelError, Unsupported) as error:
            if self.by_words or not self.stands_in(error):
                raise
            self.warn(me, error)
            self._embedder = self._context.knowledge.of(me).embedder(local.WORDS)
            return await self._embedder.embed(me, texts, query=query)

    def stands_in(self, error: Exception) -> bool:
        """Whether words stand in after such a failure."""
        if not self._allowed:
            return False
        if self._named is None:  # what the user has chosen must work
            chosen = self._context.settings.rag_embedding_model
            return not chosen and isinstance(error, ConfigError) and not isinstance(error, CredentialsError)
        return isinstance(error, Unsupported) or (isinstance(error, ModelError) and error.status in NO_SUCH_THING)

    def warn(self, me: Emitter, error: Exception) -> None:
        """Tell that words stand in."""
        text = f"the memory '{self._name}' is searched by its words, since no vectors are to be had: {error}"
        me.emit(Warned(code="memory_by_words", message=text))
