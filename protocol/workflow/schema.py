"""JSON Schema of workflow files, for editors: made from the structs, so the two can't differ.

The schema describes the dialect `standard`. Every value except a text may also be one reference, `${NAME}`. The
schema can't check the value of a reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..schema import Schema, as_read, by_type
from .model import (
    CONDITIONS,
    NODE_TYPES,
    PROCESSORS,
    SPLITS,
    STORES,
    TOOL_SOURCES,
    EdgeFields,
    Embedding,
    FileSource,
    GraphFields,
    MapFields,
    MemoryUse,
    NodeFields,
    Reflection,
    Retry,
    Seed,
    Skills,
    SubgraphConfig,
    ToolEntry,
    TreeFields,
    WorkflowFields,
)

_REFERENCE = {"type": "string", "pattern": r"^\s*\$\{[A-Za-z0-9_]+\}\s*$"}
_NUMBER = {"type": "string", "pattern": r"^\s*[-+]?[0-9]+(\.[0-9]+)?\s*$"}

_PLAIN: tuple[type[msgspec.Struct], ...] = (
    *(cls for cls in NODE_TYPES.values() if cls is not SubgraphConfig),
    *TOOL_SOURCES.values(),
    *STORES.values(),
    *CONDITIONS.values(),
    *PROCESSORS.values(),
    *SPLITS.values(),
    *(Embedding, FileSource, MapFields, MemoryUse, Reflection, Retry, Skills, ToolEntry, TreeFields),
    *(EdgeFields, GraphFields, NodeFields, WorkflowFields, Seed),
)


def workflow_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a workflow file.

    A file may point to it in its first line: `# yaml-language-server: $schema=./workflow.schema.json`.
    """
    _, components = msgspec.json.schema_components(list(_PLAIN), ref_template="#/$defs/{name}")
    parts = {cls.__name__: _part(components[cls.__name__]) for cls in _PLAIN}
    _join(parts)
    top = parts.pop("WorkflowFields")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **top,
        "title": "Callboard workflow (DevAll)",
        "$defs": parts,
    }


def _part(schema: Schema) -> Schema:
    properties = dict(schema.get("properties", {}))
    required = [key for key in schema.get("required", []) if not _is_tag(key, properties)]
    kept = {key: _loosened(value) for key, value in properties.items() if not _is_tag(key, properties)}
    part = {key: value for key, value in schema.items() if key not in ("required", "properties")}
    return as_read({**part, "properties": kept, **({"required": required} if required else {})})


def _is_tag(key: str, properties: Mapping[str, Schema]) -> bool:
    """Return whether a property is absent from files: the tag of a struct, or its position."""
    schema = properties[key]
    return "default" in schema if key == "path" else key == "type" and len(schema.get("enum", ())) == 1


def _loosened(schema: Schema) -> Schema:
    schema = dict(schema)
    about: Schema = {key: schema.pop(key) for key in ("description", "default", "title") if key in schema}
    if schema.pop("x-as-text", False):
        schema = {"type": ["string", "number", "boolean"]}
    many, loose = schema.pop("x-one-or-many", False), schema.pop("x-loose", False)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            schema[key] = _loosened(schema[key])
    choices = [_loosened(choice) for choice in schema["anyOf"]] if "anyOf" in schema else [schema]
    if many:
        choices.append({"type": "string"})
    if loose:
        choices.append(_NUMBER)
    if not any(choice.get("type") == "string" and len(choice) == 1 for choice in choices) and choices != [{}]:
        choices.append(_REFERENCE)
    return {**about, **(choices[0] if len(choices) == 1 else {"anyOf": choices})}


def _join(parts: dict[str, Schema]) -> None:
    """Insert the blocks of a `type` and a `config` at their places, and the graph into itself."""
    parts["Condition"] = {
        "description": "Condition under which the edge is taken.",
        "anyOf": [{"type": ["boolean", "string", "null"]}, _typed(CONDITIONS)],
    }
    parts["Processor"] = _typed(PROCESSORS)
    parts["Split"] = _typed(SPLITS, needs=("regex", "json_path"), default="message")
    parts["Dynamic"] = _typed({"map": MapFields, "tree": TreeFields}, also={"split": _maybe("Split")}, needs=())
    parts["Tooling"] = _typed(TOOL_SOURCES, also={"prefix": {"type": ["string", "null"]}})
    parts["Thinking"] = _typed({"reflection": Reflection})
    parts["Store"] = _typed(
        STORES, also={"name": {"type": "string", "minLength": 1}}, needs=("file", "mem0"), required=("name",)
    )
    edge = parts["EdgeFields"]["properties"]
    edge.update(condition=_ref("Condition"), process=_maybe("Processor"), processor=_maybe("Processor"))
    edge["dynamic"] = _maybe("Dynamic")
    agent = parts["AgentConfig"]["properties"]
    agent.update(tooling=_list("Tooling"), thinking=_maybe("Thinking"), memories=_list("MemoryUse"))
    agent.update(skills=_maybe("Skills"), retry=_maybe("Retry"))
    named = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    parts["Skills"]["properties"]["allow"] = {
        "type": ["array", "null"],
        "items": {"anyOf": [{"type": "string"}, {**named, "additionalProperties": False}]},
    }
    parts["HumanConfig"]["properties"]["memories"] = _list("MemoryUse")
    parts["PythonConfig"]["properties"]["inline_code"] = {"type": ["string", "null"]}
    for name in ("SimpleStore", "FileStore"):
        parts[name]["properties"]["embedding"] = _maybe("Embedding")
    parts["Graph"] = graph = parts.pop("GraphFields")
    several = {"anyOf": [{"type": ["string", "null"]}, {"type": "array", "items": {"type": "string"}}]}
    graph["properties"].update(
        nodes={"type": "array", "items": _ref("Node"), "minItems": 1},
        edges={**_list("Edge"), "description": "What leads where."},
        memory=_list("Store"),
        start={**several, "description": "Nodes that receive the task."},
        end={**several, "description": "Nodes whose output is the result; the first with an output counts."},
    )
    graph["required"] = ["nodes"]
    parts["Edge"] = parts.pop("EdgeFields")
    parts["SubgraphConfig"] = _subgraph()
    parts["Node"] = _node(parts.pop("NodeFields"))
    workflow = parts["WorkflowFields"]
    workflow["properties"]["graph"] = _ref("Graph")
    workflow["required"] = ["graph"]


def _typed(
    kinds: Mapping[str, type[msgspec.Struct] | Schema],
    *,
    also: Mapping[str, Schema] | None = None,
    needs: tuple[str, ...] | None = None,
    required: tuple[str, ...] = (),
    default: str | None = None,
) -> Schema:
    """Return a block with a `type` that decides about its `config`; `needs` lists the types that require one."""
    blocks: dict[str, Schema] = {}
    for kind, config in kinds.items():
        schema = config if isinstance(config, dict) else _ref(config.__name__)
        if needs is None or kind in needs:
            blocks[kind] = {"properties": {"config": schema}, "required": ["config"]}
        else:
            blocks[kind] = {"properties": {"config": {"anyOf": [schema, {"type": "null"}]}}}
    return {
        "type": "object",
        "required": [*required, *(() if default else ("type",))],
        "properties": {"type": {"enum": list(kinds)}, "config": {"type": ["object", "null"]}, **(also or {})},
        "patternProperties": {"^x-": {}},
        "additionalProperties": False,
        "allOf": by_type(blocks),
    }


def _subgraph() -> Schema:
    inline = {"allOf": [_ref("Graph"), {"required": ["nodes", "edges"]}]}
    file = {
        "type": "object",
        "required": ["path"],
        "properties": {"path": {"type": "string", "minLength": 1}},
        "patternProperties": {"^x-": {}},
        "additionalProperties": False,
    }
    return _typed({"config": inline, "file": file})


def _node(fields: Schema) -> Schema:
    properties = fields["properties"]
    properties["type"] = {"enum": [*NODE_TYPES, "python_runner"], "description": "Type of the node."}
    properties["config"] = {"type": "object"}
    properties["dynamic"] = {"type": "null", "description": "Belongs on the edges that lead to this node."}
    for key, role in (("input", "user"), ("output", "assistant")):
        properties[key] = {"description": f"Messages before anything runs; a bare text is one of role {role}."}
    kinds = {**NODE_TYPES, "python_runner": NODE_TYPES["python"]}
    blocks = {kind: {"properties": {"config": _ref(cls.__name__)}} for kind, cls in kinds.items()}
    return {**fields, "required": ["id", "type", "config"], "allOf": by_type(blocks)}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _maybe(name: str) -> Schema:
    return {"anyOf": [_ref(name), {"type": "null"}]}


def _list(name: str) -> Schema:
    return {"type": ["array", "null"], "items": _ref(name)}
