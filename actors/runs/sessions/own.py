"""A session's own settings of its agent: sampling always, the rest where no agent's file has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ....protocol.agent import Agent
from ....protocol.mcp.config import split
from ....protocol.session import Session

if TYPE_CHECKING:
    from ....protocol.settings import Settings

_SAMPLING = ("temperature", "top_p")
_GOING_ON = ("auto_continue", "max_auto_continues", "inject_todo_instructions", "continuation_prompt")


def sampled(agent: Agent, session: Session) -> Agent:
    """The agent, with the session's `temperature` and `top_p`."""
    chosen = {key: value for key in _SAMPLING if (value := getattr(session, key)) is not None}
    return msgspec.structs.replace(agent, **chosen) if chosen else agent


def with_session(agent: Agent, session: Session, settings: Settings) -> Agent:
    """An agent without a file: what it may call, and whether it goes on by itself; the settings say the latter, too."""
    chosen = {}
    for key in _GOING_ON:
        own, of_settings = getattr(session, key), settings.other.get(key)
        value = own if own is not None else of_settings
        if value is not None:
            chosen[key] = value
    if session.enabled_tools is not None and not agent.global_tools:
        chosen["global_tools"] = tuple(split(session.enabled_tools))
    if session.enabled_mcp_servers is not None and not agent.mcp_servers and settings.mcp_server_support:
        chosen["mcp_servers"] = tuple(split(session.enabled_mcp_servers))
    return sampled(msgspec.structs.replace(agent, **chosen), session)
