"""Reader for the nodes of a graph, except subgraphs, and for the memory stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import msgspec

from ...chat import Role, models_of
from ...problems import did_you_mean
from ...tree import Mapping, Node, Scalar, Sequence, describe, plain
from ..agents import (
    STORES,
    TOOL_SOURCES,
    Embedding,
    FileSource,
    FileStore,
    MemoryUse,
    Reflection,
    Retry,
    Skills,
    Store,
    StoreConfig,
    ToolEntry,
    Tooling,
    ToolSource,
)
from ..dialect import DEVALL
from ..model import AgentConfig, HumanConfig, LiteralConfig, NodeConfig, PythonConfig, Seed
from .reading import FileValue

ALL = ":All"
"""Ending of a tool name that selects every function of a file."""


def _in_lower_case(config: FileValue, key: str) -> FileValue:
    """Return the config with a word in lower case and without blanks around it, as DevAll reads it."""
    value = config[key].node
    if key not in config.entries or not isinstance(value, Scalar) or not isinstance(value.value, str):
        return config
    return config.with_value(key, msgspec.structs.replace(value, value=value.value.strip().lower()))


# --- agents -----------------------------------------------------------------------------------------------

_MISPLACED = {
    "memory": "did you mean 'memories'? The stores themselves stand under `memory` of the graph.",
    "tools": "did you mean 'tooling'? Write `tooling: [{type: function, config: {tools: [{name: ...}]}}]`.",
    "model": "did you mean 'name'?",
    "system_prompt": "did you mean 'role'?",
    "prompt": "did you mean 'role'?",
    "temperature": "put it under `params:`.",
    "max_tokens": "put it under `params:`.",
    "top_p": "put it under `params:`.",
    "context_window": "it is a key of the node; put it beside `config`.",
}


def _agent(config: FileValue) -> AgentConfig:
    what = "the `config` of an agent"
    config = _in_lower_case(config.misplaced(_MISPLACED, what), "input_mode")
    agent = config.block(
        AgentConfig,
        what,
        given={
            "tooling": _tooling(config),
            "thinking": _thinking(config),
            "memories": _memories(config),
            "skills": _skills(config),
            "retry": _retry(config),
        },
        elsewhere={"on_error": "the node, beside `config`", "description": "the node, beside `config`"},
    )
    known = config.reading.known.providers
    if known is not None and agent.provider and agent.provider not in known and not agent.base_url:
        config["provider"].error(
            "unknown_provider",
            f"no provider `{agent.provider}`",
            expected=f"one of {', '.join(sorted(known))}",
            hint=did_you_mean(agent.provider, known) or "Hint: `openai` with a `base_url` speaks to most servers.",
        )
    if agent.fallback_models:
        _check_fallbacks(models_of(agent.fallback_models), config)
    _check_key(agent, config)
    return msgspec.structs.replace(agent, name=agent.name.strip())


def _check_fallbacks(models: tuple[str, ...], config: FileValue) -> None:
    known = None if config.reading.known.providers is None else config.reading.known.providers - {"callboard"}
    for model in models:
        client, _, name = model.partition(":")
        if not client or not name:
            config["fallback_models"].error(
                "unknown_model",
                f"`{model}` does not say whose model it is",
                expected="`client:model`, or a list of such",
                hint="Hint: write `openai:gpt-4o-mini`.",
            )
        elif known is not None and client not in known:
            config["fallback_models"].error(
                "unknown_provider",
                f"no provider `{client}`",
                expected=f"one of {', '.join(sorted(known))} before the colon",
                hint=did_you_mean(client, known) or "Hint: make it a client of config.yaml.",
            )


def _tooling(config: FileValue) -> tuple[Tooling, ...]:
    found = []
    for item in config.each("tooling", "tool sources", "type: function"):
        part = item.mapping("an entry of `tooling`", "`{type: function, config: {tools: [{name: ...}]}}`")
        block = part and part.typed("an entry of `tooling`", TOOL_SOURCES, also=("prefix",))
        if not block:
            continue
        kind, inner = block
        prefix = item.get("prefix")
        if prefix is not None and prefix.text is None:
            message, hint = f"the prefix is {describe(prefix.node)}", "Hint: put quotes around it."
            prefix.error("wrong_type", message, expected="text", hint=hint)
        what = f"the `config` of {kind} tooling"
        given: dict[str, Any] = {}
        if kind == "function" and "tools" in inner.entries:
            given["tools"] = _tools(inner)
        elif kind == "mcp_local" and "url" in inner.entries:
            inner = inner.misplaced({"url": "write `type: mcp_remote` and `server:`."}, what)
        source: ToolSource = inner.block(TOOL_SOURCES[kind], what, given=given)
        found.append(Tooling(config=source, prefix=(prefix and prefix.text) or None, path=item.path))
    return tuple(found)


def _tools(config: FileValue) -> tuple[ToolEntry, ...]:
    hint = "Hint: write `tools: [{name: get_weather}]`, or remove the entry of `tooling`."
    tools: list[ToolEntry] = []
    seen: set[str] = set()
    for item in config.some("tools", "functions", "name: get_weather", "at least one function", hint):
        part = item.mapping("a tool", "`- name: ...`" if item.text is None else f"`- name: {item.text}`")
        if part is None:
            continue
        tool = part.block(ToolEntry, "a tool")
        name = tool.name.strip()
        if not name:
            continue
        _check_tool(name, part)
        for each in _functions_of(name, part):
            if each in seen:
                message = f"the function `{each}` is listed twice"
                part["name"].error("duplicate_tool", message, hint="Hint: remove one of the two.")
            seen.add(each)
        tools.append(msgspec.structs.replace(tool, name=name))
    return tuple(tools)


def _functions_of(name: str, part: FileValue) -> frozenset[str]:
    if not name.endswith(ALL):
        return frozenset({name})
    return (part.reading.known.tools or {}).get(name.removesuffix(ALL).strip(), frozenset())


def _check_tool(name: str, part: FileValue) -> None:
    known = part.reading.known.tools
    if name.endswith(ALL):
        for key in ("description", "parameters", "auto_fill"):
            if key in part.entries:
                hint = "Hint: remove it, or list the file's functions one by one."
                part.key(key).error("misplaced_key", f"`{key}` can't be said of a whole file", hint=hint)
        names = [f"{module}{ALL}" for module in known or ()]
        there = bool(_functions_of(name, part))
    else:
        names = [function for module in (known or {}).values() for function in module]
        there = name in names
    if known is not None and not there:
        part["name"].error(
            "unknown_function",
            f"no tool `{name}` in functions/function_calling",
            expected="a function of a file there, or `file:All`",
            hint=did_you_mean(name, names) or "Hint: write the function first.",
        )


def _thinking(config: FileValue) -> Reflection | None:
    part = config.mapping_at("thinking", "`{type: reflection, config: {reflection_prompt: ...}}`")
    block = part and part.typed("`thinking`", ("reflection",))
    return block[1].block(Reflection, "the `config` of a reflection") if block else None


def _skills(config: FileValue) -> Skills | None:
    part = config.mapping_at("skills", "`{enabled: true, allow: [name]}`")
    if part is None:
        return None
    allowed = part["allow"]
    if "allow" in part.entries and allowed.is_list:
        # A skill's name may be written as `{name: ...}`.
        names = [item["name"].node if list(item.entries) == ["name"] else item.node for item in allowed.items]
        part = part.with_value("allow", Sequence(names, allowed.node.line, allowed.node.column))
    return part.block(Skills, "`skills`")


def _retry(config: FileValue) -> Retry:
    part = config.mapping_at("retry", "`{max_attempts: 3}`")
    if part is None:
        return Retry()
    retry = part.block(Retry, "`retry`")
    if retry.max_wait_seconds < retry.min_wait_seconds:
        key = "max_wait_seconds" if "max_wait_seconds" in part.entries else "min_wait_seconds"
        part[key].error(
            "out_of_range",
            f"the longest wait is {retry.max_wait_seconds:g} s and the shortest {retry.min_wait_seconds:g} s",
            expected="`max_wait_seconds` of at least `min_wait_seconds`",
            hint="Hint: the defaults are 1 and 6.",
        )
    return retry


# --- people, literals, Python -----------------------------------------------------------------------------


def _human(config: FileValue) -> HumanConfig:
    what = "the `config` of a human node"
    if not config.reading.dialect.guide_keys:
        config = config.ignored({"memories": "attach them to an agent; remove them here."}, what)
    return config.block(HumanConfig, what, given={"memories": _memories(config)})


def _literal(config: FileValue) -> LiteralConfig:
    literal = _in_lower_case(config, "role").block(LiteralConfig, "the `config` of a literal")
    if literal.role == "system" and not config.reading.dialect.guide_keys:
        config["role"].error(
            "unknown_value",
            "a literal of role system, which `compat: devall` lacks",
            expected="one of user, assistant",
            hint="Hint: write `role: user`, or remove `compat: devall`.",
        )
    return literal


def _python(config: FileValue) -> PythonConfig:
    what = "the `config` of a python node"
    if config.reading.dialect.guide_keys:
        # The name in DevAll's documents, which its program does not read.
        if "inline_code" in config.entries and "code" not in config.entries:
            config = config.with_value("code", config["inline_code"].node).without("inline_code")
        config = config.misplaced({"entry_script": "nothing reads it; put the code under `code:`."}, what)
    else:
        hint = "put the code, in a fence of three backticks, into a literal before this node."
        config = config.ignored(dict.fromkeys(("code", "inline_code", "entry_script"), hint), what)
    args = config.get("args")
    if args is not None and isinstance(args.node, Scalar):
        config = config.with_value("args", Sequence([args.node], args.node.line, args.node.column))
    hint = "did you mean 'timeout_seconds'?"
    return config.misplaced({"timeout": hint, "timeout_second": hint}, what).block(PythonConfig, what)


READERS: dict[str, Callable[[FileValue], NodeConfig]] = {
    "agent": _agent,
    "human": _human,
    "literal": _literal,
    "python": _python,
}
"""Readers for the `config` of node types with rules that their struct can't express."""


# --- seeds ------------------------------------------------------------------------------------------------


def read_seeds(node: FileValue, key: str, role: Role) -> tuple[Seed, ...]:
    """Return the messages under `input` or `output` of a node; a bare text gets the role `role`."""
    found = node.get(key)
    if found is None:
        return ()
    seeds = []
    for i, item in enumerate(found.items if found.is_list else [found]):
        item.path = (*found.path, i)
        if not (isinstance(item.node, Mapping) and "role" in item.entries):
            seeds.append(Seed(role=role, content=str(plain(item.node))))
            continue
        said = plain(item["role"].node)
        if said not in get_args(Role):
            item["role"].error(
                "unknown_value",
                f"the role of a message is {describe(item['role'].node)}",
                expected=f"one of {', '.join(get_args(Role))}",
                hint="Hint: write `role: user`.",
            )
            continue
        content = plain(item["content"].node) if "content" in item.entries else None
        seeds.append(Seed(role=said, content=_content(content)))
    return tuple(seeds)


def _content(value: Any) -> str:
    if isinstance(value, list):
        texts = [block.get("text") if isinstance(block, dict) else str(block) for block in value]
        return "\n".join(str(text) for text in texts if text)
    return "" if value is None else str(value)


# --- memories -------------------------------------------------------------------------------------------


def _memories(config: FileValue) -> tuple[MemoryUse, ...]:
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


def _defaults(use: FileValue) -> dict[str, Any]:
    dialect = use.reading.dialect
    if dialect.silent_memories_work and {"read", "write"}.isdisjoint(use.entries):
        dialect = DEVALL
    return {
        "top_k": dialect.top_k,
        "similarity_threshold": dialect.threshold,
        "read": dialect.reads_by_default,
        "write": dialect.writes_by_default,
    }


def _with_stages(use: FileValue) -> FileValue:
    """Return the entry with the guide's `post_gen` replaced by its presumed meaning."""
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


def read_stores(graph: FileValue) -> tuple[tuple[Store, ...], frozenset[str]]:
    """Return the graph's stores, and the names of all stores, including unreadable ones."""
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


def _store_name(store: FileValue, names: set[str]) -> str:
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


def _store_config(kind: str, config: FileValue) -> StoreConfig:
    given: dict[str, Any] = {}
    embedding = config["embedding"]
    if "embedding" in config.entries and kind in ("simple", "file") and isinstance(embedding.node, Mapping):
        given["embedding"] = embedding.block(Embedding, "`embedding`")
        _check_key(given["embedding"], embedding)
    if kind == "file" and "file_sources" in config.entries:
        hint = "Hint: write `file_sources: [{path: docs/}]`."
        items = config.some("file_sources", "files", "path: docs/", "at least one file or directory", hint)
        sources = [item.mapping("a file source", "`{path: docs/}`") for item in items]
        given["file_sources"] = tuple(part.block(FileSource, "a file source") for part in sources if part is not None)
    store: StoreConfig = config.block(STORES[kind], f"the `config` of a {kind} store", given=given)
    if isinstance(store, FileStore) and store.index_path is None:
        return msgspec.structs.replace(store, index_path=store.memory_path)
    return store


def _check_key(model: AgentConfig | Embedding, config: FileValue) -> None:
    """Warn of a key that is withheld because the file names an address without a key.

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
