"""MiniLM's weights become a GGUF file that says what they said; each pull checks the real one by its checksum."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from typing import Any

import numpy as np
import pytest

from callboard.actors.work.models import minilm

WIDTH, INNER = 64, 128
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "word", "##ing", "é"]
SHAPES = {
    "embeddings.word_embeddings.weight": (len(VOCABULARY), WIDTH),
    "embeddings.position_embeddings.weight": (8, WIDTH),
    "embeddings.token_type_embeddings.weight": (2, WIDTH),
    "embeddings.LayerNorm.weight": (WIDTH,),
    "embeddings.LayerNorm.bias": (WIDTH,),
}
for part, rows, columns in [
    *((f"attention.{name}", WIDTH, WIDTH) for name in ("self.query", "self.key", "self.value", "output.dense")),
    ("intermediate.dense", INNER, WIDTH),
    ("output.dense", WIDTH, INNER),
    ("attention.output.LayerNorm", WIDTH, 0),
    ("output.LayerNorm", WIDTH, 0),
]:
    for layer in range(minilm.LAYERS):
        SHAPES[f"encoder.layer.{layer}.{part}.weight"] = (rows, columns) if columns else (rows,)
        SHAPES[f"encoder.layer.{layer}.{part}.bias"] = (rows,)


@pytest.fixture(scope="module")
def original() -> dict[str, Any]:
    rng = np.random.default_rng(7)
    tensors = {name: rng.standard_normal(shape).astype("<f4") for name, shape in SHAPES.items()}
    tensors["embeddings.word_embeddings.weight"][3] = 0
    return tensors


@pytest.fixture(scope="module")
def wheel(original: dict[str, Any]) -> zipfile.ZipFile:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, tensor in original.items():
        end = len(data) + tensor.nbytes
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), end]}
        data += tensor.tobytes()
    encoded = json.dumps(header).encode()
    archive = zipfile.ZipFile(io.BytesIO(), "w")
    archive.writestr(f"{minilm.HOME}/model.safetensors", struct.pack("<Q", len(encoded)) + encoded + data)
    archive.writestr(f"{minilm.HOME}/vocab.txt", "\n".join(VOCABULARY) + "\n")
    return archive


class Reader:
    """Reads GGUF as its specification says."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        magic, version, tensors, entries = self.take("<4sIQQ")
        assert (magic, version) == (b"GGUF", 3)
        self.metadata = {self.text(): self.value(self.take("<I")[0]) for _ in range(entries)}
        described = [self.described() for _ in range(tensors)]
        self.at += -self.at % 32
        self.tensors = {name: self.tensor(shape, kind, offset) for name, shape, kind, offset in described}

    def take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def text(self) -> str:
        (size,) = self.take("<Q")
        return self.take(f"<{size}s")[0].decode()

    def value(self, kind: int) -> Any:
        if kind == 8:
            return self.text()
        if kind == 9:
            of, count = self.take("<IQ")
            return [self.value(of) for _ in range(count)]
        return self.take({4: "<I", 5: "<i", 6: "<f", 7: "<?"}[kind])[0]

    def described(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self.text()
        (dimensions,) = self.take("<I")
        *shape, kind, offset = self.take(f"<{dimensions}QIQ")
        return name, tuple(shape[::-1]), kind, offset

    def tensor(self, shape: tuple[int, ...], kind: int, offset: int) -> Any:
        assert offset % 32 == 0
        count = int(np.prod(shape))
        if kind == 0:
            return np.frombuffer(self.data, "<f4", count, self.at + offset).reshape(shape)
        assert kind == 8
        block = np.dtype([("d", "<f2"), ("q", "i1", 32)])
        blocks = np.frombuffer(self.data, block, count // 32, self.at + offset)
        return (blocks["d"].astype("f4")[:, None] * blocks["q"]).reshape(shape)


def test_every_weight_is_in_the_file_within_the_precision_of_its_type(
    wheel: zipfile.ZipFile, original: dict[str, Any]
) -> None:
    found = Reader(b"".join(minilm.as_gguf(wheel))).tensors
    assert len(found) == len(original)
    names = {
        "token_embd.weight": "embeddings.word_embeddings.weight",
        "token_embd_norm.bias": "embeddings.LayerNorm.bias",
        "position_embd.weight": "embeddings.position_embeddings.weight",
        "blk.0.attn_q.weight": "encoder.layer.0.attention.self.query.weight",
        "blk.2.attn_output.weight": "encoder.layer.2.attention.output.dense.weight",
        "blk.5.attn_output_norm.weight": "encoder.layer.5.attention.output.LayerNorm.weight",
        "blk.3.ffn_up.weight": "encoder.layer.3.intermediate.dense.weight",
        "blk.4.ffn_down.weight": "encoder.layer.4.output.dense.weight",
        "blk.1.layer_output_norm.bias": "encoder.layer.1.output.LayerNorm.bias",
    }
    for ours, theirs in names.items():
        whole = original[theirs].ndim == 1 or "position" in theirs
        np.testing.assert_allclose(found[ours], original[theirs], atol=0 if whole else 0.02)
    assert not found["token_embd.weight"][3].any()


def test_the_metadata_tell_the_architecture_and_the_vocabulary(wheel: zipfile.ZipFile) -> None:
    told = Reader(b"".join(minilm.as_gguf(wheel))).metadata
    assert told["general.architecture"] == "bert"
    assert (told["bert.embedding_length"], told["bert.feed_forward_length"]) == (WIDTH, INNER)
    assert (told["bert.pooling_type"], told["bert.attention.causal"]) == (1, False)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "▁word", "ing", "▁é"]
    assert told["tokenizer.ggml.tokens"] == words
    assert told["tokenizer.ggml.token_type"] == [3, 3, 3, 3, 3, 1, 1, 1, 1]
    assert told["tokenizer.ggml.cls_token_id"] == 2


def test_a_wheel_with_other_weights_is_noticed() -> None:
    archive = zipfile.ZipFile(io.BytesIO(), "w")
    archive.writestr(f"{minilm.HOME}/model.safetensors", struct.pack("<Q", 2) + b"{}")
    with pytest.raises(KeyError):
        b"".join(minilm.as_gguf(archive))
