"""State updates: the `state_updates` of a node, rendered against the state as the node leaves it.

`output`, `choice` and `input` exist here and nowhere else: they are put in front of the state for the
rendering, and never enter it. (Loki 0.4.0 leaves them behind as null where they did not exist before;
`Compat.scoped_names_stay_null` does as well.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....protocol.graph.model import Raw
from .compat import Compat
from .templates import MISSING, compile_template


def apply_updates(
    updates: Mapping[str, str | Raw],
    state: Mapping[str, Any],
    writes: dict[str, Any],
    scope: str | None,
    output: Any,
    compat: Compat,
) -> None:
    """Add the values of `updates` to `writes`.

    Args:
        updates: state key to template. Missing keys in it are empty; values are text, unless `Raw`.
        state: the snapshot the node worked on.
        writes: what the node wrote so far; the templates see it, and get added to it.
        scope, output: the scoped name and its value, if there is one.
    """
    view: dict[str, Any] = {**state, **writes}
    if scope is not None:
        view[scope] = output
    rendered: dict[str, Any] = {}
    for key, template in updates.items():
        if isinstance(template, Raw):
            value = compile_template(template.raw).value(view)
            rendered[key] = None if value is MISSING else value
        else:
            rendered[key] = compile_template(template).lenient(view, expand_again=compat.values_expand_again)
        if compat.updates_see_each_other and key != scope:
            view[key] = rendered[key]
    if compat.scoped_names_stay_null and scope is not None:
        # Loki 0.4.0 puts back what the name held before, also over an update of that very name.
        rendered.pop(scope, None)
        if scope not in state and scope not in writes:
            rendered[scope] = None
    writes.update(rendered)
