"""Reads the stores of a graph's memories, and what its nodes do with them."""

from __future__ import annotations

from typing import Any

import msgspec

from ...source import Mapping, Node, Path, Scalar, Sequence
from ..agents import STORES, Embedding, FileSource, FileStore, MemoryUse, Store, StoreConfig
from ..dialect import DEVALL
from .keys import check_key
from .reading import WorkflowReading, with_value


def read_memories(reading: WorkflowReading, config: Mapping, path: Path) -> tuple[MemoryUse, ...]:
    """The `memories` of a node."""
    found = []
    for node, at in reading.items(config, "memories", path, "memories", "name: my_store"):
        mapping = reading.mapping(node, at, "an entry of `memories`", "`{name: my_store, read: true}`")
        if mapping is None:
            continue
        silent = {key: value for key, value in _defaults(reading, mapping).items() if key not in mapping.entries}
        mapping = _with_stages(reading, mapping, at)
        use = reading.block(
            MemoryUse,
            mapping,
            at,
            what="an entry of `memories`",
            given={**silent, "path": at},
            hidden=("path",),
            elsewhere={"embedding": "the store, under `memory` of the graph"},
        )
        found.append(use)
        if not use.read and not use.write and not any(broken[: len(at)] == at for broken in reading.broken):
            reading.report(
                "warning",
                "idle_memory",
                f"the memory `{use.name}` is neither read nor written here",
                at,
                mapping,
                hint="write `read: true`, `write: true` or both; DevAll's own engine takes both for granted.",
            )
    return tuple(found)


def _defaults(reading: WorkflowReading, use: Mapping) -> dict[str, Any]:
    """What an entry means where it is silent."""
    dialect = reading.dialect
    if dialect.silent_memories_work and {"read", "write"}.isdisjoint(use.entries):
        dialect = DEVALL
    return {
        "top_k": dialect.top_k,
        "similarity_threshold": dialect.threshold,
        "read": dialect.reads_by_default,
        "write": dialect.writes_by_default,
    }


def _with_stages(reading: WorkflowReading, use: Mapping, path: Path) -> Mapping:
    """The entry with the guide's `post_gen` as what it must mean."""
    entry = use.entries.get("retrieve_stage")
    if entry is None or not reading.dialect.guide_keys:
        return use
    items = entry.value.items if isinstance(entry.value, Sequence) else [entry.value]
    read: list[Node] = []
    for i, item in enumerate(items):
        if isinstance(item, Scalar) and item.value == "post_gen":
            reading.report(
                "warning",
                "other_spelling",
                "DevAll's own engine does not know the stage `post_gen`",
                (*path, "retrieve_stage", i),
                item,
                hint="write `post_gen_thinking`, which means the same and is known to both.",
            )
            item = Scalar("post_gen_thinking", item.text, item.line, item.column)
        read.append(item)
    if isinstance(entry.value, Sequence):
        return with_value(use, "retrieve_stage", Sequence(read, entry.value.line, entry.value.column))
    return with_value(use, "retrieve_stage", read[0])


def read_stores(reading: WorkflowReading, graph: Mapping, path: Path) -> tuple[tuple[Store, ...], frozenset[str]]:
    """The graph's stores, and the names of all of them, also of those that could not be read."""
    stores: list[Store] = []
    names: set[str] = set()
    for node, at in reading.items(graph, "memory", path, "memory stores", "name: my_store"):
        mapping = reading.mapping(node, at, "a memory store", "`{name: my_store, type: simple, config: {}}`")
        if mapping is None:
            continue
        name = _store_name(reading, mapping, at, names)
        kind = mapping.entries.get("type")
        bare = kind is not None and isinstance(kind.value, Scalar) and kind.value.value in ("simple", "blackboard")
        needs = reading.dialect.stores_need_config or not bare
        block = reading.typed(mapping, at, what="a memory store", kinds=STORES, also=("name",), needs_config=needs)
        if block is not None and name:
            stores.append(Store(name=name, config=_store_config(reading, *block), path=at))
    return tuple(stores), frozenset(names)


def _store_name(reading: WorkflowReading, store: Mapping, path: Path, names: set[str]) -> str:
    entry = store.entries.get("name")
    value = entry.value.value if entry is not None and isinstance(entry.value, Scalar) else None
    if entry is None or not isinstance(value, str) or not value.strip():
        place = (entry.line, entry.column) if entry is not None else (store.line, store.column)
        reading.report(
            "error",
            "missing_key",
            "a memory store needs a name",
            (*path, "name"),
            place,
            expected="`name:` with text",
            hint="Hint: nodes refer to it: `memories: [{name: ...}]`.",
        )
        return ""
    if value in names:
        reading.report(
            "error",
            "duplicate_store",
            f"two memory stores are called `{value}`",
            (*path, "name"),
            entry.value,
            hint="Hint: rename one of the two.",
        )
    names.add(value)
    return value


def _store_config(reading: WorkflowReading, kind: str, config: Mapping, path: Path) -> StoreConfig:
    given: dict[str, Any] = {}
    embedding = config.entries.get("embedding")
    if embedding is not None and kind in ("simple", "file") and isinstance(embedding.value, Mapping):
        at = (*path, "embedding")
        given["embedding"] = reading.block(Embedding, embedding.value, at, what="`embedding`")
        check_key(reading, given["embedding"], embedding.value, at)
    if kind == "file" and "file_sources" in config.entries:
        entry = config.entries["file_sources"]
        if isinstance(entry.value, Mapping):
            items: list[tuple[Node, Path]] = [(entry.value, (*path, "file_sources"))]
        else:
            items = reading.items(config, "file_sources", path, "files", "path: docs/")
        sources = []
        for node, at in items:
            mapping = reading.mapping(node, at, "a file source", "`{path: docs/}`")
            if mapping is not None:
                sources.append(reading.block(FileSource, mapping, at, what="a file source"))
        given["file_sources"] = tuple(sources)
        if not items and (*path, "file_sources") not in reading.broken:
            reading.report(
                "error",
                "missing_key",
                "`file_sources` is empty",
                (*path, "file_sources"),
                (entry.line, entry.column),
                expected="at least one file or directory",
                hint="Hint: write `file_sources: [{path: docs/}]`.",
            )
    store: StoreConfig = reading.block(STORES[kind], config, path, what=f"the `config` of a {kind} store", given=given)
    if isinstance(store, FileStore) and store.index_path is None:
        return msgspec.structs.replace(store, index_path=store.memory_path)
    return store
