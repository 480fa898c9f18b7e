"""function nodes: call a Python function with the state and merge its result.

They occur in graphs that a program builds (`runs.python_graph`). A returned mapping writes its keys into the state,
and its key `_next` selects the target, as for scripts. If the node has `state_updates`, the value is their
`{{output}}` and writes nothing by itself.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from .....protocol.errors import NodeFailed, TimedOut, UsageError
from .....protocol.graph import FunctionNode
from .....protocol.json_values import to_json
from .....supervisors.user_code import user_code
from ....work import playback as play
from ....work.call_clock import Clock
from ....work.context import CallingAgent
from ....work.journal.unknown_outcome import Skipped, may_run
from ....work.tools.functions import Context, call_function, declaration_of, is_async, is_context, parameters_of
from ..plan import NodeJob, NodeResult

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ....work.tools.functions import Function

_REPEATABLE = ("read", "idempotent")
"""Declared effects of functions that are called again after a crash without a question to the user."""


class Signature(msgspec.Struct, frozen=True):
    """Parameters of a node's function.

    Attributes:
        value: the parameter for the state or the item; None for none.
        context: the parameter for the context; None for none.
    """

    value: str | None
    context: str | None


def signature_of(function: Function) -> Signature:
    """Return the parameters of a function that is used as a node.

    Raises:
        UsageError: its parameters do not fit.
    """
    name = getattr(function, "__name__", repr(function))
    parameters, hints = parameters_of(function, name)
    context: str | None = None
    others = []
    for parameter in parameters:
        if is_context(hints.get(parameter.name)):
            context = parameter.name
        elif parameter.default is parameter.empty:
            others.append(parameter)
    if len(others) > 1 or any(each.kind in (each.VAR_KEYWORD, each.POSITIONAL_ONLY) for each in others):
        raise UsageError(
            f"function '{name}' can't be a node: it can have one parameter for the state (in a map, for the item), "
            "one of type callboard.Context, and others only with defaults"
        )
    return Signature(others[0].name if others else None, context)


async def run_function_node(me: Actor, job: NodeJob) -> NodeResult:
    """Call the function within the node's timeout; the clock stops while the function waits for a user.

    In a durable run, a call that was running when a process died is repeated if the function's declared effect is
    `read` or `idempotent`. Otherwise `on_unknown` decides (`may_run`). A stored result is never computed again.

    Raises:
        TimedOut: the timeout has passed.
        NodeFailed: the state cannot hold the returned value, or it is no mapping and the node has no `state_updates`.
    """
    node = job.node
    assert isinstance(node, FunctionNode)
    clock = Clock(job.plan.steps[node.id].timeout)
    # The clock stops while the function waits for a user.
    with clock.counting(), clock.scope:
        if declaration_of(node.function).effect not in _REPEATABLE:
            left_out = await may_run(me, node.id, f"the function '{node.script}'", job.context.settles(node.on_unknown))
            if isinstance(left_out, Skipped):
                return _result(node, left_out.output or {})
        given = job.state[node.item] if node.item else dict(job.state)
        effect = play.OutsideEffect("node", node.id, given)
        return _result(node, await play.done(me, effect, object, lambda: _called(me, job, node, given)))
    raise TimedOut(f"function node '{node.id}' timed out after {clock.seconds:g}s")


async def _called(me: Actor, job: NodeJob, node: FunctionNode, given: Any) -> Any:
    signature = signature_of(node.function)
    values: dict[str, Any] = {}
    if signature.value is not None:
        # the function must not modify the snapshot, which parallel nodes share
        values[signature.value] = copy.deepcopy(given)
    if signature.context is not None:
        agent = CallingAgent(
            context=job.context,
            name=node.id,
            depth=job.depth,
            record=job.record,
            permissions=job.plan.permissions,
            max_depth=job.plan.max_depth,
        )
        values[signature.context] = Context[Any](me, agent, node.id)
    with user_code:
        value = await call_function(me, node.function, values, asynchronous=is_async(node.function))
        try:
            # The state is stored as JSON, so other values must be rejected here.
            return to_json(value)
        except TypeError as error:
            raise NodeFailed(f"function '{node.script}' returned a value that the state can't hold: {error}") from error


def _result(node: FunctionNode, value: Any) -> NodeResult:
    if node.updates:
        return NodeResult(output=value, scope="output")
    if value is None:
        return NodeResult()
    if not isinstance(value, Mapping):
        raise NodeFailed(
            f"function '{node.script}' returned {type(value).__name__}: a node's function must return a mapping of "
            "state keys, unless the node names the key of its value with `into=`"
        )
    writes = dict(value)
    target = writes.pop("_next", None)
    return NodeResult(output=value, writes=writes, goto=(target,) if isinstance(target, str) else None)
