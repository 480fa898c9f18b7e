"""A recipe: what a knowledge base is made of, and how.

With one, `service` builds the base, looks things up in it and brings it up to date. Recipes come from the rag
nodes of graphs and the `documents` of agents (`recipes`) and from the shelf of bases with names of their own. Each base
keeps the one that it was built by, as `recipe.json`, so that its directory alone is enough to build it again.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ....protocol.errors import KnowledgeError, KnowledgeMissing
from ....protocol.json_values import UNREADABLE
from ....protocol.languages import Language
from ....protocol.settings import Settings
from .base.places import Places


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """See the module. None is unset: then the settings' `rag_*` count, else the default.

    Attributes:
        what: its name in messages: `rag node 'lookup' of 'researcher'`, `knowledge base 'handbook'`.
        target: what `callboard kb build` calls it: `researcher:lookup`, `handbook`.
        directory: of the base.
        documents: where it comes from; see `sources.specs`.
        base: the directory that relative documents start from.
        embedding_model: `client:model`.
        chunk_size, chunk_overlap: characters.
        language: whose words are reduced to their stems.
        reranker_model: `client:model` that looks again at what was found.
        batch_size: texts in one request for vectors.
        top_k: chunks that a query finds.
        upstream: Loki's own file of the same knowledge, taken over if it is there and no base is.
        node: id of the rag node it belongs to.
        asks: build it only if a person agrees, unless model and sizes are all said here, as Loki does.
    """

    what: str
    target: str
    directory: Path
    documents: tuple[str, ...]
    base: Path
    embedding_model: str | None = None
    chunk_size: int | None = None
    chunk_overlap: int | None = None
    language: Language | None = None
    reranker_model: str | None = None
    batch_size: int | None = None
    top_k: int | None = None
    upstream: Path | None = None
    node: str | None = None
    asks: bool = False

    @property
    def specified(self) -> bool:
        """Whether it says by itself all that a build must know."""
        return None not in (self.embedding_model, self.chunk_size, self.chunk_overlap)

    def settled(self, settings: Settings) -> Recipe:
        """With the settings' word for what it does not say. An overlap goes with the size that it was chosen for."""
        size, overlap = self.chunk_size, self.chunk_overlap
        if size is None:
            size = settings.rag_chunk_size
            overlap = settings.rag_chunk_overlap if overlap is None else overlap
        return msgspec.structs.replace(
            self,
            embedding_model=self.embedding_model or settings.rag_embedding_model or None,
            chunk_size=size,
            chunk_overlap=overlap,
            language=self.language or settings.rag_language,
            reranker_model=self.reranker_model or settings.rag_reranker_model or None,
            top_k=self.top_k or settings.rag_top_k,
        )


class _File(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A `recipe.json`. `base` is relative to the directory of the base if that lies below it, so both can be moved."""

    what: str
    documents: tuple[str, ...]
    base: str
    embedding_model: str | None = None
    chunk_size: int | None = None
    chunk_overlap: int | None = None
    language: Language | None = None
    reranker_model: str | None = None
    batch_size: int | None = None
    top_k: int | None = None


_SAME = tuple(name for name in _File.__struct_fields__ if name != "base")


def encoded(recipe: Recipe) -> bytes:
    """The recipe as the text of its `recipe.json`."""
    home, base = (Path(os.path.normpath(path.absolute())) for path in (recipe.directory, recipe.base))
    shown = os.path.relpath(base, home) if home.is_relative_to(base) else str(base)
    file = _File(base=shown, **{name: getattr(recipe, name) for name in _SAME})
    return msgspec.json.format(msgspec.json.encode(file)) + b"\n"


def read_recipe(directory: Path) -> Recipe:
    """The recipe that the base in this directory was built by.

    Raises:
        KnowledgeMissing: there is none.
        KnowledgeError: it can't be read.
    """
    path = Places(directory).recipe
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except FileNotFoundError:
        raise KnowledgeMissing(f"{directory} is no knowledge base: there is no {path.name} in it") from None
    except (OSError, *UNREADABLE) as error:
        raise KnowledgeError(f"{path} can't be read: {error}; build the base from what it belongs to") from error
    base = Path(os.path.normpath(directory.absolute() / file.base))
    return Recipe(
        target=str(directory), directory=directory, base=base, **{name: getattr(file, name) for name in _SAME}
    )
