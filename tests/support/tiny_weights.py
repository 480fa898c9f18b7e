"""Small weights for `local:static`: they know the words that a test needs, so that nothing has to be pulled."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from callboard.actors.work.knowledge.embed import local
from callboard.actors.work.models import weights

WORDS = ("bicycle", "cake", "eggs", "far", "flour", "moon", "needs", "rings", "stones", "wheels")


def put_weights(monkeypatch: pytest.MonkeyPatch, cache: Path, words: Sequence[str]) -> Any:
    """Write weights of these words below `cache`, an XDG_CACHE_HOME; the matrix, whose first row is of all others."""
    np = pytest.importorskip("numpy", reason="the extra `embed` is not installed")
    tokenizers = pytest.importorskip("tokenizers", reason="the extra `embed` is not installed")
    matrix = np.random.default_rng(1).standard_normal((len(words) + 1, local.Static.dimension)).astype("<f2")
    known = {word: n for n, word in enumerate(["[UNK]", *words])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    entry = {"dtype": "F16", "shape": list(matrix.shape), "data_offsets": [0, matrix.nbytes]}
    header = json.dumps({"embedding.weight": entry}).encode()
    contents = [struct.pack("<Q", len(header)) + header + matrix.tobytes(), tokenizer.to_str().encode()]
    parts = tuple(
        weights.WeightsFile(file=f"tiny{n}", size=len(data), sha256=hashlib.sha256(data).hexdigest())
        for n, data in enumerate(contents)
    )
    monkeypatch.setitem(weights.KNOWN, "wordllama", msgspec.structs.replace(weights.KNOWN["wordllama"], parts=parts))
    home = weights.directory({"XDG_CACHE_HOME": str(cache)})
    home.mkdir(parents=True)
    for part, data in zip(parts, contents, strict=True):
        (home / part.file).write_bytes(data)
    return matrix
