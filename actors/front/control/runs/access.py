"""Checks whose runs a caller may see."""

from __future__ import annotations

from .....protocol.control.caller import Caller
from .....protocol.errors import Denied, NotFound


def sees(caller: Caller, owner: str) -> bool:
    """Whether the runs of this owner are shown to the caller."""
    return caller.has("admin:runs") or (caller.has("read:runs") and owner == caller.subject)


def check_owner(caller: Caller, owner: str, run: str) -> None:
    """Check that the caller may have this run.

    Raises:
        Denied: it has another owner, and the caller may know that it exists.
        NotFound: it has another owner.
    """
    if owner == caller.subject or caller.has("admin:runs"):
        return
    if caller.has("read:runs"):
        raise Denied(f"{run} belongs to somebody else; that needs the scope 'admin:runs'")
    raise no_run(run)


def no_run(run: str) -> NotFound:
    """There is none."""
    return NotFound(f"there is no run {run[:60]!r}")
