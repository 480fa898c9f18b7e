"""A plain agent: its instructions, the user's words, the model's answer. No tools, no children, no session.

What else a `config.yaml` may ask for is read and checked (`protocol.agent`), and refused here in one line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...protocol.agent import Agent
from ...protocol.chat import ChatRequest, UserTurn
from ...protocol.errors import Unsupported
from ..context import RunContext

if TYPE_CHECKING:
    from ...supervisors import Actor

_LATER = (
    "global_tools",
    "mcp_servers",
    "documents",
    "can_spawn_agents",
    "dynamic_instructions",
    "auto_continue",
    "agent_session",
)
_NAME = re.compile(r"\{\{([A-Za-z0-9_]+)\}\}")


def refuse_what_is_not_there_yet(agent: Agent) -> None:
    """Raise `Unsupported` for the first key of the file that this version can't act on."""
    for key in _LATER:
        if getattr(agent, key):
            raise Unsupported(f"agent '{agent.name}' uses `{key}`; this version can't run that yet")


async def run_plain_agent(me: Actor, agent: Agent, prompt: str, values: Mapping[str, str], context: RunContext) -> str:
    """Body of the agent's actor: its answer.

    Args:
        values: the agent's variables, put in for `{{name}}` in its instructions.
    """
    refuse_what_is_not_there_yet(agent)
    system = _NAME.sub(lambda found: values.get(found.group(1), found.group(0)), agent.instructions)
    request = ChatRequest(
        model=context.model or agent.model or "",
        messages=(UserTurn(prompt),),
        system=system,
        temperature=agent.temperature,
        top_p=agent.top_p,
    )
    return (await context.chat(me, request)).text
