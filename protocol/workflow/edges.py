"""Edges of a workflow: their conditions, their changes to a message, and their fan-out to several runs of the target.

The shorthands of the files are resolved here: a condition is always one of five structs, whether the file writes it
as `true`, as the name of a function or as a mapping.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from ..schema import by_tag
from ..tree import Path

Id: TypeAlias = Annotated[str, Meta(min_length=1)]
Texts: TypeAlias = Annotated[
    tuple[str, ...], Meta(extra={"one_or_many": True}, extra_json_schema={"x-one-or-many": True})
]
"""`any: DONE` and `any: [DONE]` both read as a tuple."""

# For fields that DevAll converts by `int()` or `float()`, which also accept text.
_LOOSE: dict[str, Any] = {"extra": {"loose": True}, "extra_json_schema": {"x-loose": True}}
Count: TypeAlias = Annotated[int, Meta(ge=1)]
"""A whole number from 1 on, without quotes."""

AtLeastOne: TypeAlias = Annotated[int, Meta(ge=1, **_LOOSE)]
"""A whole number from 1 on; `"3"` in quotes is taken, too."""

Group: TypeAlias = Annotated[
    int | str | None, Meta(description="Number or name of the pattern's group; the whole match if left out.")
]
Pattern: TypeAlias = Annotated[str, Meta(min_length=1, description="A regular expression of Python.")]
Flag: TypeAlias = Literal["IGNORECASE", "MULTILINE", "DOTALL", "VERBOSE", "ASCII", "I", "M", "S", "X", "A"]


class _Tagged(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """Base of blocks that `type` distinguishes."""


# --- conditions -------------------------------------------------------------------------------------------


class Always(_Tagged, frozen=True, kw_only=True, tag="always"):
    """`condition: "true"`, and an edge without a condition."""


class Never(_Tagged, frozen=True, kw_only=True, tag="never"):
    """`condition: false`."""


class FunctionCondition(_Tagged, frozen=True, kw_only=True, tag="function"):
    """A function of `functions/edge/`, or one of the built-in ones: text in, true or false out."""

    name: Id


class KeywordCondition(_Tagged, frozen=True, kw_only=True, tag="keyword"):
    """Words in the source's output. `none` is looked at first, then `all`, then `any` and `regex`."""

    any: Annotated[Texts, Meta(description="Met if one of these is there.")] = ()
    none: Annotated[Texts, Meta(description="Not met if one of these is there.")] = ()
    all: Annotated[Texts, Meta(description="Met only if each of these is there.")] = ()
    regex: Annotated[Texts, Meta(description="Met if one of these patterns is found.")] = ()
    case_sensitive: bool = True
    default: Annotated[bool, Meta(description="Read and never used, here as in DevAll.")] = False


class RegexCondition(_Tagged, frozen=True, kw_only=True, tag="regex"):
    """A pattern that is searched for in the source's output."""

    pattern: Pattern
    flags: Annotated[tuple[Flag, ...], Meta(description="As Python's `re` calls them.")] = ()


Condition: TypeAlias = Always | Never | FunctionCondition | KeywordCondition | RegexCondition

CONDITIONS: dict[str, type[Condition]] = by_tag(FunctionCondition, KeywordCondition, RegexCondition)
"""Every value of a condition's `type`."""

CONDITION_FUNCTIONS = frozenset(
    {
        "true",
        "always_false",
        "contains_keyword",
        "not_contains_keyword",
        "length_greater_than_5",
        "code_pass",
        "code_fail",
        "need_reflection_loop",
        "should_stop_loop",
    }
)
"""Conditions that need no file."""


# --- processors -------------------------------------------------------------------------------------------


class RegexExtract(_Tagged, frozen=True, kw_only=True, tag="regex_extract"):
    """Edge processor that carries the match of a pattern instead of the whole text."""

    pattern: Pattern
    group: Group = None
    case_sensitive: bool = True
    multiline: bool = False
    dotall: bool = False
    multiple: Annotated[bool, Meta(description="All matches, a line each.")] = False
    template: Annotated[str | None, Meta(description="`{match}` stands for what was found.")] = None
    on_no_match: Literal["pass", "default", "drop"] = "pass"
    default_value: str | None = None


class Template(_Tagged, frozen=True, kw_only=True, tag="template"):
    """Edge processor that carries a template; `{{content}}` is replaced by the source's output."""

    template: Annotated[str, Meta(min_length=1)]


class FunctionProcessor(_Tagged, frozen=True, kw_only=True, tag="function"):
    """A function of `functions/edge_processor/`, or one of the built-in ones."""

    name: Id


Processor: TypeAlias = RegexExtract | Template | FunctionProcessor

PROCESSORS: dict[str, type[Processor]] = by_tag(RegexExtract, FunctionProcessor, Template)
"""Every value of a processor's `type`."""

PROCESSOR_FUNCTIONS = frozenset({"uppercase_payload", "code_save_and_run"})
"""Processors that need no file."""


# --- map and tree -----------------------------------------------------------------------------------------


class ByMessage(_Tagged, frozen=True, kw_only=True, tag="message"):
    """Split into one unit per message."""


class ByMatch(_Tagged, frozen=True, kw_only=True, tag="regex"):
    """Split into one unit per match of a pattern; text between matches is dropped."""

    pattern: Pattern
    group: Group = None
    case_sensitive: bool = True
    multiline: bool = False
    dotall: bool = False
    on_no_match: Literal["pass", "empty"] = "pass"


class ByPath(_Tagged, frozen=True, kw_only=True, tag="json_path"):
    """Split into one unit per item of the list at a dotted path into JSON: `data.items`, or "" for the whole."""

    json_path: str


class ByArray(_Tagged, frozen=True, kw_only=True, tag="json_array"):
    """Split into one unit per item of a JSON array. The guide's `split_type: json_array`."""


class ByLines(_Tagged, frozen=True, kw_only=True, tag="lines"):
    """Split into one unit per line that is not blank. The guide's `split_type: lines`."""


class ByDelimiter(_Tagged, frozen=True, kw_only=True, tag="delimiter"):
    """Split at the matches of a pattern, with one unit per piece. The guide's `split_type: regex`."""

    pattern: Pattern


Split: TypeAlias = ByMessage | ByMatch | ByPath | ByArray | ByLines | ByDelimiter

# Without `ByDelimiter`: `regex` under `split` means the matches, and only under the guide's `split_type` what is
# between.
SPLITS: dict[str, type[Split]] = by_tag(ByMessage, ByMatch, ByPath, ByArray, ByLines)
"""Every value of a split's `type`."""

GUIDE_SPLITS: dict[str, type[ByArray | ByDelimiter | ByLines]] = {
    "json_array": ByArray,
    "regex": ByDelimiter,
    "lines": ByLines,
}
"""Every value of the guide's `split_type`."""


class MapFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` of `dynamic: {type: map}`."""

    # DevAll does not check it, and its thread pool raises an error for 0.
    max_parallel: Annotated[AtLeastOne, Meta(description="Units at once.")] = 10
    split_type: Annotated[
        Literal["json_array", "regex", "lines"] | None, Meta(description="How the guide writes `split`.")
    ] = None
    pattern: Annotated[str | None, Meta(description="What stands between units, for `split_type: regex`.")] = None
    item_name: Annotated[Id, Meta(description="`{{item}}` in the target's role is the unit; under this name.")] = "item"


class TreeFields(MapFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` of `dynamic: {type: tree}`."""

    group_size: Annotated[int, Meta(ge=2, description="Units that are made one at a time.", **_LOOSE)] = 3


class Dynamic(msgspec.Struct, frozen=True, kw_only=True):
    """Fan-out of an edge: the target runs once per unit of its message; a tree then reduces the results to one."""

    type: Literal["map", "tree"]
    split: Split = ByMessage()
    max_parallel: int = 10
    group_size: int = 3
    item_name: str = "item"


# --- the edge ---------------------------------------------------------------------------------------------


class EdgeFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An edge as the file has it."""

    source: Annotated[Id, Meta(description="The node it leaves.")] = msgspec.field(name="from")
    target: Annotated[Id, Meta(description="The node it leads to.")] = msgspec.field(name="to")
    description: Annotated[str | None, Meta(description="For people.")] = None
    trigger: Annotated[bool, Meta(description="May it make the target run?")] = True
    carry_data: Annotated[bool, Meta(description="Does the target get the source's output?")] = True
    keep_message: Annotated[bool, Meta(description="What it carries survives a `clear_context`.")] = False
    clear_context: Annotated[bool, Meta(description="Drop what the target has queued, except kept messages.")] = False
    clear_kept_context: Annotated[bool, Meta(description="Drop the kept messages that the target has queued.")] = False


class Edge(EdgeFields, frozen=True, kw_only=True):
    """An edge after reading; `path` is its position in the file."""

    condition: Condition = Always()
    process: Processor | None = None
    dynamic: Dynamic | None = None
    path: Path = ()
