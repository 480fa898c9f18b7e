"""What a reader of workflows goes by beside the text: the dialect, and names it can't see.

Where the guide of DevAll and its program disagree about what a file says, a dialect has one flag per row. `standard`
follows the guide where it speaks and the program elsewhere; `devall` is the program of May 2026 to the letter. Code
asks for a flag by name and never for the name of a mode. What differs while a workflow runs is not here: a reader has
no part in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

import msgspec

Mode = Literal["standard", "devall"]


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How a file is read. The defaults are those of `standard`; in `devall` each flag is the other way round.

    Attributes:
        guide_keys: what the guide teaches and the program lacks works: `processor` and its templates, conditions of
            type regex, keyword `all`, `split_type` with `item_name`, memories of human nodes, literals of role system,
            `python_runner`, code in a python node. Else: keys are ignored with a warning, types are errors.
        ends_are_inferred: an absent `start` is the only node that nothing leads to. Else: an error.
        stores_need_config: a memory store without `config` is an error, whatever its type.
        reads_by_default, writes_by_default, top_k, threshold: what a node's `memories` entry means where it is silent.
        silent_memories_work: one that says neither `read` nor `write` would do nothing, so it means what the program
            makes of it, in all that it leaves open.
        merges_edges: of two edges between one pair the later overwrites the earlier, in the earlier's place. Else:
            both count.
        false_is_a_name: `condition: "false"` names a function. Else: never.
        unknown_functions_pass: a condition by an unknown name is always met, an unknown processor changes nothing;
            both are warnings. Else: errors.
        escapes: `$${X}` is the text `${X}`.
        variables_see_environment: `X: ${X}` in `vars` is X of the environment. Else: it is a cycle.
        failed_agents_answer: an agent that fails gives its error as its output, if it does not say `on_error`.
        node_names_break_cycles: an id that holds `node_` outside of every cycle is an error beside a cycle.
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
DEVALL = Dialect(**_FLAGS, top_k=3, threshold=-1.0)

DIALECTS: dict[str, Dialect] = {"standard": STANDARD, "devall": DEVALL}
"""Every value of `compat:`."""


Load: TypeAlias = Callable[[str, str], tuple[str, str]]
"""`load(path, parent)`: the text of a subgraph's file, and its name. `path` is as the node has it, `parent` the name of
the file it stands in. Raises OSError with a text for people if there is none."""

Withheld: TypeAlias = Callable[[str, str], str]
"""`withheld(provider, base_url)`: where a key stands that is not sent to that address; "" if there is none."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """The names a workflow may use beside the built-in ones. None: not known, so nothing is said of unknown names.

    Attributes:
        conditions: functions of `functions/edge/`.
        processors: functions of `functions/edge_processor/`.
        tools: functions of `functions/function_calling/` by the file they are in, as `:All` names it.
        providers: of models.
        node_types: what plugins bring.
        withheld: which keys stay here where a file names an address and no key.
    """

    conditions: frozenset[str] | None = None
    processors: frozenset[str] | None = None
    tools: Mapping[str, frozenset[str]] | None = None
    providers: frozenset[str] | None = None
    node_types: frozenset[str] = frozenset()
    withheld: Withheld | None = None
