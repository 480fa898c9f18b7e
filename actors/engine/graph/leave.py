"""How a node is left: its state updates, and where it goes, failed or not. Pure: it reads a state and changes none.

This is the rule of tolerant failure in one place:

    the work      with `fallback`          without
    succeeds      `next` (or its own choice)
    fails         the fallback             `on_error`: continue or collect: `next`, with the error as `{{output}}`
                                           llm and script, by `compat`: the same; else the run fails

A run that goes on over a failure has succeeded only if the author of the file has accepted it, by a `fallback` or by
`on_error`. Any other is `unaccepted`, with those of child agents and map items, and the run that reaches its end all
the same is `failed`.

What is in `failures.NEVER_TOLERATED` (the author's mistakes, a want of a person, a budget) is never a node's own
failure. A model that is not to be had (`ConfigError`) takes a fallback that is written down, but no tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ....protocol.errors import CallboardError, ConfigError, GraphMistake, code_of
from ....protocol.events import EventData, NodeExited, Warned
from ....protocol.failure import Failure
from ....protocol.graph.model import Raw
from ....protocol.messages import NodeLeft, WorkFailed
from .compat import Compat
from .failures import NEVER_TOLERATED, ExtractionFailed, noted, retold
from .plan import ERRORS, Plan, Result, State, Step
from .templates import MISSING, compile_template

ACCEPTING = ("continue", "collect")
"""What an author says on a node whose failures are no failure of the run."""


class Left(msgspec.Struct, kw_only=True, gc=False):
    """How a node was left.

    Attributes:
        writes: state keys it set.
        targets: where its lane goes; None after an error that fails the run.
        output: its primary result.
        error: what it failed with, also if that was tolerated.
        warning: the failure that the run goes on over, for those who watch; "" if there is none.
        unaccepted: that failure, if the author has not accepted it.
    """

    writes: dict[str, Any]
    targets: tuple[str, ...] | None
    output: Any = None
    error: CallboardError | None = None
    warning: str = ""
    unaccepted: CallboardError | None = None


def accepts(step: Step, left: Left) -> bool:
    """Whether the author has said what a failure of this node, or of what it plays, comes to."""
    fell_back = left.error is not None and left.targets is not None and step.fallback is not None
    return fell_back or step.on_error in ACCEPTING


def succeeded(plan: Plan, step: Step, state: State, result: Result, *, in_map: bool) -> Left:
    """The node's work came to `result`.

    Raises:
        GraphMistake: it says nothing of where to go, or its updates can't be rendered.
    """
    writes = dict(result.writes)
    if step.updates:
        apply_updates(step.updates, state, writes, result.scope, result.output, plan.compat)
    targets = result.goto if result.goto is not None else step.next
    if targets is None:
        if not in_map:
            raise GraphMistake(f"{step.kind} node '{step.id}' has no `next` and is not an end node")
        targets = ()
    return Left(writes=writes, targets=targets, output=result.output)


def failed(plan: Plan, step: Step, state: State, error: CallboardError, *, in_map: bool) -> Left:
    """The node's work failed, or was cancelled."""
    error.at(step.id)
    if isinstance(error, NEVER_TOLERATED):
        return Left(writes={}, targets=None, error=error)
    text = _error_text(step, error)
    if step.fallback is not None:
        writes: dict[str, Any] = {}
        if step.updates_on_failure:
            _updates_after_failure(plan, step, state, writes, text)
        return Left(writes=writes, targets=(step.fallback,), output=text, error=error)
    if not _tolerated(plan, step, error, in_map=in_map):
        return Left(writes={}, targets=None, output=text, error=_untolerated(step, error))
    targets = step.next or ()
    if not targets and not in_map:
        return Left(writes={}, targets=None, output=text, error=_untolerated(step, error))
    writes = {}
    _updates_after_failure(plan, step, state, writes, text)
    if step.on_error == "collect":
        writes[ERRORS] = [{"node": step.id, "error": str(error), "code": error.code}]
    return Left(
        writes=writes,
        targets=targets,
        output=text,
        error=error,
        warning=f"{step.id} failed and the run goes on: {error}",
        unaccepted=None if step.on_error in ACCEPTING else noted(error),
    )


def cancelled(plan: Plan, step: Step, state: State, message: WorkFailed, *, in_map: bool) -> tuple[Left, NodeLeft]:
    """The node's actor came to no result: it is left as its failure says."""
    left = failed(plan, step, state, message.failure.restore(), in_map=in_map)
    unaccepted = () if left.unaccepted is None else (Failure.of(left.unaccepted),)
    return left, as_message(message.key, step, left, message.seconds, unaccepted)


def as_message(key: int, step: Step, left: Left, seconds: float, unaccepted: tuple[Failure, ...]) -> NodeLeft:
    """How a node was left, for its graph or its map."""
    return NodeLeft(
        key,
        node=step.id,
        writes=left.writes,
        targets=left.targets,
        output=left.output,
        failure=None if left.error is None else Failure.of(left.error),
        unaccepted=unaccepted,
        seconds=seconds,
    )


def told(step: Step, left: Left, seconds: float, item: int | None) -> list[EventData]:
    """The events that say how a node was left."""
    error, code = (None, "") if left.error is None else (str(left.error), code_of(left.error))
    exited = NodeExited(node=step.id, seconds=seconds, next=list(left.targets or ()), item=item, error=error, code=code)
    if not left.warning:
        return [exited]
    return [Warned(code="node_failed", message=left.warning, node=step.id), exited]


def apply_updates(
    updates: Mapping[str, str | Raw],
    state: Mapping[str, Any],
    writes: dict[str, Any],
    scope: str | None,
    output: Any,
    compat: Compat,
) -> None:
    """Add the values of `updates` to `writes`.

    Args:
        updates: state key to template. Missing keys in it are empty; values are text, unless `Raw`.
        state: the snapshot the node worked on.
        writes: what the node wrote so far; the templates see it, and get added to it.
        scope, output: the scoped name and its value, if there is one.
    """
    view: dict[str, Any] = {**state, **writes}
    if scope is not None:
        view[scope] = output
    rendered: dict[str, Any] = {}
    for key, template in updates.items():
        if isinstance(template, Raw):
            value = compile_template(template.raw).value(view)
            rendered[key] = None if value is MISSING else value
        else:
            rendered[key] = compile_template(template).lenient(view, expand_again=compat.values_expand_again)
        if compat.updates_see_each_other and key != scope:
            view[key] = rendered[key]
    if compat.scoped_names_stay_null and scope is not None:
        # Loki 0.4.0 puts back what the name held before, also over an update of that very name.
        rendered.pop(scope, None)
        if scope not in state and scope not in writes:
            rendered[scope] = None
    writes.update(rendered)


def _tolerated(plan: Plan, step: Step, error: CallboardError, *, in_map: bool) -> bool:
    if step.on_error in ACCEPTING:
        return True
    if step.on_error == "fail" or isinstance(error, ConfigError):
        return False
    if in_map:  # an item's failure is its map's business; Loki 0.4.0 takes an llm's for its answer
        return plan.compat.map_branch_is_one_node and step.kind == "llm"
    return step.tolerant and step.next is not None


def _updates_after_failure(plan: Plan, step: Step, state: State, writes: dict[str, Any], text: str) -> None:
    if step.updates:
        apply_updates(step.updates, state, writes, "output", text, plan.compat)


def _error_text(step: Step, error: CallboardError) -> str:
    if not step.fails_as:
        return str(error)
    what = "structured-extraction failed" if isinstance(error, ExtractionFailed) else "failed"
    return f"{step.fails_as} {what}: {error}"


def _untolerated(step: Step, error: CallboardError) -> CallboardError:
    if step.kind != "llm" or isinstance(error, ConfigError):
        return error
    reason = f"structured-extraction failed: {error}" if isinstance(error, ExtractionFailed) else str(error)
    text = f"LLM node failed and no fallback declared: {reason.removesuffix('.')}. "
    return retold(error, text + f"Add a `fallback:` route to node '{step.id}' to handle this")
