"""State of a cluster's run, as lists show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ....protocol.control.things import RunInfo
from ....protocol.decoding import decode_json
from ....supervisors.journal.row import OVER

if TYPE_CHECKING:
    from ....supervisors.cluster.queries import StoredRunState


def info_of(stored: StoredRunState) -> RunInfo | None:
    """Return the summary of a run from its database row; None if it has no summary yet."""
    if not stored.info:
        return None
    info = decode_json(stored.info, RunInfo)
    # The worker stores the final summary before the end (`ClusterLog.close`): show the run as running until then.
    if info.over and info.status != "interrupted" and stored.state != OVER:
        info = msgspec.structs.replace(info, status="running", ended=None, error=None, exit_code=None, output="")
    if stored.state == OVER:
        if not info.over:  # the worker died between the last row and the last event
            info.status, info.open_questions = "lost", 0
    elif stored.parked:
        info.status, info.resumable, info.stuck = "interrupted", True, info.error is None
    elif not stored.is_taken:
        info.status = "queued"
    elif info.status == "queued":
        info.status = "running"
    info.life = max(1, stored.life)
    if stored.state != OVER:  # a finished run keeps the name of its last worker
        info.worker = stored.worker
    return info
