"""Embedders that compute in this process: nothing is sent anywhere, and no model runs.

`local:static`   A vector for every token. The vector of a text is their mean, so it is very fast. The weights are
                 WordLlama's (`callboard models pull wordllama`): one matrix in half precision and a tokenizer. This
                 module reads them without that package; `tokenizers` (of the extra `embed`) splits texts into tokens.
`local:words`    Vectors of the words themselves, for use without any model. Texts are close to each other if they share
                 words, mainly long ones; other words with the same meaning are not found. The checksum of each word,
                 and of the beginning of a longer one, determines its position and sign in the vector. Scripts
                 without spaces are split into pairs of characters.
"""

from __future__ import annotations

import math
import re
import struct
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec
import trio

from .....protocol.errors import ConfigError
from .....supervisors.installation import install_command
from .....supervisors.user_code import failure_of
from ...models import weights
from ...models.call import Emitter
from .embedder import normalised

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from .embedder import Vectors

STATIC = "local:static"
PULLED_AS = "wordllama"
WORDS = "local:words"

LEAST = 1e-6
"""Smallest score that `local:words` gives to texts with a common word; others have 0, or less by chance."""

_AT_A_TIME = 256
"""Texts between two checks for cancellation."""

_IN_A_BLOCK = 32
"""Texts whose token vectors are in memory at once; the event loop waits at most for one such block."""

_WORD = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af]+|\w+")
_DENSE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af]")
_LONG = 8
"""Letters from which on a word has full weight: short words are in most texts."""

_BEGINNING = 5


class Local(ABC):
    """An `Embedder` in this process.

    Args:
        limiter: limiter of the threads that it uses.
    """

    model: ClassVar[str]
    dimension: ClassVar[int]

    def __init__(self, limiter: trio.CapacityLimiter) -> None:
        self._limiter = limiter

    @abstractmethod
    async def _ready(self) -> Callable[[list[str]], Vectors]:
        """Return the function that embeds texts in a thread."""

    async def embed(
        self,
        me: Emitter,  # noqa: ARG002 (there are no events to emit)
        texts: Sequence[str],
        *,
        query: bool = False,  # noqa: ARG002 (queries are embedded like documents)
    ) -> Vectors:
        import numpy as np

        work = await self._ready()
        parts = [np.empty((0, self.dimension), np.float32)]
        for first in range(0, len(texts), _AT_A_TIME):
            part = list(texts[first : first + _AT_A_TIME])
            parts.append(await trio.to_thread.run_sync(work, part, limiter=self._limiter))
        return np.concatenate(parts)


class WordsEmbedder(Local):
    """Embedder of `local:words`. It has no weights, so it is always available."""

    model = WORDS
    dimension = 1024

    async def _ready(self) -> Callable[[list[str]], Vectors]:
        return _of_words


def _of_words(texts: list[str]) -> Vectors:
    import numpy as np

    rows = np.zeros((len(texts), WordsEmbedder.dimension), np.float32)
    for row, text in zip(rows, texts, strict=True):
        for feature, often in Counter(_features(text)).items():
            place = zlib.crc32(feature.encode(errors="replace"))
            weight = min(len(feature), _LONG) / _LONG * (1 + math.log(often))
            # Feature hashing: the sign from the highest bit makes collisions cancel out on average.
            row[place % WordsEmbedder.dimension] += weight if place & 0x8000_0000 else -weight
    return normalised(rows, WORDS)


def _features(text: str) -> Iterator[str]:
    for word in _WORD.findall(text.casefold()):
        if _DENSE.match(word):
            yield from (word[i : i + 2] for i in range(max(len(word) - 1, 1)))
            continue
        yield word
        if len(word) > _BEGINNING:
            yield word[:_BEGINNING] + "-"


class Static(Local):
    """Embedder of `local:static`. The weights are read when the first text is embedded, and shared from then on.

    Args:
        environ: environment that locates the cache directory.
        limiter: limiter of the threads that it uses.

    Raises:
        ConfigError: the weights or `tokenizers` are not installed.
    """

    model = STATIC
    dimension = 256

    def __init__(self, environ: Mapping[str, str], limiter: trio.CapacityLimiter) -> None:
        super().__init__(limiter)
        if find_spec("tokenizers") is None:
            raise ConfigError(f"{STATIC} needs the Python package tokenizers; run: {install_command('embed')}")
        self._files = weights.pulled(PULLED_AS, environ, kind="embedding")
        self._reading = trio.Lock()
        self._loaded: _Weights | None = None

    async def _ready(self) -> Callable[[list[str]], Vectors]:
        async with self._reading:
            if self._loaded is None:
                try:
                    read = partial(_Weights, *self._files)
                    self._loaded = await trio.to_thread.run_sync(read, limiter=self._limiter)
                except BaseException as raised:  # noqa: BLE001 - tokenizers may raise a panic of Rust
                    error = failure_of(raised)
                    raise ConfigError(
                        f"the weights of {STATIC} in {self._files[0].parent} can't be read: {error};"
                        f" run: callboard models pull {PULLED_AS}"
                    ) from error
            return self._loaded.vectors


class _Weights:
    def __init__(self, matrix_file: Path, tokenizer_file: Path) -> None:
        import numpy as np
        from tokenizers import Tokenizer

        # Format of safetensors: the length of the header, a JSON header with shapes and offsets, then the data.
        data = matrix_file.read_bytes()
        (length,) = struct.unpack_from("<Q", data)
        header = msgspec.json.decode(data[8 : 8 + length])
        rows, columns = header["embedding.weight"]["shape"]
        begin, _end = header["embedding.weight"]["data_offsets"]
        matrix = np.frombuffer(data, "<f2", rows * columns, 8 + length + begin).reshape(rows, columns)
        self._matrix: Vectors = matrix.astype(np.float32)
        self._tokenizer: Tokenizer = Tokenizer.from_file(str(tokenizer_file))

    def vectors(self, texts: list[str]) -> Vectors:
        import numpy as np

        blocks = [self._block(texts[first : first + _IN_A_BLOCK]) for first in range(0, len(texts), _IN_A_BLOCK)]
        return normalised(np.concatenate(blocks), STATIC)

    def _block(self, texts: list[str]) -> Vectors:
        import numpy as np

        clean = [text.encode(errors="replace").decode() for text in texts]  # the tokenizer accepts only valid UTF-8
        sums = np.zeros((len(texts), Static.dimension), np.float32)
        for row, encoding in enumerate(self._tokenizer.encode_batch_fast(clean, add_special_tokens=False)):
            if encoding.ids:
                sums[row] = self._matrix[encoding.ids].mean(axis=0, dtype=np.float32)
        return sums
