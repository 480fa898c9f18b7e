"""agent nodes: run another agent as a child of this node."""

from __future__ import annotations

import math
from itertools import count

import msgspec

from .....protocol.errors import NodeFailed, UpstreamError
from .....protocol.graph import AgentNode
from .....supervisors import Actor, Retry
from ....work.context import AgentCall
from ....work.transcript import Record
from ..failures import ExtractionFailed, retold
from ..plan import NodeJob, NodeResult
from .llm import extract


async def run_agent_node(me: Actor, job: NodeJob) -> NodeResult:
    """Run the child agent and return its text, converted to the `output_schema` if the node has one."""
    node = job.node
    assert isinstance(node, AgentNode)
    depth = job.depth + 1
    context = job.context.below(job.plan.permissions, job.plan.max_depth).settling(node.on_unknown)
    too_deep = context.too_deep(depth)
    if too_deep is not None:
        raise NodeFailed(too_deep)
    prompt = job.strict(node.prompt)
    inputs = {name: job.strict(template) for name, template in node.inputs.items()}
    call = AgentCall(
        name=node.agent,
        prompt=prompt,
        variables=inputs,
        depth=depth,
        near=job.plan.directory,
        context=context,
        by_file=True,
        place=node.place,
    )
    text = await _with_attempts(me, job, node, call)
    if node.output_schema is None:
        return NodeResult(output=text, scope="output")
    try:
        value = await extract(me, job, text, node.output_schema)
    except ExtractionFailed as error:
        whose = f"Agent '{node.agent}' output failed structured-output extraction"
        raise retold(error, f"{whose}: {error}") from error
    return NodeResult(output=value, writes=dict(value) if isinstance(value, dict) else {}, scope="output")


async def _with_attempts(me: Actor, job: NodeJob, node: AgentNode, call: AgentCall) -> str:
    """Run the child up to `max_attempts` times, each time as a new actor, without backoff."""
    retry = Retry(most=node.max_attempts, patience=math.inf)
    for attempt in count(1):
        record = Record()
        try:
            return await call.context.run_agent(me, msgspec.structs.replace(call, record=record, attempt=attempt))
        except UpstreamError as error:
            if retry.wait(attempt, error) is None:
                raise
            record.failures.clear()  # this attempt is replaced by the next
        finally:
            job.failures += record.failures
    raise AssertionError("count() has no end")
