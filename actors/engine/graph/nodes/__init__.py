"""What each kind of node does. A node knows its `Job` and returns a `Result`; everything else is `execute`'s."""

from __future__ import annotations

from ..plan import Work
from .agent import run_agent_node
from .llm import run_llm_node
from .map import run_map_node
from .person import run_approval_node, run_input_node
from .rag import run_rag_node
from .script import run_script_node

WORK: dict[str, Work] = {
    "script": run_script_node,
    "llm": run_llm_node,
    "agent": run_agent_node,
    "approval": run_approval_node,
    "input": run_input_node,
    "rag": run_rag_node,
    "map": run_map_node,
}
"""Kind of node to its work. An end node has none: the scheduler renders its output."""
