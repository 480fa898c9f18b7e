"""Interface of embedders: vectors of length 1, in single precision, one row per text."""

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
    """Turns texts into vectors that are close to each other if the texts have similar meanings."""

    @property
    def model(self) -> str:
        """Id of the model, `client:model`."""

    @property
    def dimension(self) -> int | None:
        """Numbers per vector; None until a text is embedded, unless the model states it."""

    async def embed(self, me: Emitter, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """Return one vector per text, of length 1, or all zeros if the model finds nothing in a text.

        Cancellation aborts requests in flight at once.

        Args:
            me: receives the events: retries, and warnings about truncated texts.
            texts: any number of texts.
            query: the texts are queries, not documents; some models embed the two differently.

        Raises:
            ConfigError, CredentialsError: the model or its key is missing.
            ModelError: the provider refused the texts, or its answer is invalid.
            UpstreamError: all attempts failed.
            BudgetReached: the run's budget is used up.
        """


def normalised(rows: ArrayLike, model: str) -> Vectors:
    """Return the rows scaled to length 1; rows of zeros stay zero.

    Raises:
        ModelError: the rows have different lengths, or contain NaN or infinity.
    """
    import numpy as np

    try:
        vectors = np.array(rows, dtype=np.float32)
    except (ValueError, TypeError) as error:
        raise ModelError(
            f"{model} returned vectors of different lengths, or vectors that are not lists of numbers ({error})"
        ) from error
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise ModelError(f"{model} returned no vectors")
    if not np.isfinite(vectors).all():
        raise ModelError(f"{model} returned vectors with values that are not finite numbers (NaN or infinity)")
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    # Scale by the largest value first: its square could overflow or underflow.
    np.divide(vectors, largest, out=vectors, where=largest > 0)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.divide(vectors, lengths, out=vectors, where=lengths > 0)
    return vectors
