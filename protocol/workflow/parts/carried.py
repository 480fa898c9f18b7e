"""Reads what edges do to what they carry: change it, or multiply their target by it."""

from __future__ import annotations

import msgspec

from ...problems import did_you_mean
from ...tree import Scalar
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
from .reading import Part

# --- processors -------------------------------------------------------------------------------------------


def read_processor(edge: Part) -> Processor | None:
    part = edge.mapping_at("process", "`process: {type: regex_extract, config: {pattern: ...}}`")
    kinds = list(PROCESSORS) if edge.reading.dialect.guide_keys else ["regex_extract", "function"]
    block = part and part.typed("a processor", kinds)
    if not block:
        return None
    kind, config = block
    processor: Processor = config.block(PROCESSORS[kind], f"a {kind} processor")
    if isinstance(processor, RegexExtract) and processor.pattern:
        check_pattern(config["pattern"])
        _check_match(processor, config)
        return with_group(processor, config)
    if isinstance(processor, Template) and processor.template and "{{" not in processor.template:
        hint = "write {{content}} where the source's output is to stand."
        config["template"].warn("fixed_template", "the template never says what came in", hint)
    if isinstance(processor, FunctionProcessor) and processor.name:
        _check_processor_name(config["name"], processor.name)
    return processor


def _check_match(processor: RegexExtract, config: Part) -> None:
    if processor.template is not None and "{match}" not in processor.template:
        hint = "write {match}, in single braces, where it is to stand."
        config["template"].warn("fixed_template", "the template never says what was found", hint)
    if processor.default_value is not None and processor.on_no_match != "default":
        message = f"`default_value` has no effect with `on_no_match: {processor.on_no_match}`"
        config.key("default_value").warn("unused_key", message, "write `on_no_match: default` beside it.")


def _check_processor_name(part: Part, name: str) -> None:
    known = part.reading.known.processors
    if known is None or name in known | PROCESSOR_FUNCTIONS:
        return
    passes = part.reading.dialect.unknown_functions_pass
    instead = "; DevAll carries the output unchanged" if passes else ", and no built-in processor of that name"
    part.report(
        "warning" if passes else "error",
        "unknown_function",
        f"no function `{name}` in functions/edge_processor{instead}",
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


def read_dynamic(edge: Part) -> Dynamic | None:
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
        config["pattern"].warn("unused_key", "`pattern` has no effect here", hint)
    return Dynamic(
        type="tree" if kind == "tree" else "map",
        split=split or ByMessage(),
        max_parallel=fields.max_parallel,
        group_size=fields.group_size if isinstance(fields, TreeFields) else 3,
        item_name=fields.item_name,
    )


def _split(dynamic: Part) -> Split | None:
    part = dynamic.mapping_at("split", "`split: {type: regex, config: {pattern: ...}}`")
    if part is None:
        return None
    kinds = list(SPLITS) if part.reading.dialect.guide_keys else ["message", "regex", "json_path"]
    if part.get("type") is None:
        entry = msgspec.structs.replace(
            dynamic.entries["split"], value=Scalar("message", "message", part.node.line, part.node.column)
        )
        part = part.with_entries({**part.entries, "type": entry})
    block = part.typed("a split", kinds, needs_config=part["type"].text in ("regex", "json_path"))
    if block is None:
        return None
    kind, config = block
    split: Split = config.block(SPLITS[kind], f"a {kind} split")
    if isinstance(split, ByMatch) and split.pattern:
        check_pattern(config["pattern"])
        return with_group(split, config)
    if isinstance(split, ByPath) and split.json_path.startswith("$"):
        config["json_path"].warn(
            "not_jsonpath",
            "`json_path` is a dotted path, and no key is called `$`; nothing will be found",
            'write `data.items` for `$.data.items[*]`, and "" for the whole list.',
        )
    return split


def _guide_split(fields: MapFields, config: Part) -> Split:
    kind = fields.split_type
    assert kind is not None
    if kind != "regex":
        return GUIDE_SPLITS[kind]()  # type: ignore[call-arg] # these want nothing
    if fields.pattern:
        check_pattern(config["pattern"])
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
