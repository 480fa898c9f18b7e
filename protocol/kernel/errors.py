"""What can go wrong in the kernel, by name, and the base of all errors of this package.

Each class has a stable `code` (what JSON output and events carry) and the `exit_code` that the command line ends with
when the error ends a run; `protocol/errors` lists both, with the errors of everything above the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class CallboardError(Exception):
    """Base of all errors of this package.

    Attributes:
        code: stable identifier, `snake_case`.
        exit_code: what `callboard run` exits with when this error ends the run.
        transient: whether it may pass by itself, so that another try may help.
        node: id of the graph node it happened at, where that is known.
    """

    code: str = "error"
    exit_code: int = 1
    transient: bool = False
    node: str | None = None

    def at(self, node: str) -> CallboardError:
        """Name the node this happened at, unless a deeper one is named already; returns self."""
        if self.node is None:
            self.node = node
        return self


def code_of(error: BaseException) -> str:
    """The code of any error: that of one that is not ours is `error`."""
    return error.code if isinstance(error, CallboardError) else CallboardError.code


# --- actors and mail -----------------------------------------------------------------------------------------------


class ActorError(CallboardError):
    """Something about an actor or a message."""

    code = "actor"


class EndOfMail(ActorError):
    """Raised by `receive` when the actor has been told to stop. Letting it escape is a normal end."""

    code = "end_of_mail"


class MailboxFull(ActorError):
    """`tell_nowait` found the mailbox full. Use `await tell` to wait for room, or tell less."""

    code = "mailbox_full"


class ActorDead(ActorError):
    """The actor has ended (or ended before it got to this message), so no answer will come."""

    code = "actor_dead"


class NoReply(ActorError):
    """The actor took the request and went on to the next message without a reply."""

    code = "no_reply"


class AskTimeout(ActorError, TimeoutError):
    """No reply within `timeout`. The message may still be handled; a late reply becomes a dead letter."""

    code = "ask_timeout"


class Deadlock(ActorError):
    """The ask could never be answered: an actor asked itself, or a circle of actors wait for each other."""

    code = "deadlock"


class ActorFailed(ActorError):
    """The actor crashed; `__cause__` is what it crashed with."""

    code = "actor_failed"


class ActorCancelled(ActorError):
    """The actor was stopped before it had a result."""

    code = "actor_cancelled"


class DoesNotEnd(ActorError):
    """The actor was interrupted and runs on: it shields itself or swallows its cancellation for too long."""

    code = "does_not_end"


class TooManyRestarts(ActorError):
    """A supervisor's intensity was exceeded: it stopped its children and gave up. Or a pool's breaker is open."""

    code = "too_many_restarts"


class ShuttingDown(ActorError):
    """The root is stopping and admits no new work."""

    code = "shutting_down"


class ProcessError(CallboardError):
    """A subprocess could not be started, or ended in a way its owner did not expect."""

    code = "process"


class PoolClosed(ActorError):
    """The pool is closing and leases nothing more."""

    code = "pool_closed"


# --- questions and limits ------------------------------------------------------------------------------------------


class RunFailed(CallboardError):
    """The run ended without a result."""

    code = "run_failed"


class LimitReached(RunFailed):
    """A limit set by the user ended the work."""

    code = "limit"
    exit_code = 4


class TimedOut(LimitReached):
    """A node's or the whole run's `timeout` passed."""

    code = "timeout"


class NobodyToAsk(RunFailed):
    """A person was needed and none was there: no terminal, no answer given, no default."""

    code = "nobody_to_ask"
    exit_code = 5


class Saturated(CallboardError):
    """As much as may go on at a time goes on already; later it may be possible."""

    code = "saturated"
    exit_code = 6


# --- the journal -----------------------------------------------------------------------------------------------------


class JournalError(CallboardError):
    """What a run needs to outlive its process can't be written or read."""

    code = "journal"


class JournalBroken(JournalError):
    """Nothing more can be written: the journal's file is damaged or gone, or the disk has lost what it had taken."""

    code = "journal_broken"


class JournalUnread(JournalError):
    """A journal can't be read or written as things are: the disk is full, or somebody holds the file."""

    code = "journal_unread"
    exit_code = 6


class JournalPlace(JournalError):
    """No journal can be kept in this directory: it is on a file system that other machines share."""

    code = "journal_place"
    exit_code = 3


class Damaged(JournalError):
    """A journal says something else than was written.

    Attributes:
        rows: those before the damage, each as it was written.
    """

    code = "journal_damaged"

    def __init__(self, message: str, rows: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.rows: tuple[Any, ...] = tuple(rows)


class RunClaimed(JournalError):
    """Another process goes on with this run, so nothing more of it may be written here, or done."""

    code = "run_claimed"


class StillPlayed(JournalError):
    """The process that plays these runs lives, so no other may go on with them."""

    code = "run_still_played"
