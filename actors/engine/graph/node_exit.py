"""Exit of a node: its state updates and its targets, after success or failure. Pure functions, which change no state.

The rule of tolerant failure:

    the work      with `fallback`          without
    succeeds      `next` (or its own choice)
    fails         the fallback             `on_error`: continue or collect: `next`, with the error as `{{output}}`
                                           llm and script, by `compat`: the same; else the run fails

A run that continues after a failure succeeds only if the author has accepted the failure, by a `fallback` or by
`on_error`. Any other failure is `unaccepted`, also in child agents and map items. A run with such a
failure is `failed` even if it reaches its end.

Errors of `result.NEVER_TOLERATED` (the author's mistakes, a missing user, a budget) are never the node's own
failure. An unavailable model (`ConfigError`) and a call with an unknown outcome (`UnknownOutcome`) use a declared
fallback, but not the tolerance by `compat`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ....protocol.errors import CallboardError, ConfigError, GraphMistake, UnknownOutcome, code_of
from ....protocol.events import EventData, NodeExited, Warned
from ....protocol.graph import Raw
from ....protocol.messages import Failure, NodeDone, WorkFailed
from .compat import Compat
from .plan import ERRORS, GraphPlan, NodeResult, PlanStep, State
from .result import NEVER_TOLERATED, ExtractionFailed, detached, reworded
from .templates import MISSING, compile_template

ACCEPTING = ("continue", "collect")
"""Values of `on_error` that accept a node's failures."""


class NodeExit(msgspec.Struct, kw_only=True):  # not gc=False: the traceback of an error can refer to this object
    """Exit of a node.

    Attributes:
        writes: state keys that it set.
        targets: the next nodes of its lane; None after an error that fails the run.
        output: its primary result.
        error: its failure, also if it was tolerated.
        warning: text of a tolerated failure, for the run's events; "" if there is none.
        unaccepted: a tolerated failure that the author has not accepted.
    """

    writes: dict[str, Any]
    targets: tuple[str, ...] | None
    output: Any = None
    error: CallboardError | None = None
    warning: str = ""
    unaccepted: CallboardError | None = None


def accepts(step: PlanStep, left: NodeExit) -> bool:
    """Return True if the author has accepted failures of this node and of the agents and items below it."""
    fell_back = left.error is not None and left.targets is not None and step.fallback is not None
    return fell_back or step.on_error in ACCEPTING


def succeeded(plan: GraphPlan, step: PlanStep, state: State, result: NodeResult, *, in_map: bool) -> NodeExit:
    """Return the exit of a node whose work returned `result`.

    Raises:
        GraphMistake: the node has no target, or its updates cannot be rendered.
    """
    writes = result.writes
    if step.updates:
        writes = dict(writes)
        apply_updates(step.updates, state, writes, result.scope, result.output, plan.compat)
    targets = result.goto if result.goto is not None else step.next
    if targets is None:
        if not in_map:
            raise GraphMistake(f"{step.kind} node '{step.id}' has no `next` and is not an end node")
        targets = ()
    return NodeExit(writes=writes, targets=targets, output=result.output)


def failed(plan: GraphPlan, step: PlanStep, state: State, error: CallboardError, *, in_map: bool) -> NodeExit:
    """Return the exit of a node whose work failed or was cancelled."""
    error.at(step.id)
    if isinstance(error, NEVER_TOLERATED):
        return NodeExit(writes={}, targets=None, error=error)
    text = _error_text(step, error)
    # A declared fallback takes precedence over `on_error`.
    if step.fallback is not None:
        writes: dict[str, Any] = {}
        # As in Loki 0.4.0: the updates of a failed llm node run before its fallback, with the error text as
        # `{{output}}`.
        if step.updates_on_failure:
            _updates_after_failure(plan, step, state, writes, text)
        return NodeExit(writes=writes, targets=(step.fallback,), output=text, error=error)
    if not _tolerated(plan, step, error, in_map=in_map):
        return NodeExit(writes={}, targets=None, output=text, error=_untolerated(step, error))
    targets = step.next or ()
    if not targets and not in_map:
        return NodeExit(writes={}, targets=None, output=text, error=_untolerated(step, error))
    writes = {}
    _updates_after_failure(plan, step, state, writes, text)
    if step.on_error == "collect":
        writes[ERRORS] = [{"node": step.id, "error": str(error), "code": error.code}]
    return NodeExit(
        writes=writes,
        targets=targets,
        output=text,
        error=error,
        warning=f"node '{step.id}' failed and the run continues: {error}",
        unaccepted=None if step.on_error in ACCEPTING else detached(error),
    )


def cancelled(
    plan: GraphPlan, step: PlanStep, state: State, message: WorkFailed, *, in_map: bool
) -> tuple[NodeExit, NodeDone]:
    """Return the exit of a node whose actor ended without a result, as for a failure."""
    left = failed(plan, step, state, message.failure.restore(), in_map=in_map)
    unaccepted = () if left.unaccepted is None else (Failure.of(left.unaccepted),)
    return left, as_message(message.key, step, left, message.seconds, unaccepted)


def as_message(key: int, step: PlanStep, left: NodeExit, seconds: float, unaccepted: tuple[Failure, ...]) -> NodeDone:
    """Return the message about a node's exit for its graph or its map."""
    return NodeDone(
        key,
        node=step.id,
        writes=left.writes,
        targets=left.targets,
        output=left.output,
        failure=None if left.error is None else Failure.of(left.error),
        unaccepted=unaccepted,
        seconds=seconds,
    )


def events_of(step: PlanStep, left: NodeExit, seconds: float, item: int | None) -> list[EventData]:
    """Return the events about a node's exit."""
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
        updates: state key to template. Missing keys render as nothing; values are text, unless `Raw`.
        state: the snapshot that the node read.
        writes: the node's writes so far; the templates see them, and the results are added.
        scope, output: the scoped name and its value, if there is one.
    """
    # The node's own writes are visible to its updates, and override the snapshot.
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
        # Loki 0.4.0 restores the former value of the name, even over an update of that name.
        rendered.pop(scope, None)
        if scope not in state and scope not in writes:
            rendered[scope] = None
    writes.update(rendered)


def _tolerated(plan: GraphPlan, step: PlanStep, error: CallboardError, *, in_map: bool) -> bool:
    if step.on_error in ACCEPTING:
        return True
    if step.on_error == "fail" or isinstance(error, ConfigError | UnknownOutcome):
        return False
    if in_map:  # the map decides about the failure of an item; Loki 0.4.0 collects an llm's error text as its answer
        return plan.compat.map_branch_is_one_node and step.kind == "llm"
    return step.tolerant and step.next is not None


def _updates_after_failure(plan: GraphPlan, step: PlanStep, state: State, writes: dict[str, Any], text: str) -> None:
    if step.updates:
        apply_updates(step.updates, state, writes, "output", text, plan.compat)


def _error_text(step: PlanStep, error: CallboardError) -> str:
    if not step.fails_as:
        return str(error)
    # Loki's words, here and in `_untolerated`.
    what = "structured-extraction failed" if isinstance(error, ExtractionFailed) else "failed"
    return f"{step.fails_as} {what}: {error}"


def _untolerated(step: PlanStep, error: CallboardError) -> CallboardError:
    if step.kind != "llm" or isinstance(error, ConfigError):
        return error
    reason = f"structured-extraction failed: {error}" if isinstance(error, ExtractionFailed) else str(error)
    text = f"LLM node failed and no fallback declared: {reason.removesuffix('.')}. "
    return reworded(error, text + f"Add a `fallback:` route to node '{step.id}' to handle this")
