"""Actor kernel on trio: actors, mailboxes, supervisors, subprocesses, pools, escalation, events.

It knows nothing of models, YAML or MCP and imports only `protocol/kernel`, so any trio program can use it; everything
that such a program needs is exported here. Subprocesses and pools are imported at first use.

Five names to know:

    Actor          one task with a mailbox and a place in the tree; its body is an async function (`actor`)
    Ref            sends messages to an actor, asks it, stops it, waits for its end (`ref`)
    Root           the tree: owns signals and the order in which everything ends (`root`, `signals`)
    Supervisor     restarts children by OTP's rules (`supervisor`, decisions in `policy`)
    OpenQuestions  the questions to users, at the root (`escalation`)

Modules, from the bottom: `mailbox`, `ref`, `scheduler` (tasks and timers), `actor`, `bus` (events), `escalation`,
`root`, `supervisor`, `pool`. Subprocesses: `process`, `pipes`, `guardian_link`, and `guardian`, which is a program of
its own. `introspection` and `memory` inspect a running tree. Packages: `journal` (durable runs), `cluster` (PostgreSQL
store).

Start with `actor`. docs/kernel.md is the manual and numbers the guarantees.
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
from .bus import Bus, Feed, Stream
from .escalation import HOLD, NOTED, PASS, FrontEnd, OpenQuestions, Policy, QuestionTimeout
from .policy import Backoff, Breaker, Retry
from .ref import End, Monitor, Ref, Request
from .root import Root
from .scheduler import Timer
from .supervisor import ChildSpec, Supervisor

if TYPE_CHECKING:
    from .introspection import pause, resume
    from .pool import Lease, Pool, PoolStatistics
    from .process import Completed, Process, ProcessEnd, ProcessStop, run_process, start_process

_HOMES = {
    "Completed": ".process",
    "Lease": ".pool",
    "Pool": ".pool",
    "PoolStatistics": ".pool",
    "Process": ".process",
    "ProcessEnd": ".process",
    "ProcessStop": ".process",
    "pause": ".introspection",
    "resume": ".introspection",
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
    "OpenQuestions",
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
    if name == "Desk":  # former name of `OpenQuestions`, which programs import from here
        return OpenQuestions
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'callboard.supervisors' has no attribute '{name}'")
    value = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
