"""Reads what the nodes of a graph do, subgraphs aside."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from ...problems import did_you_mean
from ...source import Mapping, Node, Path, Scalar, Sequence, describe, plain
from ..agents import (
    TOOL_SOURCES,
    Reflection,
    Retry,
    Skills,
    ToolEntry,
    Tooling,
    ToolSource,
)
from ..model import AgentConfig, HumanConfig, LiteralConfig, NodeConfig, PythonConfig, Role, Seed
from .keys import check_key
from .memories import read_memories
from .reading import WorkflowReading, is_null, with_value

ALL = ":All"
"""What a tool's name ends with that stands for a whole file."""


def read_config(reading: WorkflowReading, kind: str, config: Mapping, path: Path) -> NodeConfig:
    """The `config` of a node of one of the types that need more than their struct says."""
    if kind == "agent":
        return _agent(reading, config, path)
    if kind == "human":
        return _human(reading, config, path)
    if kind == "python":
        return _python(reading, config, path)
    return _literal(reading, config, path)


# --- agents -----------------------------------------------------------------------------------------------


def _agent(reading: WorkflowReading, config: Mapping, path: Path) -> AgentConfig:
    what = "the `config` of an agent"
    config = reading.misplaced(
        config,
        path,
        {
            "memory": "did you mean 'memories'? The stores themselves stand under `memory` of the graph.",
            "tools": "did you mean 'tooling'? Write `tooling: [{type: function, config: {tools: [{name: ...}]}}]`.",
            "model": "did you mean 'name'?",
            "system_prompt": "did you mean 'role'?",
            "prompt": "did you mean 'role'?",
            "temperature": "put it under `params:`.",
            "max_tokens": "put it under `params:`.",
            "top_p": "put it under `params:`.",
            "context_window": "it is a key of the node; put it beside `config`.",
        },
        what,
    )
    mode = config.entries.get("input_mode")
    if mode is not None and isinstance(mode.value, Scalar) and isinstance(mode.value.value, str):
        plainly = mode.value.value.strip().lower()
        config = with_value(config, "input_mode", msgspec.structs.replace(mode.value, value=plainly))
    agent = reading.block(
        AgentConfig,
        config,
        path,
        what=what,
        given={
            "tooling": _tooling(reading, config, path),
            "thinking": _thinking(reading, config, path),
            "memories": read_memories(reading, config, path),
            "skills": _skills(reading, config, path),
            "retry": _retry(reading, config, path),
        },
        elsewhere={"on_error": "the node, beside `config`", "description": "the node, beside `config`"},
    )
    known = reading.known.providers
    if known is not None and agent.provider and agent.provider not in known and not agent.base_url:
        reading.report(
            "error",
            "unknown_provider",
            f"no provider `{agent.provider}`",
            (*path, "provider"),
            config.entries["provider"].value,
            expected=f"one of {', '.join(sorted(known))}",
            hint=did_you_mean(agent.provider, known) or "Hint: `openai` with a `base_url` speaks to most servers.",
        )
    check_key(reading, agent, config, path)
    return msgspec.structs.replace(agent, name=agent.name.strip())


def _tooling(reading: WorkflowReading, config: Mapping, path: Path) -> tuple[Tooling, ...]:
    example = "{type: function, config: {tools: [{name: ...}]}}"
    found = []
    for node, at in reading.items(config, "tooling", path, "tool sources", "type: function"):
        mapping = reading.mapping(node, at, "an entry of `tooling`", f"`{example}`")
        if mapping is None:
            continue
        block = reading.typed(mapping, at, what="an entry of `tooling`", kinds=TOOL_SOURCES, also=("prefix",))
        if block is None:
            continue
        kind, inner, inner_path = block
        prefix = mapping.entries.get("prefix")
        text = prefix.value.value if prefix is not None and isinstance(prefix.value, Scalar) else None
        if prefix is not None and not is_null(prefix.value) and not isinstance(text, str):
            reading.report(
                "error",
                "wrong_type",
                f"the prefix is {describe(prefix.value)}",
                (*at, "prefix"),
                prefix.value,
                expected="text",
                hint="Hint: put quotes around it.",
            )
            text = None
        what = f"the `config` of {kind} tooling"
        given: dict[str, Any] = {}
        if kind == "function" and "tools" in inner.entries:
            given["tools"] = _tools(reading, inner, inner_path)
        elif kind == "mcp_local" and "url" in inner.entries:
            inner = reading.misplaced(inner, inner_path, {"url": "write `type: mcp_remote` and `server:`."}, what)
        source: ToolSource = reading.block(TOOL_SOURCES[kind], inner, inner_path, what=what, given=given)
        found.append(Tooling(config=source, prefix=text or None, path=at))
    return tuple(found)


def _tools(reading: WorkflowReading, config: Mapping, path: Path) -> tuple[ToolEntry, ...]:
    entry = config.entries["tools"]
    if isinstance(entry.value, Mapping):
        items: list[tuple[Node, Path]] = [(entry.value, (*path, "tools"))]
    else:
        items = reading.items(config, "tools", path, "functions", "name: get_weather")
        if not items and (*path, "tools") not in reading.broken:
            reading.report(
                "error",
                "missing_key",
                "`tools` is empty",
                (*path, "tools"),
                (entry.line, entry.column),
                expected="at least one function",
                hint="Hint: write `tools: [{name: get_weather}]`, or remove the entry of `tooling`.",
            )
    tools: list[ToolEntry] = []
    seen: set[str] = set()
    for node, at in items:
        text = node.value if isinstance(node, Scalar) else None
        mapping = reading.mapping(node, at, "a tool", f"`- name: {text}`" if isinstance(text, str) else "`- name: ...`")
        if mapping is None:
            continue
        tool = reading.block(ToolEntry, mapping, at, what="a tool")
        name = tool.name.strip()
        if not name:
            continue
        where = mapping.entries["name"].value
        _check_tool(reading, name, mapping, where, at)
        for each in _functions_of(reading, name):
            if each in seen:
                reading.report(
                    "error",
                    "duplicate_tool",
                    f"the function `{each}` is listed twice",
                    (*at, "name"),
                    where,
                    hint="Hint: remove one of the two.",
                )
            seen.add(each)
        tools.append(msgspec.structs.replace(tool, name=name))
    return tuple(tools)


def _functions_of(reading: WorkflowReading, name: str) -> frozenset[str]:
    if not name.endswith(ALL):
        return frozenset({name})
    return (reading.known.tools or {}).get(name.removesuffix(ALL).strip(), frozenset())


def _check_tool(reading: WorkflowReading, name: str, tool: Mapping, at: Node, path: Path) -> None:
    known = reading.known.tools
    if name.endswith(ALL):
        for key in ("description", "parameters", "auto_fill"):
            if key in tool.entries:
                entry = tool.entries[key]
                reading.report(
                    "error",
                    "misplaced_key",
                    f"`{key}` can't be said of a whole file",
                    (*path, key),
                    (entry.line, entry.column),
                    hint="Hint: remove it, or list the file's functions one by one.",
                )
        names = [f"{module}{ALL}" for module in known] if known is not None else []
        there = known is None or bool(known.get(name.removesuffix(ALL).strip()))
    else:
        names = [function for module in known.values() for function in module] if known is not None else []
        there = known is None or name in names
    if not there:
        reading.report(
            "error",
            "unknown_function",
            f"no tool `{name}` in functions/function_calling",
            (*path, "name"),
            at,
            expected="a function of a file there, or `file:All`",
            hint=did_you_mean(name, names) or "Hint: write the function first.",
        )


def _thinking(reading: WorkflowReading, config: Mapping, path: Path) -> Reflection | None:
    entry = config.entries.get("thinking")
    if entry is None or is_null(entry.value):
        return None
    path = (*path, "thinking")
    example = "`{type: reflection, config: {reflection_prompt: ...}}`"
    mapping = reading.mapping(entry.value, path, "`thinking`", example)
    block = mapping and reading.typed(mapping, path, what="`thinking`", kinds=("reflection",))
    if not block:
        return None
    return reading.block(Reflection, block[1], block[2], what="the `config` of a reflection")


def _skills(reading: WorkflowReading, config: Mapping, path: Path) -> Skills | None:
    entry = config.entries.get("skills")
    if entry is None or is_null(entry.value):
        return None
    path = (*path, "skills")
    mapping = reading.mapping(entry.value, path, "`skills`", "`{enabled: true, allow: [name]}`")
    if mapping is None:
        return None
    allowed = mapping.entries.get("allow")
    if allowed is not None and isinstance(allowed.value, Sequence):
        items = [_name_of(item) for item in allowed.value.items]
        mapping = with_value(mapping, "allow", Sequence(items, allowed.value.line, allowed.value.column))
    return reading.block(Skills, mapping, path, what="`skills`")


def _name_of(item: Node) -> Node:
    """A skill's name, also of `{name: ...}`."""
    if isinstance(item, Mapping) and list(item.entries) == ["name"]:
        return item.entries["name"].value
    return item


def _retry(reading: WorkflowReading, config: Mapping, path: Path) -> Retry:
    entry = config.entries.get("retry")
    if entry is None or is_null(entry.value):
        return Retry()
    path = (*path, "retry")
    mapping = reading.mapping(entry.value, path, "`retry`", "`{max_attempts: 3}`")
    if mapping is None:
        return Retry()
    retry = reading.block(Retry, mapping, path, what="`retry`")
    if retry.max_wait_seconds < retry.min_wait_seconds:
        key = "max_wait_seconds" if "max_wait_seconds" in mapping.entries else "min_wait_seconds"
        reading.report(
            "error",
            "out_of_range",
            f"the longest wait is {retry.max_wait_seconds:g} s and the shortest {retry.min_wait_seconds:g} s",
            (*path, key),
            mapping.entries[key].value,
            expected="`max_wait_seconds` of at least `min_wait_seconds`",
            hint="Hint: the defaults are 1 and 6.",
        )
    return retry


# --- people, literals, Python -----------------------------------------------------------------------------


def _human(reading: WorkflowReading, config: Mapping, path: Path) -> HumanConfig:
    what = "the `config` of a human node"
    if not reading.dialect.guide_keys:
        hint = "attach them to an agent; remove them here."
        config = reading.ignored(config, path, {"memories": hint}, what)
    memories = read_memories(reading, config, path)
    return reading.block(HumanConfig, config, path, what=what, given={"memories": memories})


def _literal(reading: WorkflowReading, config: Mapping, path: Path) -> LiteralConfig:
    role = config.entries.get("role")
    if role is not None and isinstance(role.value, Scalar) and isinstance(role.value.value, str):
        plainly = role.value.value.strip().lower()
        config = with_value(config, "role", msgspec.structs.replace(role.value, value=plainly))
    literal = reading.block(LiteralConfig, config, path, what="the `config` of a literal")
    if literal.role == "system" and not reading.dialect.guide_keys:
        reading.report(
            "error",
            "unknown_value",
            "a literal of role system, which `compat: devall` lacks",
            (*path, "role"),
            config.entries["role"].value,
            expected="one of user, assistant",
            hint="Hint: write `role: user`, or remove `compat: devall`.",
        )
    return literal


def _python(reading: WorkflowReading, config: Mapping, path: Path) -> PythonConfig:
    what = "the `config` of a python node"
    if reading.dialect.guide_keys:
        if "inline_code" in config.entries and "code" not in config.entries:
            config = with_value(config, "code", config.entries["inline_code"].value)
            config = Mapping(
                {k: e for k, e in config.entries.items() if k != "inline_code"}, config.line, config.column
            )
        hint = "nothing reads it; put the code under `code:`."
        config = reading.misplaced(config, path, {"entry_script": hint}, what)
    else:
        hint = "put the code, in a fence of three backticks, into a literal before this node."
        config = reading.ignored(config, path, dict.fromkeys(("code", "inline_code", "entry_script"), hint), what)
    args = config.entries.get("args")
    if args is not None and isinstance(args.value, Scalar) and not is_null(args.value):
        config = with_value(config, "args", Sequence([args.value], args.value.line, args.value.column))
    hint = "did you mean 'timeout_seconds'?"
    config = reading.misplaced(config, path, {"timeout": hint, "timeout_second": hint}, what)
    return reading.block(PythonConfig, config, path, what=what)


# --- seeds ------------------------------------------------------------------------------------------------


def read_seeds(reading: WorkflowReading, node: Mapping, key: str, path: Path, role: Role) -> tuple[Seed, ...]:
    """The messages under `input` or `output` of a node; `role` is that of a bare text."""
    entry = node.entries.get(key)
    if entry is None or is_null(entry.value):
        return ()
    items = entry.value.items if isinstance(entry.value, Sequence) else [entry.value]
    seeds = []
    for i, item in enumerate(items):
        at = (*path, key, i)
        if not (isinstance(item, Mapping) and "role" in item.entries):
            seeds.append(Seed(role=role, content=str(plain(item))))
            continue
        found = plain(item.entries["role"].value)
        if found not in get_args(Role):
            reading.report(
                "error",
                "unknown_value",
                f"the role of a message is {describe(item.entries['role'].value)}",
                (*at, "role"),
                item.entries["role"].value,
                expected=f"one of {', '.join(get_args(Role))}",
                hint="Hint: write `role: user`.",
            )
            continue
        content = plain(item.entries["content"].value) if "content" in item.entries else None
        seeds.append(Seed(role=found, content=_content(content)))
    return tuple(seeds)


def _content(value: Any) -> str:
    """A message's text; of a list of blocks, that of those which have one."""
    if isinstance(value, list):
        texts = [block.get("text") if isinstance(block, dict) else str(block) for block in value]
        return "\n".join(str(text) for text in texts if text)
    return "" if value is None else str(value)
