"""Errors of the kernel, and the base class of all errors of this package.

Each class has a stable `code`, for JSON output and events, and an `exit_code`, the exit status of the command line when
the error ends a run. `protocol/errors` lists both, including the errors of the layers above the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class CallboardError(Exception):
    """Base of all errors of this package.

    Attributes:
        code: stable identifier, `snake_case`.
        exit_code: exit status of `callboard run` when this error ends the run.
        transient: True if a retry may succeed.
        node: id of the graph node where it happened, if known.
    """

    code: str = "error"
    exit_code: int = 1
    transient: bool = False
    node: str | None = None

    def at(self, node: str) -> CallboardError:
        """Set the node where it happened, unless a deeper node is set already; return self."""
        if self.node is None:
            self.node = node
        return self


def code_of(error: BaseException) -> str:
    """Return the code of any error; `error` for classes outside of this package."""
    return error.code if isinstance(error, CallboardError) else CallboardError.code


# --- actors and mail -----------------------------------------------------------------------------------------------


class ActorError(CallboardError):
    """Base class of errors about actors and messages; also raised for misuse of the kernel."""

    code = "actor"


class EndOfMail(ActorError):
    """Raised by `receive` when the actor is to stop. A body that does not catch it ends normally."""

    code = "end_of_mail"


class MailboxFull(ActorError):
    """The mailbox was full at `tell_nowait`. Use `await tell` to wait for room, or send less."""

    code = "mailbox_full"


class ActorDead(ActorError):
    """The actor has ended, or ended before it received this message, so no reply will come."""

    code = "actor_dead"


class NoReply(ActorError):
    """The actor received its next message without replying to this one."""

    code = "no_reply"


class AskTimeout(ActorError, TimeoutError):
    """No reply within `timeout`. The message may still be handled; a late reply becomes a dead letter."""

    code = "ask_timeout"


class Deadlock(ActorError):
    """The reply could never come: an actor asked itself, or actors wait for each other in a circle."""

    code = "deadlock"


class ActorFailed(ActorError):
    """The actor crashed; `__cause__` is the exception."""

    code = "actor_failed"


class ActorCancelled(ActorError):
    """The actor was stopped or cancelled before it had a result."""

    code = "actor_cancelled"


class DoesNotEnd(ActorError):
    """The actor was interrupted and still runs: it shields itself, or swallows its cancellation, for too long."""

    code = "does_not_end"


class TooManyRestarts(ActorError):
    """A supervisor stopped its children and failed, as its intensity was exceeded; or a breaker is open."""

    code = "too_many_restarts"


class ShuttingDown(ActorError):
    """The root is stopping and admits no new work."""

    code = "shutting_down"


class ProcessError(CallboardError):
    """A subprocess or its sandbox could not be started, or a subprocess could not be ended in time."""

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
    """A time limit passed: of a run, a node, a process or a question."""

    code = "timeout"


class NobodyToAsk(RunFailed):
    """No user can answer a question: no front end is attached, and no answer or default was given."""

    code = "nobody_to_ask"
    exit_code = 5


class Saturated(CallboardError):
    """A limit of concurrent work is reached; a later attempt may succeed."""

    code = "saturated"
    exit_code = 6


# --- the journal -----------------------------------------------------------------------------------------------------


class JournalError(CallboardError):
    """The journal of a durable run can't be written or read."""

    code = "journal"


class JournalBroken(JournalError):
    """Nothing more can be written: the journal's file is damaged or gone, or the disk has lost data."""

    code = "journal_broken"


class JournalUnread(JournalError):
    """A journal can't be read or written at the moment: the disk is full, or the file is locked."""

    code = "journal_unread"
    exit_code = 6


class JournalPlace(JournalError):
    """The directory can't hold a journal: it is on a file system that other machines share."""

    code = "journal_place"
    exit_code = 3


class Damaged(JournalError):
    """The content of a journal is not as it was written.

    Attributes:
        rows: the undamaged rows before the damage.
    """

    code = "journal_damaged"

    def __init__(self, message: str, rows: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.rows: tuple[Any, ...] = tuple(rows)


class RunClaimed(JournalError):
    """Another process has taken this run over, so this one may write and execute nothing more of it."""

    code = "run_claimed"


class StillPlayed(JournalError):
    """The process that executes these runs is alive, so no other process may resume them."""

    code = "run_still_played"
