"""What an embedder is, and what all of them share: vectors of length one, in single precision, one row per text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from .....protocol.errors import ModelError
from ...models.call import Emitter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Vectors: TypeAlias = NDArray[np.float32]


class Embedder(Protocol):
    """Turns texts into vectors that are near each other where the texts mean the same."""

    @property
    def model(self) -> str:
        """Its id, `client:model`."""

    @property
    def dimension(self) -> int | None:
        """Numbers per vector; None until a text is embedded, unless the model states it."""

    async def embed(self, me: Emitter, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """The texts' vectors, one row each, of length one (all zeros where a text says nothing to the model).

        Cancelling the caller ends what is under way at once.

        Args:
            me: whom the events are about: retries, and warnings about texts that were cut.
            texts: any number of them.
            query: they are queries, not documents; some models embed the two differently.

        Raises:
            ConfigError, CredentialsError: the model or its key is missing.
            ModelError: the provider refused them, or its answer makes no sense.
            UpstreamError: the tries are spent.
            BudgetReached: the run's budget is used up.
        """


def normalised(rows: ArrayLike, model: str) -> Vectors:
    """The rows with length one.

    Raises:
        ModelError: they are of different lengths, or hold what is no number.
    """
    import numpy as np

    try:
        vectors = np.array(rows, dtype=np.float32)
    except (ValueError, TypeError) as error:
        raise ModelError(f"{model} gave vectors of different lengths, or not of numbers ({error})") from error
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise ModelError(f"{model} gave no vectors")
    if not np.isfinite(vectors).all():
        raise ModelError(f"{model} gave vectors with values that are no numbers")
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    np.divide(vectors, largest, out=vectors, where=largest > 0)  # else a square of it may be too large or too small
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.divide(vectors, lengths, out=vectors, where=lengths > 0)
    return vectors
