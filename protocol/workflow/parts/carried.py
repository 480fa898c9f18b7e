"""Reads what edges do to what they carry: change it, or multiply their target by it."""

from __future__ import annotations

import msgspec

from ...problems import did_you_mean
from ...source import Mapping, Node, Path, Scalar
from ..edges import (
    GUIDE_SPLITS,
    PROCESSOR_FUNCTIONS,
    PROCESSORS,
    SPLITS,
    ByDelimiter,
    ByMatch,
    ByMessage,
    ByPath,
    Dynamic,
    FunctionProcessor,
    MapFields,
    Processor,
    RegexExtract,
    Split,
    Template,
    TreeFields,
)
from .patterns import check_pattern, with_group
from .reading import WorkflowReading, is_null

# --- processors -------------------------------------------------------------------------------------------


def read_processor(reading: WorkflowReading, edge: Mapping, path: Path) -> Processor | None:
    entry = edge.entries.get("process")
    if entry is None or is_null(entry.value):
        return None
    path = (*path, "process")
    node = reading.mapping(entry.value, path, "`process`", "`process: {type: regex_extract, config: {pattern: ...}}`")
    if node is None:
        return None
    kinds = list(PROCESSORS) if reading.dialect.guide_keys else ["regex_extract", "function"]
    block = reading.typed(node, path, what="a processor", kinds=kinds)
    if block is None:
        return None
    kind, config, path = block
    processor: Processor = reading.block(PROCESSORS[kind], config, path, what=f"a {kind} processor")
    if isinstance(processor, RegexExtract) and processor.pattern:
        check_pattern(reading, processor.pattern, config.entries["pattern"].value, (*path, "pattern"))
        _check_match(reading, processor, config, path)
        return with_group(reading, processor, config, path)
    if isinstance(processor, Template) and processor.template and "{{" not in processor.template:
        reading.report(
            "warning",
            "fixed_template",
            "the template never says what came in",
            (*path, "template"),
            config.entries["template"].value,
            hint="write {{content}} where the source's output is to stand.",
        )
    if isinstance(processor, FunctionProcessor) and processor.name:
        _check_processor_name(reading, processor.name, config.entries["name"].value, (*path, "name"))
    return processor


def _check_match(reading: WorkflowReading, processor: RegexExtract, config: Mapping, path: Path) -> None:
    if processor.template is not None and "{match}" not in processor.template:
        reading.report(
            "warning",
            "fixed_template",
            "the template never says what was found",
            (*path, "template"),
            config.entries["template"].value,
            hint="write {match}, in single braces, where it is to stand.",
        )
    if processor.default_value is not None and processor.on_no_match != "default":
        entry = config.entries["default_value"]
        reading.report(
            "warning",
            "unused_key",
            f"`default_value` has no effect with `on_no_match: {processor.on_no_match}`",
            (*path, "default_value"),
            (entry.line, entry.column),
            hint="write `on_no_match: default` beside it.",
        )


def _check_processor_name(reading: WorkflowReading, name: str, at: Node, path: Path) -> None:
    known = reading.known.processors
    if known is None or name in known | PROCESSOR_FUNCTIONS:
        return
    passes = reading.dialect.unknown_functions_pass
    reading.report(
        "warning" if passes else "error",
        "unknown_function",
        f"no function `{name}` in functions/edge_processor"
        + ("; DevAll carries the output unchanged" if passes else ", and no built-in processor of that name"),
        path,
        at,
        expected=f"one of {', '.join(sorted(known | PROCESSOR_FUNCTIONS))}",
        hint=did_you_mean(name, [*known, *PROCESSOR_FUNCTIONS]) or "Hint: write the function first.",
    )


# --- map and tree -----------------------------------------------------------------------------------------

_GUIDE_ONLY = {
    "split_type": "write `split: {type: message | regex | json_path, config: {...}}` beside `config`; without it every "
    "message is one unit.",
    "item_name": "remove it; the unit is a message, and roles are no templates.",
    "pattern": "write `split: {type: regex, config: {pattern: ...}}` beside `config`.",
}


def read_dynamic(reading: WorkflowReading, edge: Mapping, path: Path) -> Dynamic | None:
    entry = edge.entries.get("dynamic")
    if entry is None or is_null(entry.value):
        return None
    path = (*path, "dynamic")
    node = reading.mapping(entry.value, path, "`dynamic`", "`dynamic: {type: map}`")
    if node is None:
        return None
    block = reading.typed(node, path, what="`dynamic`", kinds=("map", "tree"), also=("split",), needs_config=False)
    if block is None:
        return None
    kind, config, config_path = block
    split = _split(reading, node, path)
    if not reading.dialect.guide_keys:
        config = reading.ignored(config, config_path, _GUIDE_ONLY, "`dynamic`")
    fields: MapFields = reading.block(
        TreeFields if kind == "tree" else MapFields,
        config,
        config_path,
        what=f"the `config` of a {kind}",
        elsewhere={"group_size": "the `config` of a tree", "split": "`dynamic`, beside `config`"},
    )
    if fields.split_type is not None:
        if split is not None:
            reading.report(
                "warning",
                "unused_key",
                "`split_type` has no effect beside `split`",
                (*config_path, "split_type"),
                config.entries["split_type"].value,
                hint="remove one of the two.",
            )
        else:
            split = _guide_split(reading, fields, config, config_path)
    if fields.pattern is not None and fields.split_type != "regex":
        reading.report(
            "warning",
            "unused_key",
            "`pattern` has no effect here",
            (*config_path, "pattern"),
            config.entries["pattern"].value,
            hint="write `split_type: regex` beside it, or put it under `config:` of `split:`.",
        )
    return Dynamic(
        type="tree" if kind == "tree" else "map",
        split=split or ByMessage(),
        max_parallel=fields.max_parallel,
        group_size=fields.group_size if isinstance(fields, TreeFields) else 3,
        item_name=fields.item_name,
    )


def _split(reading: WorkflowReading, dynamic: Mapping, path: Path) -> Split | None:
    entry = dynamic.entries.get("split")
    if entry is None or is_null(entry.value):
        return None
    path = (*path, "split")
    node = reading.mapping(entry.value, path, "`split`", "`split: {type: regex, config: {pattern: ...}}`")
    if node is None:
        return None
    kinds = list(SPLITS) if reading.dialect.guide_keys else ["message", "regex", "json_path"]
    kind_entry = node.entries.get("type")
    if kind_entry is None or is_null(kind_entry.value):
        kind_entry = msgspec.structs.replace(entry, value=Scalar("message", "message", node.line, node.column))
        node = Mapping({**node.entries, "type": kind_entry}, node.line, node.column)
    needs = isinstance(kind_entry.value, Scalar) and kind_entry.value.value in ("regex", "json_path")
    block = reading.typed(node, path, what="a split", kinds=kinds, needs_config=needs)
    if block is None:
        return None
    kind, config, path = block
    split: Split = reading.block(SPLITS[kind], config, path, what=f"a {kind} split")
    if isinstance(split, ByMatch) and split.pattern:
        check_pattern(reading, split.pattern, config.entries["pattern"].value, (*path, "pattern"))
        return with_group(reading, split, config, path)
    if isinstance(split, ByPath) and split.json_path.startswith("$"):
        reading.report(
            "warning",
            "not_jsonpath",
            "`json_path` is a dotted path, and no key is called `$`; nothing will be found",
            (*path, "json_path"),
            config.entries["json_path"].value,
            hint='write `data.items` for `$.data.items[*]`, and "" for the whole list.',
        )
    return split


def _guide_split(reading: WorkflowReading, fields: MapFields, config: Mapping, path: Path) -> Split:
    kind = fields.split_type
    assert kind is not None
    if kind != "regex":
        return GUIDE_SPLITS[kind]()  # type: ignore[call-arg] # these want nothing
    if fields.pattern:
        check_pattern(reading, fields.pattern, config.entries["pattern"].value, (*path, "pattern"))
        return ByDelimiter(pattern=fields.pattern)
    entry = config.entries["split_type"]
    reading.report(
        "error",
        "missing_key",
        "missing field `pattern`: `split_type: regex` needs it",
        (*path, "pattern"),
        (entry.line, entry.column),
        expected="`pattern:` with what stands between two units",
        hint='Hint: write `pattern: "\\n---\\n"` beside it.',
    )
    return ByMessage()
