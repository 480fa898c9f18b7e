"""Who keeps whom alive: actors, mailboxes, supervisors, processes, pools, questions, events.

This floor knows nothing of models, YAML or MCP, and of `protocol` only `protocol/kernel`: it can be used for anything
that runs on trio. All that such a program needs is listed here. Subprocesses and pools are imported at first use.
Start with `actor` (what an actor is), `life` (how it ends), then `root` (signals and the order of dying) and
`supervisor`. docs/kernel.md shows how it is used and numbers what you may rely on.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..protocol.kernel.errors import (
    ActorCancelled,
    ActorDead,
    ActorError,
    ActorFailed,
    AskTimeout,
    CallboardError,
    Deadlock,
    DoesNotEnd,
    EndOfMail,
    MailboxFull,
    NobodyToAsk,
    NoReply,
    PoolClosed,
    ProcessError,
    Saturated,
    ShuttingDown,
    TimedOut,
    TooManyRestarts,
)
from ..protocol.kernel.events import Event, EventData
from ..protocol.kernel.messages import Down, Message
from ..protocol.kernel.questions import Answer, Question
from .actor import Actor
from .alarms import Timer
from .bus import Bus, Feed, Stream
from .escalation import HOLD, NOTED, PASS, Desk, FrontEnd, Policy, QuestionTimeout
from .policy import Backoff, Breaker, Retry
from .ref import End, Monitor, Ref, Request
from .root import Root
from .supervisor import ChildSpec, Supervisor

if TYPE_CHECKING:
    from .census import pause, resume
    from .child import ProcessEnd, ProcessStop
    from .lease import Lease, PoolStatistics
    from .pool import Pool
    from .process import Completed, Process, run_process, start_process

_HOMES = {
    "Completed": ".process",
    "Lease": ".lease",
    "Pool": ".pool",
    "PoolStatistics": ".lease",
    "Process": ".process",
    "ProcessEnd": ".child",
    "ProcessStop": ".child",
    "pause": ".census",
    "resume": ".census",
    "run_process": ".process",
    "start_process": ".process",
}

__all__ = [
    "HOLD",
    "NOTED",
    "PASS",
    "Actor",
    "ActorCancelled",
    "ActorDead",
    "ActorError",
    "ActorFailed",
    "Answer",
    "AskTimeout",
    "Backoff",
    "Breaker",
    "Bus",
    "CallboardError",
    "ChildSpec",
    "Completed",
    "Deadlock",
    "Desk",
    "DoesNotEnd",
    "Down",
    "End",
    "EndOfMail",
    "Event",
    "EventData",
    "Feed",
    "FrontEnd",
    "Lease",
    "MailboxFull",
    "Message",
    "Monitor",
    "NoReply",
    "NobodyToAsk",
    "Policy",
    "Pool",
    "PoolClosed",
    "PoolStatistics",
    "Process",
    "ProcessEnd",
    "ProcessError",
    "ProcessStop",
    "Question",
    "QuestionTimeout",
    "Ref",
    "Request",
    "Retry",
    "Root",
    "Saturated",
    "ShuttingDown",
    "Stream",
    "Supervisor",
    "TimedOut",
    "Timer",
    "TooManyRestarts",
    "pause",
    "resume",
    "run_process",
    "start_process",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'callboard.supervisors' has no attribute '{name}'")
    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
