"""Events of runs, of the actors in them, and of the people who are asked."""

from __future__ import annotations

from .data import EventData, Json

# --- the run ---------------------------------------------------------------------------------------------


class RunStarted(EventData, frozen=True, kw_only=True):
    """Always the first event. `target` is what the user named, `name` what the file calls itself.

    `model` is what answers wherever no node names its own (None if that is nowhere); where nobody chose it, `why`
    says how it came to be.
    """

    kind = "run.started"
    target: str
    name: str
    dialect: str
    model: str | None = None
    why: str = ""
    prompt: str = ""


class RunFinished(EventData, frozen=True, kw_only=True):
    """The run has its result. `outcome` is the object that `-o json` prints."""

    kind = "run.finished"
    outcome: Json


class RunFailed(EventData, frozen=True, kw_only=True):
    """The run failed; `outcome.error` says why. Its `output` is empty unless it went on over `failures` to its end."""

    kind = "run.failed"
    outcome: Json


class RunCancelled(EventData, frozen=True, kw_only=True):
    """The run was stopped from outside."""

    kind = "run.cancelled"
    outcome: Json


class Warned(EventData, frozen=True, kw_only=True):
    """Something the user should know although the run goes on. `code` is stable, `node` where it happened."""

    kind = "run.warning"
    code: str
    message: str
    node: str | None = None


# --- actors and mail -------------------------------------------------------------------------------------


class ActorSpawned(EventData, frozen=True, kw_only=True):
    """An actor has its place in the tree."""

    kind = "actor.spawned"


class ActorWaiting(EventData, frozen=True, kw_only=True):
    """An actor waits for an answer (`on` says for what)."""

    kind = "actor.waiting"
    on: str = ""


class ActorBusy(EventData, frozen=True, kw_only=True):
    """An actor that waited works again."""

    kind = "actor.busy"


class ActorPaused(EventData, frozen=True, kw_only=True):
    """The actor and all below it end the step they are in and begin nothing new, until it is resumed."""

    kind = "actor.paused"


class ActorResumed(EventData, frozen=True, kw_only=True):
    """An actor that was paused goes on."""

    kind = "actor.resumed"


class ActorRestarted(EventData, frozen=True, kw_only=True):
    """A supervisor started the actor again; `restarts` counts within its intensity period."""

    kind = "actor.restarted"
    error: str
    restarts: int


class ActorStuck(EventData, frozen=True, kw_only=True):
    """An actor did not end within its time; `stack` shows where it stands. It is no longer waited for."""

    kind = "actor.stuck"
    seconds: float
    stack: str = ""


class ActorStopped(EventData, frozen=True, kw_only=True):
    """Terminal: the actor returned, or was stopped or cancelled (`reason`)."""

    kind = "actor.stopped"
    reason: str = "normal"


class ActorFailed(EventData, frozen=True, kw_only=True):
    """Terminal: the actor crashed."""

    kind = "actor.failed"
    error: str
    code: str = "error"


class DeadLetter(EventData, frozen=True, kw_only=True):
    """A message that reached nobody: `to` had ended before it came to it, or nobody waits for the reply any more."""

    kind = "mail.dead"
    to: str
    message: str
    reason: str


# --- questions -------------------------------------------------------------------------------------------


class QuestionAsked(EventData, frozen=True, kw_only=True):
    """A person is needed. The envelope's `id` is the question's id."""

    kind = "question.asked"
    question: Json


class QuestionAnswered(EventData, frozen=True, kw_only=True):
    """A question has its answer; `by` says whose."""

    kind = "question.answered"
    value: Json
    by: str


class QuestionExpired(EventData, frozen=True, kw_only=True):
    """A question was closed without an answer (`reason`: timeout, cancelled, nobody)."""

    kind = "question.expired"
    reason: str


class JournalCheckpoint(EventData, frozen=True, kw_only=True):
    """Everything up to here is on disk."""

    kind = "journal.checkpoint"
    step: int
