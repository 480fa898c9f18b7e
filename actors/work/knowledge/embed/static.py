"""`local:static`: a vector for every token, and a text's vector is their mean. No model runs, so it is very fast.

The weights are WordLlama's (`callboard models pull wordllama`): one matrix in half precision and a tokenizer. They are
read here, without that package and all that it brings; `tokenizers` (of the extra `embed`) cuts texts into tokens.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.errors import ConfigError
from ...models import weights
from ...models.gateway import Emitter
from .embedder import OnProgress, normalised

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from .embedder import Vectors

MODEL = "local:static"
DIMENSION = 256
PULLED_AS = "wordllama"

_AT_A_TIME = 512
"""Texts between two checks for cancellation."""

_IN_A_BLOCK = 32
"""Texts whose tokens' vectors are in memory at once; the event loop waits no longer than for one such block."""


class Static:
    """An `Embedder` in this process. The weights are read when the first text comes, and shared from then on.

    Args:
        environ: for the cache directory.
        limiter: of the threads it works in.

    Raises:
        ConfigError: the weights are not here, or `tokenizers` isn't.
    """

    def __init__(self, environ: Mapping[str, str], limiter: trio.CapacityLimiter) -> None:
        if find_spec("tokenizers") is None:
            raise ConfigError(f"{MODEL} needs tokenizers; run: pip install 'callboard[embed]'")
        self._matrix_file, self._tokenizer_file = weights.pulled(PULLED_AS, environ, kind="embedding")
        self._limiter = limiter
        self._reading = trio.Lock()
        self._loaded: _Loaded | None = None

    @property
    def model(self) -> str:
        """Its id."""
        return MODEL

    @property
    def dimension(self) -> int:
        """Numbers per vector."""
        return DIMENSION

    async def embed(
        self,
        me: Emitter,  # noqa: ARG002  (there is nothing to tell)
        texts: Sequence[str],
        *,
        query: bool = False,  # noqa: ARG002  (queries are no different here)
        on_progress: OnProgress | None = None,
    ) -> Vectors:
        """See `Embedder.embed`."""
        import numpy as np

        loaded = await self._weights()
        parts = [np.empty((0, DIMENSION), np.float32)]
        for first in range(0, len(texts), _AT_A_TIME):
            part = list(texts[first : first + _AT_A_TIME])
            parts.append(await trio.to_thread.run_sync(loaded.vectors, part, limiter=self._limiter))
            if on_progress is not None:
                on_progress(first + len(part), len(texts))
        return np.concatenate(parts)

    async def _weights(self) -> _Loaded:
        async with self._reading:
            if self._loaded is None:
                files = (self._matrix_file, self._tokenizer_file)
                try:
                    self._loaded = await trio.to_thread.run_sync(_read, *files, limiter=self._limiter)
                except Exception as error:  # tokenizers has no error of its own; any means they are no weights
                    raise ConfigError(
                        f"the weights of {MODEL} in {self._matrix_file.parent} can't be read: {error};"
                        f" run: callboard models pull {PULLED_AS}"
                    ) from error
            return self._loaded


class _Loaded:
    def __init__(self, matrix: Vectors, tokenizer: Tokenizer) -> None:
        self._matrix = matrix
        self._tokenizer = tokenizer

    def vectors(self, texts: list[str]) -> Vectors:
        """Of any number of texts but none."""
        import numpy as np

        blocks = [self._block(texts[first : first + _IN_A_BLOCK]) for first in range(0, len(texts), _IN_A_BLOCK)]
        return normalised(np.concatenate(blocks), MODEL)

    def _block(self, texts: list[str]) -> Vectors:
        import numpy as np

        encoded = self._tokenizer.encode_batch_fast([_clean(text) for text in texts], add_special_tokens=False)
        sums = np.zeros((len(texts), DIMENSION), np.float32)
        for row, encoding in enumerate(encoded):
            if encoding.ids:
                sums[row] = self._matrix[encoding.ids].mean(axis=0, dtype=np.float32)
        return sums


def _clean(text: str) -> str:
    """The text as UTF-8 can hold it, which the tokenizer insists on."""
    return text.encode(errors="replace").decode()


def _read(matrix_file: Path, tokenizer_file: Path) -> _Loaded:
    import numpy as np
    from tokenizers import Tokenizer

    data = matrix_file.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = msgspec.json.decode(data[8 : 8 + length])
    rows, columns = header["embedding.weight"]["shape"]
    begin, _end = header["embedding.weight"]["data_offsets"]
    matrix = np.frombuffer(data, "<f2", rows * columns, 8 + length + begin).reshape(rows, columns)
    return _Loaded(matrix.astype(np.float32), Tokenizer.from_file(str(tokenizer_file)))
