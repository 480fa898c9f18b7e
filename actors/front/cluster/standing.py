"""How the runs of a cluster stand, as lists show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ....protocol.control.things import RunInfo
from ....protocol.decoding import decode_json
from ....supervisors.journal.row import OVER

if TYPE_CHECKING:
    from ....supervisors.cluster.telling import Standing


def info_of(standing: Standing) -> RunInfo | None:
    """What lists say of a run; None if that is nothing yet."""
    if not standing.info:
        return None
    info = decode_json(standing.info, RunInfo)
    if info.over and info.status != "interrupted" and standing.state != OVER:  # it is about to be: see `WorkerLogs`
        info = msgspec.structs.replace(info, status="running", ended=None, error=None, exit_code=None, output="")
    if standing.state == OVER:
        if not info.over:  # its worker has died between its last row and its last event
            info.status, info.open_questions = "lost", 0
    elif standing.parked:
        info.status, info.resumable, info.stuck = "interrupted", True, info.error is None
    elif not standing.is_taken:
        info.status = "queued"
    elif info.status == "queued":
        info.status = "running"
    info.life = max(1, standing.life)
    if standing.state != OVER:  # else it is who has played it last
        info.worker = standing.worker
    return info
