"""agent nodes: another agent does the work, as a child of this node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.errors import NodeFailed, UpstreamError
from ....protocol.graph.model import AgentNode
from ...context import AgentCall
from ..failures import retold
from ..plan import Job, Result
from ..structured import ExtractionFailed
from .llm import extract

if TYPE_CHECKING:
    from ....supervisors import Actor


async def run_agent_node(me: Actor, job: Job) -> Result:
    """Run the child and wait for its text; an `output_schema` is applied to that afterwards."""
    node = job.node
    assert isinstance(node, AgentNode)
    depth = job.depth + 1
    most = job.context.max_depth if job.plan.max_depth is None else job.plan.max_depth
    if depth > most:
        raise NodeFailed(f"Max agent depth exceeded ({depth}/{most})")
    prompt = job.strict(node.prompt)
    inputs = {name: job.strict(template) for name, template in node.inputs.items()}
    text = await _with_attempts(me, job, node, prompt, inputs, depth)
    if node.output_schema is None:
        return Result(output=text, scope="output")
    try:
        value = await extract(me, job, text, node.output_schema)
    except ExtractionFailed as error:
        whose = f"Agent '{node.agent}' output failed structured-output extraction"
        raise retold(error, f"{whose}: {error}") from error
    return Result(output=value, writes=dict(value) if isinstance(value, dict) else {}, scope="output")


async def _with_attempts(me: Actor, job: Job, node: AgentNode, prompt: str, inputs: dict[str, str], depth: int) -> str:
    """A whole run of the child per attempt; only what may pass by itself is tried again."""
    call = AgentCall(
        name=node.agent,
        prompt=prompt,
        variables=inputs,
        depth=depth,
        near=job.directory,
        context=job.context,
        by_file=True,
    )
    for attempt in range(1, node.max_attempts + 1):
        try:
            return await job.context.run_agent(me, call)
        except UpstreamError:
            if attempt == node.max_attempts:
                raise
    raise AssertionError("max_attempts is at least 1")
