"""Reads the edges of a graph, with their conditions in all their spellings."""

from __future__ import annotations

from ...problems import did_you_mean
from ...tree import Mapping, Scalar, describe
from ..edges import (
    CONDITION_FUNCTIONS,
    CONDITIONS,
    Always,
    Condition,
    Edge,
    FunctionCondition,
    KeywordCondition,
    Never,
    RegexCondition,
)
from .carried import read_dynamic, read_processor
from .patterns import check_pattern
from .reading import Part

_MISNAMED = {"source": "from", "target": "to"}
_MISPLACED = {
    "split": "put it under `dynamic:`.",
    "max_parallel": "put it under `config:` of `dynamic:`.",
    "group_size": "put it under `config:` of `dynamic:`.",
    "keep": "did you mean 'keep_message'?",
    "context_window": "it is a key of nodes; put it on the node this edge leads to.",
}


def read_edge(part: Part) -> Edge | None:
    """The edge; None if its ends could not be read."""
    found = part.mapping("an edge", "`{from: a, to: b}`")
    if found is None:
        return None
    found = _with_ends(found)
    if found.reading.dialect.guide_keys:
        found = found.renamed({"processor": "process"}, "an edge")
    else:
        found = found.ignored({"processor": "write `process`."}, "an edge")
    found = found.misplaced(_MISPLACED, "an edge")
    edge = found.block(
        Edge,
        "an edge",
        given={
            "condition": _condition(found),
            "process": read_processor(found),
            "dynamic": read_dynamic(found),
            "path": found.path,
        },
        hidden=("path",),
    )
    return edge if edge.source and edge.target else None


def _with_ends(edge: Part) -> Part:
    """The edge with `source` and `target` read as what they stand for; the engine wants `from` and `to`."""
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


def _condition(edge: Part) -> Condition:
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
        check_pattern(config["pattern"])
    if isinstance(condition, FunctionCondition) and condition.name:
        return _named(config["name"], condition.name)
    return condition


def _named(part: Part, name: str) -> Condition:
    """What a condition's name means: a function, or one of two words."""
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
        passes = dialect.unknown_functions_pass
        near = did_you_mean(name, [*known, *CONDITION_FUNCTIONS, "false"])
        if name.lower() in ("true", "false"):
            near = f"write `{name.lower()}`."
        instead = "; DevAll takes its condition for true" if passes else ", and no built-in condition of that name"
        part.report(
            "warning" if passes else "error",
            "unknown_function",
            f"no function `{name}` in functions/edge{instead}",
            expected=f"one of {', '.join(sorted(known | CONDITION_FUNCTIONS))}",
            hint=near or "Hint: write the function, or a `keyword` condition.",
        )
    return FunctionCondition(name=name)


def _keyword(config: Part) -> KeywordCondition:
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
                check_pattern(word)
    return condition
