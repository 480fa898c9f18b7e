"""rag nodes: read and checked, not yet run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.errors import Unsupported
from ..plan import Job, Result

if TYPE_CHECKING:
    from ....supervisors import Actor


async def run_rag_node(_me: Actor, job: Job) -> Result:
    """Refuse in one line."""
    raise Unsupported(f"node '{job.node.id}' is a rag node; this version can't retrieve from documents yet")
