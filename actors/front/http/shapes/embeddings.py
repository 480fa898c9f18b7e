"""`/v1/embeddings`: the body of a request, and vectors as OpenAI sends them."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from .....protocol.control.bounds import Path, Text

MOST_INPUTS = 2048


class EmbeddingsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /v1/embeddings`. Fields that are not listed (`user`) change nothing.

    Attributes:
        model: `client:model`, or the name of the model that `rag_embedding_model` sets.
        input: one text, or several; lists of token numbers are refused.
        dimensions: numbers per vector, for models that can shorten theirs.
    """

    model: Annotated[Path, Meta(min_length=1)]
    input: Text | Annotated[list[Text], Meta(min_length=1, max_length=MOST_INPUTS)]
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: Annotated[int, Meta(ge=1, le=100_000)] | None = None

    @property
    def texts(self) -> list[str]:
        """The texts to embed."""
        return [self.input] if isinstance(self.input, str) else self.input


class EmbeddingEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The vector of a text: numbers, or the base64 of 32-bit numbers, little-endian."""

    index: int
    embedding: list[float] | str
    object: Literal["embedding"] = "embedding"


class EmbeddingsUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens, as the provider counted them; 0 for models of this machine and vectors from the cache."""

    prompt_tokens: int = 0
    total_tokens: int = 0


class EmbeddingsReply(msgspec.Struct, frozen=True, kw_only=True):
    """Vectors of length one, in the order of the texts."""

    data: list[EmbeddingEntry]
    model: str
    usage: EmbeddingsUsage
    object: Literal["list"] = "list"


def reply_of(rows: Sequence[Sequence[float]], request: EmbeddingsRequest, model: str, tokens: int) -> EmbeddingsReply:
    """Return the reply with these vectors."""
    as_text = request.encoding_format == "base64"
    data = [
        EmbeddingEntry(index=index, embedding=_packed(row) if as_text else list(row)) for index, row in enumerate(rows)
    ]
    return EmbeddingsReply(data=data, model=model, usage=EmbeddingsUsage(prompt_tokens=tokens, total_tokens=tokens))


def _packed(row: Sequence[float]) -> str:
    numbers = array("f", row)
    if sys.byteorder != "little":
        numbers.byteswap()
    return base64.b64encode(numbers).decode()
