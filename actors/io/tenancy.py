"""Process state per tenant: its environment, and the paths that its sandboxes hide.

Most code of a run gets its dependencies from its root. Some code reads process state: the environment names the
directories of journals, results and caches, and scripts inherit it. Two tenants in one process must be separated there.
So that code calls `environ()`, which is `os.environ` unless the task works for a tenant (`runs.tenants`). It is in a
context variable, because tasks, threads and actors all inherit the variables of their caller.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar


class Tenancy:
    """Process state of one tenant. A plain class: `callboard --help` imports no msgspec.

    Attributes:
        environ: replaces `os.environ`.
        hidden: returns the paths that no sandboxed process of the tenant may read, at the time of the call.
    """

    def __init__(self, environ: Mapping[str, str], hidden: Callable[[], tuple[str, ...]]) -> None:
        self.environ = environ
        self.hidden = hidden


tenancy: ContextVar[Tenancy | None] = ContextVar("callboard_tenancy", default=None)
"""Tenant of the current task; None for the process itself."""


def environ() -> Mapping[str, str]:
    """Return the environment of the current task's tenant, or that of the process."""
    mine = tenancy.get()
    return os.environ if mine is None else mine.environ


def hidden_paths() -> tuple[str, ...]:
    """Return paths that sandboxed processes may not read, beyond the secrets of their own root."""
    mine = tenancy.get()
    return () if mine is None else mine.hidden()
