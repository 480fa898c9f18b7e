"""A reader's view of the world around a file: names it can't see, and a way to files it refers to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

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
