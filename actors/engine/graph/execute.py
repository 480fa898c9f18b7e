"""One node of a graph, once: its work within its time, its state updates, and where it goes, failed or not.

This is the rule of tolerant failure in one place:

    the work      with `fallback`          without
    succeeds      `next` (or its own choice)
    fails         the fallback             `on_error`: continue or collect: `next`, with the error as `{{output}}`
                                           llm and script, by `compat`: the same; else the run fails

A run that goes on over a failure has succeeded only if the author of the file has accepted it, by a `fallback` or by
`on_error`. Any other goes into the job's `failures`, with those of child agents and map items, and the run that reaches
its end all the same is `failed`.

What is in `failures.NEVER_TOLERATED` (the author's mistakes, a want of a person, a budget) is never a node's own
failure. A model that is not to be had (`ConfigError`) takes a fallback that is written down, but no tolerance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ....protocol.errors import CallboardError, ConfigError, GraphMistake, TimedOut
from ....protocol.events import Warned
from .failures import NEVER_TOLERATED, noted, retold
from .once import Timed, once
from .plan import ERRORS, Job, Result, Step
from .structured import ExtractionFailed
from .updates import apply_updates

if TYPE_CHECKING:
    from ....supervisors import Actor


ACCEPTING = ("continue", "collect")
"""What an author says on a node whose failures are no failure of the run."""


class Left(msgspec.Struct, kw_only=True, gc=False):
    """How a node was left.

    Attributes:
        writes: state keys it set.
        targets: where its lane goes; None after an error that fails the run.
        output: its primary result.
        error: what it failed with, also if that was tolerated.
    """

    writes: dict[str, Any]
    targets: tuple[str, ...] | None
    output: Any = None
    error: CallboardError | None = None


async def execute(me: Actor, step: Step, job: Job, visit: int = 1, timed: Timed | None = None) -> Left:
    """Body of a node's actor. Errors that belong to the run are returned, not raised: see `Left`.

    Args:
        timed: told how many seconds it took, also if it was interrupted.
    """

    async def work() -> Left:
        assert step.work is not None
        return _succeed(step, job, await (step.work(me, job) if step.timeout is None else _in_time(me, step, job)))

    def failed(error: CallboardError) -> Left:
        return _fail(me, step, job, error)

    above, job.failures = job.failures, []
    left = await once(me, step.id, step.kind, work, failed, _leads, visit=visit, item=job.item, timed=timed)
    if not _accepts(step, left):
        above += job.failures
    return left


def _accepts(step: Step, left: Left) -> bool:
    """Whether the author has said what a failure of this node, or of what it plays, comes to."""
    fell_back = left.error is not None and left.targets is not None and step.fallback is not None
    return fell_back or step.on_error in ACCEPTING


def _leads(left: Left) -> tuple[tuple[str, ...], CallboardError | None]:
    return left.targets or (), left.error


async def _in_time(me: Actor, step: Step, job: Job) -> Result:
    assert step.work is not None
    assert step.timeout is not None
    with trio.move_on_after(step.timeout):
        return await step.work(me, job)
    raise TimedOut(_timeout_text(step))


def _timeout_text(step: Step) -> str:
    seconds = f"{step.timeout:g}"
    name = getattr(step.node, "script", None)
    if name is not None:
        return f"Script '{name}' timed out after {seconds}s"
    agent = getattr(step.node, "agent", None)
    if agent is not None:
        return f"Agent '{agent}' timed out after {seconds}s"
    which = f" '{step.id}'" if step.kind == "rag" else ""
    return f"{step.kind} node{which} timed out after {seconds}s"


def _succeed(step: Step, job: Job, result: Result) -> Left:
    writes = dict(result.writes)
    if step.updates:
        apply_updates(step.updates, job.state, writes, result.scope, result.output, job.plan.compat)
    targets = result.goto if result.goto is not None else step.next
    if targets is None:
        if job.item is None:
            raise GraphMistake(f"{step.kind} node '{step.id}' has no `next` and is not an end node")
        targets = ()
    return Left(writes=writes, targets=targets, output=result.output)


def _fail(me: Actor, step: Step, job: Job, error: CallboardError) -> Left:
    error.at(step.id)
    if isinstance(error, NEVER_TOLERATED):
        return Left(writes={}, targets=None, error=error)
    text = _error_text(step, error)
    if step.fallback is not None:
        writes: dict[str, Any] = {}
        if step.updates_on_failure:
            _updates_after_failure(step, job, writes, text)
        return Left(writes=writes, targets=(step.fallback,), output=text, error=error)
    if not _tolerated(step, job, error):
        return Left(writes={}, targets=None, output=text, error=_untolerated(step, error))
    targets = step.next or ()
    if not targets and job.item is None:
        return Left(writes={}, targets=None, output=text, error=_untolerated(step, error))
    writes = {}
    _updates_after_failure(step, job, writes, text)
    if step.on_error == "collect":
        writes[ERRORS] = [{"node": step.id, "error": str(error), "code": error.code}]
    me.emit(Warned(code="node_failed", message=f"{step.id} failed and the run goes on: {error}", node=step.id))
    job.failures.append(noted(error))
    return Left(writes=writes, targets=targets, output=text, error=error)


def _tolerated(step: Step, job: Job, error: CallboardError) -> bool:
    if step.on_error in ACCEPTING:
        return True
    if step.on_error == "fail" or isinstance(error, ConfigError):
        return False
    if job.item is not None:  # an item's failure is its map's business; Loki 0.4.0 takes an llm's for its answer
        return job.plan.compat.map_branch_is_one_node and step.kind == "llm"
    return step.tolerant and step.next is not None


def _updates_after_failure(step: Step, job: Job, writes: dict[str, Any], text: str) -> None:
    if step.updates:
        apply_updates(step.updates, job.state, writes, "output", text, job.plan.compat)


def _error_text(step: Step, error: CallboardError) -> str:
    if not step.fails_as:
        return str(error)
    return f"{step.fails_as} {_what_failed(error)}: {error}"


def _what_failed(error: CallboardError) -> str:
    return "structured-extraction failed" if isinstance(error, ExtractionFailed) else "failed"


def _untolerated(step: Step, error: CallboardError) -> CallboardError:
    """The error as the run reports it."""
    if step.kind != "llm" or isinstance(error, ConfigError):
        return error
    reason = f"structured-extraction failed: {error}" if isinstance(error, ExtractionFailed) else str(error)
    text = f"LLM node failed and no fallback declared: {reason.removesuffix('.')}. "
    return retold(error, text + f"Add a `fallback:` route to node '{step.id}' to handle this")
