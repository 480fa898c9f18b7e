"""Dialects of workflow files, and names in a file that only the caller can check.

The guide of DevAll and its program disagree about the meaning of some parts of a file. Each difference is a flag of
`Dialect`. The dialect `standard` follows the guide, and the program where the guide is silent. The dialect `devall`
follows the program of May 2026 exactly. Code asks for a flag by name and never for the name of a dialect. Differences
at run time are elsewhere, since the reader takes no part in a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import msgspec

Mode = Literal["standard", "devall"]


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """Flags that control how a file is read. The defaults belong to `standard`; `devall` has the opposite of each.

    Attributes:
        guide_keys: features that the guide describes and the program lacks work: `processor` and its templates,
            conditions of type regex, keyword `all`, `split_type` with `item_name`, memories of human nodes, literals of
            role system, `python_runner`, code in a python node. Else: keys are ignored with a warning, and types are
            errors.
        ends_are_inferred: an absent `start` is the only node without incoming edges. Else: an error.
        stores_need_config: a memory store without `config` is an error, whatever its type.
        reads_by_default, writes_by_default, top_k, threshold: defaults for an entry of a node's `memories`.
        silent_memories_work: an entry with neither `read` nor `write` would do nothing, so it gets the defaults of the
            program for every key that it leaves out.
        merges_edges: the later of two edges between the same nodes replaces the earlier one, at its position.
            Else: both count.
        false_is_a_name: `condition: "false"` names a function. Else: never.
        unknown_functions_pass: a condition with an unknown name is always met, an unknown processor changes nothing;
            both are warnings. Else: errors.
        escapes: `$${X}` is the text `${X}`.
        variables_see_environment: `X: ${X}` in `vars` is X of the environment. Else: it is a cycle.
        failed_agents_answer: an agent that fails returns its error as its output, unless it sets `on_error`.
        node_names_break_cycles: in a graph with a cycle, an id with `node_` outside of every cycle is an error.
    """

    guide_keys: bool = True
    ends_are_inferred: bool = True
    stores_need_config: bool = False
    reads_by_default: bool = False
    writes_by_default: bool = False
    top_k: int = 10
    threshold: float = 0.5
    silent_memories_work: bool = True
    merges_edges: bool = False
    false_is_a_name: bool = False
    unknown_functions_pass: bool = False
    escapes: bool = True
    variables_see_environment: bool = True
    failed_agents_answer: bool = False
    node_names_break_cycles: bool = False


STANDARD = Dialect()
_FLAGS = {row: not does for row, does in msgspec.structs.asdict(STANDARD).items() if isinstance(does, bool)}
# The program at commit b23950d0 (2026-05-12). 3 and -1.0 are its defaults, 10 and 0.5 those of the guide.
DEVALL = Dialect(**_FLAGS, top_k=3, threshold=-1.0)

DIALECTS: dict[str, Dialect] = {"standard": STANDARD, "devall": DEVALL}
"""Every value of `compat:`."""


Load: TypeAlias = Callable[[str, str], tuple[str, str]]
"""`load(path, parent)` returns the text of a subgraph's file, and its name. `path` is the path in the node, and
`parent` the name of the file that contains the node. Raises OSError with a readable text if there is no such file."""

Withheld: TypeAlias = Callable[[str, str], str]
"""`withheld(provider, base_url)` names the place of a key that is not sent to that address; "" if there is no key."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """Names that a workflow may use in addition to the built-in ones. None means unknown: such names are not checked.

    Attributes:
        conditions: functions of `functions/edge/`.
        processors: functions of `functions/edge_processor/`.
        tools: functions of `functions/function_calling/` by the name of their file, as used with `:All`.
        providers: providers of models.
        node_types: types of nodes that plugins define.
        withheld: finds the key that is not sent when a file names an address and no key.
    """

    conditions: frozenset[str] | None = None
    processors: frozenset[str] | None = None
    tools: Mapping[str, frozenset[str]] | None = None
    providers: frozenset[str] | None = None
    node_types: frozenset[str] = frozenset()
    withheld: Withheld | None = None
