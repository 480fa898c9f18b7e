"""Default agent of chats in which the user names none: `chat_agent` of config.yaml, else the built-in `assistant`.

For Loki's commands, a chat in its default agent counts as one without an agent: `.role`, `.prompt` and `.agent NAME`
leave the default agent implicitly.

The chat begins without an agent, and the model has no tools or only the configured ones, if

    chat_agent: none          the user disables it
    compat: loki              Loki's chat has no agent
    enabled_tools, enabled_mcp_servers
                              these name the tools of a chat without an agent, and an agent would hide them
    the model                 cannot call tools, or its window is too small for their declarations
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ....protocol.control.errors import error_for_client
from ....protocol.errors import CallboardError, Denied, ShuttingDown
from ....protocol.model_names import models_of
from ...runs.finding import own_agents
from ...work.models.weights import KNOWN
from . import completion

if TYPE_CHECKING:
    from ....protocol.settings import Settings
    from .chat import Chat
    from .command_line import ChatLine

ASSISTANT = "assistant"
NONE = "none"
"""Value of `chat_agent` that disables the default agent."""

LEAST_WINDOW = 16_000
"""Minimum window in tokens. The declarations of the assistant's tools and its instructions take about 4,000."""

WIDTH = 78
"""Maximum characters of a line on the first screen; a terminal has 80."""

_HIDDEN = frozenset(("demo", "explore", "file-reviewer", "oracle", "report-writer"))
"""Built-in agents that the first screen omits, because only other agents call them."""


def name_of(settings: Settings) -> str | None:
    """Return the name of the default agent; None if it is disabled."""
    if settings.other.get("compat") == "loki":
        return None
    named = settings.other.get("chat_agent")
    return None if named == NONE else str(named or ASSISTANT)


async def begin_default(line: ChatLine, session: str | None, variables: dict[str, str]) -> list[str] | None:
    """Put the chat into the default agent and return the first lines of the screen; None if it has no agent.

    A failure does not prevent the chat: it begins without an agent, and the lines give the reason.
    """
    from .commands.agent import begin_agent

    chat = line.chat
    name = name_of(chat.settings)
    if name is None:
        return None
    if (why := _unfit(chat)) is not None:
        return [f"No agent: {why}.", *await _offered(line)] if why else None
    try:
        await begin_agent(line, name, session, variables)
    except ShuttingDown:
        raise
    except Denied:  # a caller with few scopes gets a chat without an agent instead of an error
        return None
    except CallboardError as error:
        return [f"No agent: '{name}' could not be begun: {error_for_client(line.caller, error)}", *await _offered(line)]
    chat.in_default_agent = True
    return await _offered(line, name)


def _unfit(chat: Chat) -> str | None:
    """Return the reason not to use the default agent: "" for one that the user knows, None if it can be used."""
    settings, model = chat.settings, chat.model_in_use
    # The user's configuration explains itself, so the screen gives no reason.
    if settings.enabled_tools or settings.enabled_mcp_servers:
        return ""
    if not settings.calls_functions:
        return "function calling is off, so the model only answers"
    gateway = chat.hub.root.gateway
    if model == gateway.choice().model and gateway.lacks_model():
        return ""  # the chat already begins with that message
    try:
        known = [gateway.catalog.named(name) for name in models_of(model)]
    except CallboardError:  # the first prompt reports it
        return None
    if not all(entry.supports_function_calling for _, entry in known):
        return f"{model} calls no tools, so it only answers"
    if any(client.type == "local" and entry.name in KNOWN for client, entry in known):
        return f"{model} is too small a model for tools, so it only answers"
    window = chat.window_of(model)
    if window is not None and window < LEAST_WINDOW:
        return f"the window of {model} is too small for tools ({window:,} tokens)"
    return None


def leave_default(chat: Chat) -> bool:
    """Leave the default agent and its conversation; returns False if the chat was not in it."""
    if not chat.in_default_agent:
        return False
    chat.leave_agent()
    return True


async def _offered(line: ChatLine, name: str = "") -> list[str]:
    """Return a line about the agent, and one that lists the others."""
    known = dict(await trio.to_thread.run_sync(completion.agents, line.chat, line.caller))
    # An own agent of a hidden name replaces the built-in one, and is offered.
    about, hidden = known.pop(name, ""), _HIDDEN.difference(own_agents(line.root.config_dir))
    others = [each for each in known if each not in hidden]
    shown = f"{name}: {about}"
    first = [shown if len(shown) <= WIDTH else f"{shown[: WIDTH - 3]}..."] if name else []
    return [*first, *([_listed("Other agents: " if name else "Agents: ", others)] if others else [])]


def _listed(head: str, agents: list[str]) -> str:
    """Return as many names as fit into one line."""
    for count in range(len(agents), 0, -1):
        more = f" and {len(agents) - count} more" if count < len(agents) else ""
        line = f"{head}{', '.join(agents[:count])}{more} (.agent NAME)"
        if len(line) <= WIDTH:
            break
    return line
