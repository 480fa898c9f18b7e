"""Node types whose code waits, by config type in `CODE`. The code receives its `Job` and returns its output, or raises.

Literals, passthroughs and gates never wait (`perform._instant`). A subgraph is executed like the graph around it
(`GraphRun`). May import modules of workflow/, except `decider` and `run`, and conversation/. Start with `human`, then
`agent`.
"""

from __future__ import annotations

from .....protocol.workflow.model import AgentConfig, CustomConfig, HumanConfig, NodeConfig, PythonConfig
from .....supervisors import Actor
from ..job import Code, Job
from ..machine.perform import Said
from .custom import run_custom_node
from .human import run_human_node
from .python import run_python_node


async def run_agent(me: Actor, job: Job) -> Said:
    """Import the agent node's dependencies only for workflows that have one, and run it."""
    from .agent import run_agent_node

    return await run_agent_node(me, job)


CODE: dict[type[NodeConfig], Code] = {
    AgentConfig: run_agent,
    HumanConfig: run_human_node,
    PythonConfig: run_python_node,
    CustomConfig: run_custom_node,
}
"""Code by the config type of a node."""
