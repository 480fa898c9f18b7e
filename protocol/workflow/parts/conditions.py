"""Reads the conditions of edges, in all their spellings."""

from __future__ import annotations

from ...problems import did_you_mean
from ...source import Mapping, Node, Path, Scalar, Sequence, describe
from ..edges import (
    CONDITION_FUNCTIONS,
    CONDITIONS,
    Always,
    Condition,
    FunctionCondition,
    KeywordCondition,
    Never,
    RegexCondition,
)
from .patterns import check_pattern
from .reading import WorkflowReading, is_null


def read_condition(reading: WorkflowReading, edge: Mapping, path: Path) -> Condition:
    entry = edge.entries.get("condition")
    path = (*path, "condition")
    if entry is None or is_null(entry.value):
        return Always()
    node = entry.value
    if isinstance(node, Scalar):
        node = reading.boolean(node, path)
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return Always() if node.value else Never()
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return _named(reading, node.value, node, path)
    if not isinstance(node, Mapping):
        reading.report(
            "error",
            "wrong_type",
            f"the condition is {describe(node)}",
            path,
            node,
            expected="true, false, the name of a function, or a mapping with `type` and `config`",
            hint="Hint: for words in the output write `{type: keyword, config: {any: [...]}}`.",
        )
        return Always()
    kinds = list(CONDITIONS) if reading.dialect.guide_keys else ["function", "keyword"]
    block = reading.typed(node, path, what="a condition", kinds=kinds)
    if block is None:
        return Always()
    kind, config, path = block
    if kind == "keyword":
        return _keyword(reading, config, path)
    condition = reading.block(CONDITIONS[kind], config, path, what=f"a {kind} condition")
    if isinstance(condition, RegexCondition) and condition.pattern:
        check_pattern(reading, condition.pattern, config.entries["pattern"].value, (*path, "pattern"))
    if isinstance(condition, FunctionCondition) and condition.name:
        return _named(reading, condition.name, config.entries["name"].value, (*path, "name"))
    return condition


def _named(reading: WorkflowReading, name: str, at: Node, path: Path) -> Condition:
    """What a condition's name means: a function, or one of two words."""
    if not name.strip():
        reading.report(
            "error", "empty_name", "the condition is empty", path, at, hint="Hint: leave it out; true is the default."
        )
    if name == "true":
        return Always()
    if name == "false":
        if not reading.dialect.false_is_a_name:
            return Never()
        reading.report(
            "warning",
            "unknown_function",
            'DevAll takes `"false"` for the name of a function, finds none, and the condition is always met',
            path,
            at,
            hint="write `condition: false`, without quotes.",
        )
        return FunctionCondition(name=name)
    known = reading.known.conditions
    if known is not None and name.strip() and name not in known | CONDITION_FUNCTIONS:
        passes = reading.dialect.unknown_functions_pass
        near = did_you_mean(name, [*known, *CONDITION_FUNCTIONS, "false"])
        if name.lower() in ("true", "false"):
            near = f"write `{name.lower()}`."
        reading.report(
            "warning" if passes else "error",
            "unknown_function",
            f"no function `{name}` in functions/edge"
            + ("; DevAll takes its condition for true" if passes else ", and no built-in condition of that name"),
            path,
            at,
            expected=f"one of {', '.join(sorted(known | CONDITION_FUNCTIONS))}",
            hint=near or "Hint: write the function, or a `keyword` condition.",
        )
    return FunctionCondition(name=name)


def _keyword(reading: WorkflowReading, config: Mapping, path: Path) -> KeywordCondition:
    what = "a keyword condition"
    words = ["any", "none", "regex"]
    if reading.dialect.guide_keys:
        words.append("all")
    else:
        config = reading.ignored(config, path, {"all": "write one edge per word, or a pattern under `regex:`."}, what)
    condition = reading.block(KeywordCondition, config, path, what=what)
    given = {key: getattr(condition, key) for key in words}
    if not any(given.values()) and not any(broken[: len(path)] == path for broken in reading.broken):
        reading.report(
            "error",
            "missing_key",
            f"{what} without words is never met",
            path,
            config,
            expected=f"a list under {', '.join(f'`{key}`' for key in words)}",
            hint="Hint: `any: [DONE]` is met if DONE is in the output, `none: [DONE]` if it is not.",
        )
    if "default" in config.entries:
        entry = config.entries["default"]
        hint = "remove it; an edge with the opposite condition is the other branch."
        reading.report(
            "warning",
            "unused_key",
            "`default` of a keyword condition has no effect",
            (*path, "default"),
            (entry.line, entry.column),
            hint=hint,
        )
    for key in words:
        entry_ = config.entries.get(key)
        if entry_ is None:
            continue
        many = isinstance(entry_.value, Sequence)
        items = entry_.value.items if isinstance(entry_.value, Sequence) else [entry_.value]
        for i, item in enumerate(items):
            at = (*path, key, i) if many else (*path, key)
            value = item.value if isinstance(item, Scalar) else None
            if value == "":
                reading.report("warning", "empty_keyword", "an empty word is never found", at, item, hint="remove it.")
            elif key == "regex" and isinstance(value, str):
                check_pattern(reading, value, item, at)
    return condition
