"""One child of an agent, as its parent keeps it until the result is collected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never

import msgspec

from ....protocol.errors import CallboardError
from ..letters import Letter, Seat
from ..record import ChildRecord, Record
from ..tools.rendering import shortened
from .tasks import Task

if TYPE_CHECKING:
    from ....supervisors import Ref


class Refused(CallboardError):
    """There can't be such a child, or not now; the model is told why."""

    code = "refused"


class Child(msgspec.Struct, kw_only=True, eq=False):
    """A child that was not collected yet.

    Attributes:
        record: what the parent's own record shows of it.
        work: what it has written down itself.
        seat: its place among its siblings.
        prompt: what it is told.
        timeout: seconds it has, or None.
        task: the task that it works on.
        path: of its actor, "" before it began.
        ref: of its actor, None before it was started.
        letter: the news of its end, in the parent's inbox.
        answered: it reached its end and has given its answer, even if it is `failed` for what it went on over.
    """

    record: ChildRecord
    work: Record
    seat: Seat
    prompt: str
    timeout: float | None = None
    task: Task | None = None
    path: str = ""
    ref: Ref[Never, str] | None = None
    letter: Letter | None = None
    answered: bool = False

    @property
    def id(self) -> str:
        """`agent_<name>_<8 hex digits>`."""
        return self.record.id

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.record.status == "running"

    @property
    def exit_status(self) -> str:
        """`Completed`, `Failed("why")` or `Cancelled`."""
        record = self.record
        if record.status == "failed":
            return f"Failed({msgspec.json.encode(shortened(record.error or '', 2_000)).decode()})"
        return "Completed" if record.status == "completed" else "Cancelled"

    def look(self) -> None:
        """Bring its record up to date."""
        record, work = self.record, self.work
        record.turns, record.tool_calls, record.children = work.turns, work.tool_calls, work.children
        if not self.answered:
            record.output = work.output
