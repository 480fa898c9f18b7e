"""The agent of a chat for which nobody has named one: `chat_agent` of config.yaml, else the built-in `assistant`.

A chat in its default agent behaves like one without an agent where Loki's commands ask for that: `.role`, `.prompt` and
`.agent NAME` leave the default agent by themselves.

No agent is begun, and the model answers without tools, or with those that config.yaml gives to chats, if

    chat_agent: none          the user wants it so
    compat: loki              Loki's chat has no agent
    enabled_tools, enabled_mcp_servers
                              they are the tools of a chat without an agent, and an agent would hide them
    the model                 calls no tools, or its window is too small for their declarations
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ....protocol.control.errors import told_to
from ....protocol.errors import CallboardError, Denied, ShuttingDown
from ....protocol.model_names import models_of
from ...runs.finding import own_agents
from ...work.models.weights import KNOWN
from . import names
from .prompting import window_of

if TYPE_CHECKING:
    from ....protocol.settings import Settings
    from .chat import Chat
    from .line import Line

ASSISTANT = "assistant"
NONE = "none"
"""The value of `chat_agent` for no agent."""

LEAST_WINDOW = 16_000
"""Tokens. The declarations of the assistant's tools and its instructions take about 4,000."""

WIDTH = 78
"""Characters of a line of the first screen: a terminal has 80."""

_HIDDEN = frozenset(("demo", "explore", "file-reviewer", "oracle", "report-writer"))
"""Built-in agents that the first screen does not offer: other agents call them."""


def name_of(settings: Settings) -> str | None:
    """The agent that chats begin with; None if the user wants none."""
    if settings.other.get("compat") == "loki":
        return None
    named = settings.other.get("chat_agent")
    return None if named == NONE else str(named or ASSISTANT)


async def begin_default(line: Line, session: str | None, variables: dict[str, str]) -> list[str] | None:
    """Begin the chat in the default agent; the first lines of the screen, or None if it is left without an agent.

    An agent that cannot be begun keeps no chat from beginning: the lines say why.
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
    except Denied:  # a caller with few scopes has the chat without an agent, as before there was a default
        return None
    except CallboardError as error:
        return [f"No agent: '{name}' could not be begun: {told_to(line.caller, error)}", *await _offered(line)]
    chat.in_default_agent = True
    return await _offered(line, name)


def _unfit(chat: Chat) -> str | None:
    """Why no agent is begun; "" for a reason that the user knows, None if one is."""
    settings, model = chat.settings, chat.model_in_use
    if settings.enabled_tools or settings.enabled_mcp_servers:
        return ""
    if not settings.calls_functions:
        return "function calling is off, so the model only answers"
    try:
        known = [chat.hub.root.gateway.catalog.named(name) for name in models_of(model)]
    except CallboardError:  # the first prompt reports it
        return None
    if not all(entry.supports_function_calling for _, entry in known):
        return f"{model} calls no tools, so it only answers"
    if any(client.type == "local" and entry.name in KNOWN for client, entry in known):
        return f"{model} is too small a model for tools, so it only answers"
    window = window_of(chat, model)
    if window is not None and window < LEAST_WINDOW:
        return f"the window of {model} is too small for tools ({window:,} tokens)"
    return None


def leave_default(chat: Chat) -> bool:
    """Leave the default agent, with what was said in it; whether the chat was in one."""
    if not chat.in_default_agent:
        return False
    chat.leave_agent()
    return True


async def _offered(line: Line, name: str = "") -> list[str]:
    """What the agent can do, and which others there are: a line each."""
    known = dict(await trio.to_thread.run_sync(names.agents, line.chat, line.caller))
    about, hidden = known.pop(name, ""), _HIDDEN.difference(own_agents(line.root.config_dir))
    others = [each for each in known if each not in hidden]
    first = [_fitted(f"{name}: {about}")] if name else []
    return [*first, *([_listed("Other agents: " if name else "Agents: ", others)] if others else [])]


def _listed(head: str, agents: list[str]) -> str:
    """As many names as one line has room for."""
    for count in range(len(agents), 0, -1):
        more = f" and {len(agents) - count} more" if count < len(agents) else ""
        line = f"{head}{', '.join(agents[:count])}{more} (.agent NAME)"
        if len(line) <= WIDTH:
            break
    return line


def _fitted(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."
