"""rag nodes: search the node's knowledge base, which is built before the graph begins."""

from __future__ import annotations

from .....protocol.errors import CallboardError
from .....protocol.graph import RagNode
from .....supervisors import Actor
from ..failures import NEVER_TOLERATED, retold
from ..plan import NodeJob, NodeResult


async def run_rag_node(me: Actor, job: NodeJob) -> NodeResult:
    """Search for the query; the result is `{context, sources, chunks}`."""
    node = job.node
    assert isinstance(node, RagNode)
    query = job.strict(node.query)
    if job.context.flow is not None:
        job.context.flow.knows([job.plan.recipes[node.id]])
    try:
        found = await job.context.knowledge.retrieve(me, [job.plan.recipes[node.id]], query, top_k=node.top_k)
    except CallboardError as error:
        if isinstance(error, NEVER_TOLERATED):
            raise
        raise retold(error, f"rag node '{node.id}' retrieval failed: {error}") from error
    chunks = [
        {"text": hit.text, "source": hit.source, "score": hit.score, "lines": list(hit.lines)} for hit in found.chunks
    ]
    output = {"context": found.context, "sources": list(found.sources), "chunks": chunks}
    return NodeResult(output=output, scope="output")
