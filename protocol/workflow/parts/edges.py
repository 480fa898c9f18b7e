"""Reader for the edges of a graph: conditions in all their spellings, processors and dynamic edges.

Regular expressions are checked here: whether Python can read them, whether they mean the intended thing, and whether
they have the group that is used.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection
from typing import TypeVar

import msgspec

from ...problems import did_you_mean
from ...tree import Mapping, Scalar, describe
from ..edges import (
    CONDITION_FUNCTIONS,
    CONDITIONS,
    GUIDE_SPLITS,
    PROCESSOR_FUNCTIONS,
    PROCESSORS,
    SPLITS,
    Always,
    ByDelimiter,
    ByMatch,
    ByMessage,
    ByPath,
    Condition,
    Dynamic,
    Edge,
    FunctionCondition,
    FunctionProcessor,
    KeywordCondition,
    MapFields,
    Never,
    Processor,
    RegexCondition,
    RegexExtract,
    Split,
    Template,
    TreeFields,
)
from .reading import FileValue

G = TypeVar("G", RegexExtract, ByMatch)

_MISNAMED = {"source": "from", "target": "to"}
_MISPLACED = {
    "split": "put it under `dynamic:`.",
    "max_parallel": "put it under `config:` of `dynamic:`.",
    "group_size": "put it under `config:` of `dynamic:`.",
    "keep": "did you mean 'keep_message'?",
    "context_window": "it is a key of nodes; put it on the node this edge leads to.",
}


def read_edge(part: FileValue) -> Edge | None:
    """Return the edge; None if its ends could not be read."""
    found = part.mapping("an edge", "`{from: a, to: b}`")
    if found is None:
        return None
    found = _with_ends(found)
    if found.reading.dialect.guide_keys:
        found = found.renamed("processor", "process", "an edge")
    else:
        found = found.ignored({"processor": "write `process`."}, "an edge")
    found = found.misplaced(_MISPLACED, "an edge")
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
            'DevAll takes `"false"` for the name of a function, finds none, and the condition is always met',
            "write `condition: false`, without quotes.",
        )
    elif known is not None and name.strip() and name not in known | CONDITION_FUNCTIONS:
        near = did_you_mean(name, [*known, *CONDITION_FUNCTIONS, "false"])
        if name.lower() in ("true", "false"):
            near = f"write `{name.lower()}`."
        hint = near or "Hint: write the function, or a `keyword` condition."
        allowed = known | CONDITION_FUNCTIONS
        _no_function(part, name, "condition", "edge", allowed, "takes its condition for true", hint)
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
        hint = "write {{content}} where the source's output is to stand."
        config["template"].warn("fixed_template", "the template never says what came in", hint)
    if isinstance(processor, FunctionProcessor) and processor.name:
        _check_processor_name(config["name"], processor.name)
    return processor


def _check_match(processor: RegexExtract, config: FileValue) -> None:
    if processor.template is not None and "{match}" not in processor.template:
        hint = "write {match}, in single braces, where it is to stand."
        config["template"].warn("fixed_template", "the template never says what was found", hint)
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
    "item_name": "remove it; the unit is a message, and roles are no templates.",
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
        config["pattern"].warn("unused_key", "`pattern` has no effect here", hint)
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
            f"write `\\{found[1]}`: without quotes, and in single ones, YAML takes a backslash as it is.",
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
