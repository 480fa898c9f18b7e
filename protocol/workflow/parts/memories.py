"""Reads the stores of a graph's memories, and what its nodes do with them."""

from __future__ import annotations

from typing import Any

import msgspec

from ...tree import Mapping, Node, Scalar, Sequence
from ..agents import STORES, Embedding, FileSource, FileStore, MemoryUse, Store, StoreConfig
from ..dialect import DEVALL
from ..model import AgentConfig
from .reading import Part


def read_memories(config: Part) -> tuple[MemoryUse, ...]:
    """The `memories` of a node."""
    found = []
    for item in config.each("memories", "memories", "name: my_store"):
        part = item.mapping("an entry of `memories`", "`{name: my_store, read: true}`")
        if part is None:
            continue
        silent = {key: value for key, value in _defaults(part).items() if key not in part.entries}
        part = _with_stages(part)
        use = part.block(
            MemoryUse,
            "an entry of `memories`",
            given={**silent, "path": part.path},
            hidden=("path",),
            elsewhere={"embedding": "the store, under `memory` of the graph"},
        )
        found.append(use)
        if not use.read and not use.write and not part.is_broken:
            hint = "write `read: true`, `write: true` or both; DevAll's own engine takes both for granted."
            part.warn("idle_memory", f"the memory `{use.name}` is neither read nor written here", hint)
    return tuple(found)


def _defaults(use: Part) -> dict[str, Any]:
    dialect = use.reading.dialect
    if dialect.silent_memories_work and {"read", "write"}.isdisjoint(use.entries):
        dialect = DEVALL
    return {
        "top_k": dialect.top_k,
        "similarity_threshold": dialect.threshold,
        "read": dialect.reads_by_default,
        "write": dialect.writes_by_default,
    }


def _with_stages(use: Part) -> Part:
    """The entry with the guide's `post_gen` as what it must mean."""
    if "retrieve_stage" not in use.entries or not use.reading.dialect.guide_keys:
        return use
    stage = use["retrieve_stage"]
    read: list[Node] = []
    for i, item in enumerate(stage.items if stage.is_list else [stage]):
        node = item.node
        if item.text == "post_gen":
            item.path = (*stage.path, i)
            item.warn(
                "other_spelling",
                "DevAll's own engine does not know the stage `post_gen`",
                "write `post_gen_thinking`, which means the same and is known to both.",
            )
            node = Scalar("post_gen_thinking", "post_gen", node.line, node.column)
        read.append(node)
    value = Sequence(read, stage.node.line, stage.node.column) if stage.is_list else read[0]
    return use.with_value("retrieve_stage", value)


def read_stores(graph: Part) -> tuple[tuple[Store, ...], frozenset[str]]:
    """The graph's stores, and the names of all of them, also of those that could not be read."""
    stores: list[Store] = []
    names: set[str] = set()
    for item in graph.each("memory", "memory stores", "name: my_store"):
        part = item.mapping("a memory store", "`{name: my_store, type: simple, config: {}}`")
        if part is None:
            continue
        name = _store_name(part, names)
        needs = part.reading.dialect.stores_need_config or part["type"].text not in ("simple", "blackboard")
        block = part.typed("a memory store", STORES, also=("name",), needs_config=needs)
        if block is not None and name:
            stores.append(Store(name=name, config=_store_config(*block), path=part.path))
    return tuple(stores), frozenset(names)


def _store_name(store: Part, names: set[str]) -> str:
    value = store["name"].text
    if value is None or not value.strip():
        store.key("name").error(
            "missing_key",
            "a memory store needs a name",
            expected="`name:` with text",
            hint="Hint: nodes refer to it: `memories: [{name: ...}]`.",
        )
        return ""
    if value in names:
        message = f"two memory stores are called `{value}`"
        store["name"].error("duplicate_store", message, hint="Hint: rename one of the two.")
    names.add(value)
    return value


def _store_config(kind: str, config: Part) -> StoreConfig:
    given: dict[str, Any] = {}
    embedding = config["embedding"]
    if "embedding" in config.entries and kind in ("simple", "file") and isinstance(embedding.node, Mapping):
        given["embedding"] = embedding.block(Embedding, "`embedding`")
        check_key(given["embedding"], embedding)
    if kind == "file" and "file_sources" in config.entries:
        hint = "Hint: write `file_sources: [{path: docs/}]`."
        items = config.some("file_sources", "files", "path: docs/", "at least one file or directory", hint)
        sources = [item.mapping("a file source", "`{path: docs/}`") for item in items]
        given["file_sources"] = tuple(part.block(FileSource, "a file source") for part in sources if part is not None)
    store: StoreConfig = config.block(STORES[kind], f"the `config` of a {kind} store", given=given)
    if isinstance(store, FileStore) and store.index_path is None:
        return msgspec.structs.replace(store, index_path=store.memory_path)
    return store


def check_key(model: AgentConfig | Embedding, config: Part) -> None:
    """Warn where an address is named without a key, and a key that is known stays here.

    A key of a model that the file does not name never goes to an address that the file names.
    """
    withheld = config.reading.known.withheld
    if withheld is None or not model.base_url or model.api_key or "base_url" not in config.entries:
        return
    key = withheld(model.provider, model.base_url)
    if key:
        config["base_url"].warn(
            "withheld_key",
            f"{model.base_url} is given no key: {key} goes to the provider's own address only",
            "name the key that it is to have: `api_key: ${NAME}`.",
        )
