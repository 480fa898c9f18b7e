"""Tenancy of a task: makes it work for a tenant or for the process, with that environment and those secrets.

Separate from `tenants`, which imports directories and sandbox rules: every root enters a scope, and few roots have
tenants.
"""

from __future__ import annotations

from contextvars import Token

from ..io.secret_redaction import SecretTexts, known
from ..io.tenancy import Tenancy, tenancy

Entered = tuple[Token[Tenancy | None], Token[SecretTexts | None]]


def leave(entered: Entered) -> None:
    """Undo `enter_process` or `TenantHome.enter`, in the task that called it."""
    tenancy.reset(entered[0])
    known.reset(entered[1])


def enter_process() -> Entered:
    """Make the running task work for the process and not for a tenant."""
    return tenancy.set(None), known.set(None)
