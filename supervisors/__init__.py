"""Who keeps whom alive: actors, mailboxes, supervisors, processes, pools, questions, events.

This floor knows nothing of models, YAML or MCP; it could be lifted out and used for anything that runs on trio.
Start with `actor` (what an actor is, and how it ends), then `root` (signals and the order of dying) and
`supervisor`. docs/kernel.md numbers what you may rely on.
"""

from .actor import Actor
from .bus import Bus, Feed, Stream
from .escalation import HOLD, NOTED, PASS, Desk, FrontEnd, Policy, QuestionTimeout
from .lease import Lease
from .life import EndOfMail
from .policy import Backoff
from .pool import Pool, PoolStatistics
from .ref import End, Monitor, Ref, Request
from .root import Root
from .supervisor import ChildSpec, Supervisor

__all__ = [
    "HOLD",
    "NOTED",
    "PASS",
    "Actor",
    "Backoff",
    "Bus",
    "ChildSpec",
    "Desk",
    "End",
    "EndOfMail",
    "Feed",
    "FrontEnd",
    "Lease",
    "Monitor",
    "Policy",
    "Pool",
    "PoolStatistics",
    "QuestionTimeout",
    "Ref",
    "Request",
    "Root",
    "Stream",
    "Supervisor",
]
