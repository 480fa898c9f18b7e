"""Who may do what with a session.

Its owner may do all. Another's session is denied, unless the caller has the scope `admin:sessions`. One without an
owner (a file of an older program) may be read by all, and belongs to the first who changes it. No caller stands for
the person at this machine, who may do all.
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
"""The person at this machine, as an owner."""


def new_meta(caller: Caller | None) -> Meta:
    """Of a session that `caller` makes."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return Meta(owner=subject_of(caller), created_at=now, created_by_key_id=None if caller is None else caller.key)


def subject_of(caller: Caller | None) -> str:
    """Whose are the things that `caller` makes."""
    return LOCAL if caller is None else caller.subject


def may_see(caller: Caller | None, meta: Meta) -> bool:
    """Whether the session is one of those that `caller` may read."""
    return caller is None or meta.owner is None or meta.owner == caller.subject or caller.has(ADMIN)


def check_read(caller: Caller | None, meta: Meta, id: str) -> None:
    """Raise `Denied` if the caller may not see it."""
    if not may_see(caller, meta):
        raise Denied(f"session {id} belongs to somebody else")


def claim(caller: Caller | None, meta: Meta, id: str) -> bool:
    """Check that the caller may change it; whether this has made the caller its owner.

    Raises:
        Denied: it has another owner.
    """
    check_read(caller, meta, id)
    if meta.owner is not None:
        return False
    meta.owner = subject_of(caller)
    return True
