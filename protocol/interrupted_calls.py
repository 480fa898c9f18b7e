"""Policies for calls that were under way when the process of a durable run was killed.

No row records whether such a call did its work, a part of it, or nothing. The reaction depends on the tool's own
declaration about repeated calls (`Repeats`), else on the user or the agent's file (`OnUnknown`).
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Repeats: TypeAlias = Literal["read", "idempotent", "keyed", "write"]
"""Declaration of a tool about repeated calls.

`read`: it changes nothing. `idempotent`: two calls have the effect of one. `keyed`: it gets a key, and does its work
once for each key. `write`: it does its work twice.
"""

REPEATS: tuple[Repeats, ...] = get_args(Repeats)

OnUnknown: TypeAlias = Literal["ask", "tell", "again", "fail"]
"""Reaction to a call with an unknown outcome that cannot simply be repeated.

`ask`: the user decides. `tell`: the calling model gets an error and continues. `again`: the call is repeated. `fail`:
the caller fails.
"""

ON_UNKNOWN: tuple[OnUnknown, ...] = get_args(OnUnknown)

OfScript: TypeAlias = Literal["ask", "again", "fail"]
"""The same for a script, which has no calling model."""
