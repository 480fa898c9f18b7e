"""Readers of nodes (except subgraphs), memory stores and edges of a graph: from a positioned tree to structs.

`read` calls `READERS` for each node's config, `read_stores` and `read_edge`. An edge's condition may have several
spellings. Regular expressions are checked here: whether Python can read them, whether they mean the intended thing, and
whether they have the group that is used.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection
from typing import Any, TypeVar, get_args

import msgspec

from ..chat import Role, models_of
from ..problems import did_you_mean
from ..tree import Mapping, Node, Scalar, Sequence, describe, plain
from .dialect import DEVALL
from .model import (
    CONDITION_FUNCTIONS,
    CONDITIONS,
    GUIDE_SPLITS,
    PROCESSOR_FUNCTIONS,
    PROCESSORS,
    SPLITS,
    STORES,
    TOOL_SOURCES,
    AgentConfig,
    Always,
    ByDelimiter,
    ByMatch,
    ByMessage,
    ByPath,
    Condition,
    Dynamic,
    Edge,
    Embedding,
    FileSource,
    FileStore,
    FunctionCondition,
    FunctionProcessor,
    HumanConfig,
    KeywordCondition,
    LiteralConfig,
    MapFields,
    MemoryUse,
    Never,
    NodeConfig,
    Processor,
    PythonConfig,
    Reflection,
    RegexCondition,
    RegexExtract,
    Retry,
    Seed,
    Skills,
    Split,
    Store,
    StoreConfig,
    Template,
    ToolEntry,
    Tooling,
    ToolSource,
    TreeFields,
)
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

_MISPLACED_OF_AGENTS = {
    "memory": "did you mean 'memories'? The stores themselves belong under `memory` of the graph.",
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
    config = _in_lower_case(config.misplaced(_MISPLACED_OF_AGENTS, what), "input_mode")
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
            hint=did_you_mean(agent.provider, known)
            or "Hint: most servers work with the provider `openai` and a `base_url`.",
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
                f"`{model}` does not name a client",
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
                part.key(key).error("misplaced_key", f"`{key}` can't be set for a whole file (`:All`)", hint=hint)
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
        config = config.misplaced({"entry_script": "it has no effect; put the code under `code:`."}, what)
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
            hint = "write `read: true`, `write: true` or both; DevAll's own engine assumes both."
            part.warn("idle_memory", f"the memory `{use.name}` is neither read nor written by this node", hint)
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
            f"{model.base_url} gets no API key: {key} is only sent to the provider's own address",
            "set its key: `api_key: ${NAME}`.",
        )


# --- edges ------------------------------------------------------------------------------------------------

G = TypeVar("G", RegexExtract, ByMatch)

_MISNAMED = {"source": "from", "target": "to"}
_MISPLACED_OF_EDGES = {
    "split": "put it under `dynamic:`.",
    "max_parallel": "put it under `config:` of `dynamic:`.",
    "group_size": "put it under `config:` of `dynamic:`.",
    "keep": "did you mean 'keep_message'?",
    "context_window": "it is a key of nodes; put it on the node this edge leads to.",
}


def read_edge(part: FileValue) -> Edge | None:
    """Return the edge; None if it is not a mapping, or one of its ends could not be read. Problems are reported."""
    found = part.mapping("an edge", "`{from: a, to: b}`")
    if found is None:
        return None
    found = _with_ends(found)
    if found.reading.dialect.guide_keys:
        found = found.renamed("processor", "process", "an edge")
    else:
        found = found.ignored({"processor": "write `process`."}, "an edge")
    found = found.misplaced(_MISPLACED_OF_EDGES, "an edge")
    edge = found.block(
        Edge,
        "an edge",
        given={
            "condition": _condition(found),
            "process": _processor(found),
            "dynamic": _dynamic(found),
            "path": found.path,
        },
        hidden=("path",),
    )
    return edge if edge.source and edge.target else None


def _with_ends(edge: FileValue) -> FileValue:
    """Return the edge with `source` and `target` renamed to `from` and `to`, the names used by the engine."""
    for wrong, right in _MISNAMED.items():
        if wrong in edge.entries and right not in edge.entries:
            edge = edge.with_entries({**edge.without(wrong).entries, right: edge.entries[wrong]})
            edge.key(right).error(
                "missing_key",
                f"missing field `{right}`: an edge needs it, and `{wrong}` is not known",
                expected=f"`{right}:` with the id of a node",
                hint=f"Hint: write `{right}` for `{wrong}`.",
            )
    return edge


# --- conditions -------------------------------------------------------------------------------------------


def _condition(edge: FileValue) -> Condition:
    part = edge.get("condition")
    if part is None:
        return Always()
    value = part.reading.boolean(part.node, part.path).value if isinstance(part.node, Scalar) else None
    if isinstance(value, bool):
        return Always() if value else Never()
    if isinstance(value, str):
        return _named(part, value)
    if not isinstance(part.node, Mapping):
        part.error(
            "wrong_type",
            f"the condition is {describe(part.node)}",
            expected="true, false, the name of a function, or a mapping with `type` and `config`",
            hint="Hint: for words in the output write `{type: keyword, config: {any: [...]}}`.",
        )
        return Always()
    block = part.typed("a condition", list(CONDITIONS) if part.reading.dialect.guide_keys else ["function", "keyword"])
    if block is None:
        return Always()
    kind, config = block
    if kind == "keyword":
        return _keyword(config)
    condition = config.block(CONDITIONS[kind], f"a {kind} condition")
    if isinstance(condition, RegexCondition) and condition.pattern:
        _check_pattern(config["pattern"])
    if isinstance(condition, FunctionCondition) and condition.name:
        return _named(config["name"], condition.name)
    return condition


def _named(part: FileValue, name: str) -> Condition:
    dialect, known = part.reading.dialect, part.reading.known.conditions
    if not name.strip():
        part.error("empty_name", "the condition is empty", hint="Hint: leave it out; true is the default.")
    if name == "true":
        return Always()
    if name == "false" and not dialect.false_is_a_name:
        return Never()
    if name == "false":
        part.warn(
            "unknown_function",
            'DevAll reads `"false"` as the name of a function, does not find it, and treats the condition as met',
            "write `condition: false`, without quotes.",
        )
    elif known is not None and name.strip() and name not in known | CONDITION_FUNCTIONS:
        near = did_you_mean(name, [*known, *CONDITION_FUNCTIONS, "false"])
        if name.lower() in ("true", "false"):
            near = f"write `{name.lower()}`."
        hint = near or "Hint: write the function, or a `keyword` condition."
        allowed = known | CONDITION_FUNCTIONS
        _no_function(part, name, "condition", "edge", allowed, "treats the condition as met", hint)
    return FunctionCondition(name=name)


def _keyword(config: FileValue) -> KeywordCondition:
    what = "a keyword condition"
    words = ["any", "none", "regex"]
    if config.reading.dialect.guide_keys:
        words.append("all")
    else:
        config = config.ignored({"all": "write one edge per word, or a pattern under `regex:`."}, what)
    condition = config.block(KeywordCondition, what)
    if not any(getattr(condition, key) for key in words) and not config.is_broken:
        config.error(
            "missing_key",
            f"{what} without words is never met",
            expected=f"a list under {', '.join(f'`{key}`' for key in words)}",
            hint="Hint: `any: [DONE]` is met if DONE is in the output, `none: [DONE]` if it is not.",
        )
    if "default" in config.entries:
        hint = "remove it; an edge with the opposite condition is the other branch."
        config.key("default").warn("unused_key", "`default` of a keyword condition has no effect", hint)
    for key in (key for key in words if key in config.entries):
        given = config[key]
        for word in given.items if given.is_list else [given]:
            if word.text == "":
                word.warn("empty_keyword", "an empty word is never found", "remove it.")
            elif key == "regex" and word.text is not None:
                _check_pattern(word)
    return condition


# --- processors -----------------------------------------------------------------------------------------


def _processor(edge: FileValue) -> Processor | None:
    part = edge.mapping_at("process", "`process: {type: regex_extract, config: {pattern: ...}}`")
    kinds = list(PROCESSORS) if edge.reading.dialect.guide_keys else ["regex_extract", "function"]
    block = part and part.typed("a processor", kinds)
    if not block:
        return None
    kind, config = block
    processor: Processor = config.block(PROCESSORS[kind], f"a {kind} processor")
    if isinstance(processor, RegexExtract) and processor.pattern:
        _check_pattern(config["pattern"])
        _check_match(processor, config)
        return _with_group(processor, config)
    if isinstance(processor, Template) and processor.template and "{{" not in processor.template:
        hint = "write {{content}} where the source's output belongs."
        config["template"].warn("fixed_template", "the template does not contain the source's output", hint)
    if isinstance(processor, FunctionProcessor) and processor.name:
        _check_processor_name(config["name"], processor.name)
    return processor


def _check_match(processor: RegexExtract, config: FileValue) -> None:
    if processor.template is not None and "{match}" not in processor.template:
        hint = "write {match}, in single braces, where it belongs."
        config["template"].warn("fixed_template", "the template does not contain the match", hint)
    if processor.default_value is not None and processor.on_no_match != "default":
        message = f"`default_value` has no effect with `on_no_match: {processor.on_no_match}`"
        config.key("default_value").warn("unused_key", message, "write `on_no_match: default` beside it.")


def _check_processor_name(part: FileValue, name: str) -> None:
    known = part.reading.known.processors
    if known is None or name in known | PROCESSOR_FUNCTIONS:
        return
    hint = did_you_mean(name, [*known, *PROCESSOR_FUNCTIONS]) or "Hint: write the function first."
    allowed = known | PROCESSOR_FUNCTIONS
    _no_function(part, name, "processor", "edge_processor", allowed, "carries the output unchanged", hint)


def _no_function(
    part: FileValue, name: str, kind: str, directory: str, allowed: Collection[str], devall: str, hint: str
) -> None:
    """Report a name that is neither a built-in function nor one of that directory; `devall` says what DevAll does."""
    passes = part.reading.dialect.unknown_functions_pass
    instead = f"; DevAll {devall}" if passes else f", and no built-in {kind} of that name"
    part.report(
        "warning" if passes else "error",
        "unknown_function",
        f"no function `{name}` in functions/{directory}{instead}",
        expected=f"one of {', '.join(sorted(allowed))}",
        hint=hint,
    )


# --- map and tree -----------------------------------------------------------------------------------------

_GUIDE_ONLY = {
    "split_type": "write `split: {type: message | regex | json_path, config: {...}}` beside `config`; without it every "
    "message is one unit.",
    "item_name": "remove it; the unit is a message, and roles are not templates.",
    "pattern": "write `split: {type: regex, config: {pattern: ...}}` beside `config`.",
}


def _dynamic(edge: FileValue) -> Dynamic | None:
    part = edge.mapping_at("dynamic", "`dynamic: {type: map}`")
    block = part and part.typed("`dynamic`", ("map", "tree"), also=("split",), needs_config=False)
    if part is None or not block:
        return None
    kind, config = block
    split = _split(part)
    if not edge.reading.dialect.guide_keys:
        config = config.ignored(_GUIDE_ONLY, "`dynamic`")
    fields: MapFields = config.block(
        TreeFields if kind == "tree" else MapFields,
        f"the `config` of a {kind}",
        elsewhere={"group_size": "the `config` of a tree", "split": "`dynamic`, beside `config`"},
    )
    if fields.split_type is not None and split is not None:
        config["split_type"].warn("unused_key", "`split_type` has no effect beside `split`", "remove one of the two.")
    elif fields.split_type is not None:
        split = _guide_split(fields, config)
    if fields.pattern is not None and fields.split_type != "regex":
        hint = "write `split_type: regex` beside it, or put it under `config:` of `split:`."
        config["pattern"].warn("unused_key", "`pattern` has no effect without `split_type: regex`", hint)
    return Dynamic(
        type="tree" if kind == "tree" else "map",
        split=split or ByMessage(),
        max_parallel=fields.max_parallel,
        group_size=fields.group_size if isinstance(fields, TreeFields) else 3,
        item_name=fields.item_name,
    )


def _split(dynamic: FileValue) -> Split | None:
    part = dynamic.mapping_at("split", "`split: {type: regex, config: {pattern: ...}}`")
    if part is None:
        return None
    kinds = list(SPLITS) if part.reading.dialect.guide_keys else ["message", "regex", "json_path"]
    needs_config = part["type"].text in ("regex", "json_path")
    block = part.typed("a split", kinds, needs_config=needs_config, default="message")
    if block is None:
        return None
    kind, config = block
    split: Split = config.block(SPLITS[kind], f"a {kind} split")
    if isinstance(split, ByMatch) and split.pattern:
        _check_pattern(config["pattern"])
        return _with_group(split, config)
    if isinstance(split, ByPath) and split.json_path.startswith("$"):
        config["json_path"].warn(
            "not_jsonpath",
            "`json_path` is a dotted path, and no key is called `$`; nothing will be found",
            'write `data.items` for `$.data.items[*]`, and "" for the whole list.',
        )
    return split


def _guide_split(fields: MapFields, config: FileValue) -> Split:
    kind = fields.split_type
    assert kind is not None
    if kind != "regex":
        return GUIDE_SPLITS[kind]()  # type: ignore[call-arg] # these want nothing
    if fields.pattern:
        _check_pattern(config["pattern"])
        return ByDelimiter(pattern=fields.pattern)
    lacking = config["pattern"]
    lacking.place = config.key("split_type").place
    lacking.error(
        "missing_key",
        "missing field `pattern`: `split_type: regex` needs it",
        expected="`pattern:` with what stands between two units",
        hint='Hint: write `pattern: "\\n---\\n"` beside it.',
    )
    return ByMessage()


# --- patterns -------------------------------------------------------------------------------------------


def _check_pattern(part: FileValue) -> None:
    """Report a regular expression that Python can't read."""
    pattern = part.text or ""
    try:
        _compiled(pattern)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        part.error(
            "bad_pattern",
            f"the pattern can't be read: {error}",
            expected="a regular expression of Python",
            hint="Hint: put a backslash before what is meant literally: `\\(`, `\\[`, `\\*`; in single quotes YAML "
            "leaves it alone.",
        )
        return
    # DevAll's own demo_dynamic_tree.yaml has this mistake: its pattern matches once, so its node never runs.
    if found := re.search(r"\\\\([sSdDwWbBnt])", pattern):
        part.warn(
            "escaped_twice",
            f"`\\\\{found[1]}` matches a backslash and the letter {found[1]}",
            f"write `\\{found[1]}`: without quotes or in single quotes, YAML does not change backslashes.",
        )


def _with_group(block: G, config: FileValue) -> G:
    """Return the block with `group: "1"` as a number; report a group that the pattern lacks."""
    group = block.group
    # DevAll takes digits for a number. `isdigit` alone also accepts digits of other scripts.
    if isinstance(group, str) and group.isascii() and group.isdigit():
        group = int(group)
        block = msgspec.structs.replace(block, group=group)
    if group is None or config["pattern"].is_broken:
        return block
    pattern = _compiled(block.pattern)
    there = group in pattern.groupindex if isinstance(group, str) else 0 <= group <= pattern.groups
    if not there:
        names = [str(i) for i in range(1, pattern.groups + 1)] + list(pattern.groupindex)
        carried = isinstance(block, RegexExtract)
        config["group"].report(
            # DevAll carries the output unchanged if the group of an extract is missing, so the workflow still runs.
            "warning" if carried else "error",
            "unknown_group",
            f"the pattern has no group {group}" + ("; the output is carried unchanged" if carried else ""),
            expected=f"one of {', '.join(names)}" if names else "no `group`; the pattern has none",
            hint="Hint: put brackets around what is meant: `RESULT: (.*)`.",
        )
    return block


def _compiled(pattern: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(pattern)
