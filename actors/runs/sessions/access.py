"""Access rules of sessions.

The owner may do everything. A session of another owner is denied, unless the caller has the scope `admin:sessions`. A
session without an owner (a file of an older program) may be read by every caller, and belongs to the first one that
changes it. The caller None is the user at this machine, who may do everything.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ....protocol.errors import Denied
from ....protocol.session import Meta

if TYPE_CHECKING:
    from ....protocol.control.caller import Caller

ADMIN = "admin:sessions"
LOCAL = "local"
"""Owner name of the user at this machine."""


def new_meta(caller: Caller | None) -> Meta:
    """Return the metadata of a session that `caller` creates."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return Meta(owner=subject_of(caller), created_at=now, created_by_key_id=None if caller is None else caller.key)


def subject_of(caller: Caller | None) -> str:
    """Return the owner of sessions that `caller` creates."""
    return LOCAL if caller is None else caller.subject


def may_see(caller: Caller | None, meta: Meta) -> bool:
    """Return whether `caller` may read the session."""
    return caller is None or meta.owner is None or meta.owner == caller.subject or caller.has(ADMIN)


def check_read(caller: Caller | None, meta: Meta, id: str) -> None:
    """Raise `Denied` if the caller may not read the session."""
    if not may_see(caller, meta):
        raise Denied(f"session {id} belongs to somebody else")


def claim(caller: Caller | None, meta: Meta, id: str) -> bool:
    """Check that the caller may change the session; return whether this call made the caller its owner.

    Raises:
        Denied: it has another owner.
    """
    check_read(caller, meta, id)
    if meta.owner is not None:
        return False
    meta.owner = subject_of(caller)
    return True
