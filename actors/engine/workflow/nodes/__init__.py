"""What each type of node does that takes its time. Its code knows its `Job` and returns what it says, or raises.

Literals, passthroughs and gates are done as soon as they have begun (`perform._instant`), and a subgraph is played like
the graph it stands in (`play`).
"""

from __future__ import annotations

from .....protocol.workflow.model import AgentConfig, CustomConfig, HumanConfig, NodeConfig, PythonConfig
from .....supervisors import Actor
from ..machine.perform import Said
from ..plan import Code, Job
from .custom import run_custom_node
from .human import run_human_node
from .python import run_python_node


async def run_agent(me: Actor, job: Job) -> Said:
    """agent nodes: their room, with all it needs, is imported by workflows that have one."""
    from .agent import run_agent_node

    return await run_agent_node(me, job)


CODE: dict[type[NodeConfig], Code] = {
    AgentConfig: run_agent,
    HumanConfig: run_human_node,
    PythonConfig: run_python_node,
    CustomConfig: run_custom_node,
}
"""Config of a node to its own code."""
