"""What becomes of calls that were under way when the process of a durable run was killed.

Whether they did their work, a part of it or nothing, no row tells. What may follow depends on what the author of a tool
says of calls that are made twice (`Repeats`), and else on what the user or the agent's file wants (`OnUnknown`).
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

Repeats: TypeAlias = Literal["read", "idempotent", "keyed", "write"]
"""What a tool's author says of a call that is made twice.

It changes nothing; it leaves the world as one call does; it gets a key, and does its work once for each key; it does
its work twice.
"""

REPEATS: tuple[Repeats, ...] = get_args(Repeats)

OnUnknown: TypeAlias = Literal["ask", "tell", "again", "fail"]
"""What is to be done about a call whose outcome is unknown, where it can't simply be made again.

A person is asked; the model that has made the call is told, and goes on; it is made again; whoever made it fails.
"""

ON_UNKNOWN: tuple[OnUnknown, ...] = get_args(OnUnknown)

OfScript: TypeAlias = Literal["ask", "again", "fail"]
"""The same for a script: there is no model that could be told."""
