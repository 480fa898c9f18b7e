"""Executors of each kind of node, by kind in `WORK`.

An executor receives a `NodeJob` and returns a `NodeResult`; `run` does everything else. May import modules of graph/,
except `compile` and `decider`, and conversation/. Only `map` imports `run`, for the nodes of its branch. Start with
`script`, then `model_nodes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..plan import Work
from .map import run_map_node
from .model_nodes import run_agent_node, run_llm_node, run_rag_node
from .question_nodes import run_approval_node, run_input_node
from .script import run_script_node

if TYPE_CHECKING:
    from .....supervisors import Actor
    from ..plan import NodeJob, NodeResult


async def _run_function_node(me: Actor, job: NodeJob) -> NodeResult:
    from .function import run_function_node  # lazy: graphs from files do not need its imports

    return await run_function_node(me, job)


WORK: dict[str, Work] = {
    "script": run_script_node,
    "function": _run_function_node,
    "llm": run_llm_node,
    "agent": run_agent_node,
    "approval": run_approval_node,
    "input": run_input_node,
    "rag": run_rag_node,
    "map": run_map_node,
}
"""Executor by kind of node. An end node has none: the decider renders its output."""
