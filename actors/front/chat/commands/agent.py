"""Agents: `.agent` and what can be done with the one that the chat is in."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .....protocol.control.own import StartRun
from .....protocol.errors import ConfigError, UsageError
from .....protocol.words import split_words
from ....io.vault.lookups import ForChecks
from ....runs.loading import NO_HOOKS
from ....runs.target import GraphAgent, Loaded, LoopAgent, WorkflowAgent
from ....work.variables import missing_variables, session_of
from .. import names
from ..line import Line
from ..table import MISSING, command
from .session import enter, leave

if TYPE_CHECKING:
    from ..chat import Chat


@command(
    ".agent",
    "Have an agent answer",
    usage="<name> [session] [key=value]...",
    needs=("no agent",),
    completes=lambda chat, caller, words: names.agents(chat, caller) if len(words) < 2 else [],
)
async def _agent(line: Line) -> None:
    words = split_words(line.rest)
    if not words:
        raise line.misused()
    variables = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    sessions = [word for word in words[1:] if "=" not in word]
    if len(sessions) > 1:
        raise line.misused()
    await begin_agent(line, words[0], sessions[0] if sessions else None, variables)


async def begin_agent(line: Line, name: str, session: str | None, variables: dict[str, str]) -> None:
    """Have an agent answer from now on, in a session if one is named, or the agent is always run in one."""
    chat = line.chat
    if chat.session is not None:
        raise UsageError(MISSING["no session"])
    request = await line.hub.request(line.caller, StartRun(target=name, variables=variables))
    loaded = await line.root.loader.load(request, NO_HOOKS)
    settings = chat.settings
    if isinstance(loaded, LoopAgent):
        if not settings.calls_functions:
            raise ConfigError("Please enable function calling support before using the agent.")
        if loaded.agent.mcp_servers and not settings.mcp_server_support:
            raise ConfigError(
                f"agent '{name}' uses MCP servers, and MCP is turned off; `.set mcp_server_support true` first"
            )
    before = chat.memory, chat.asked, chat.reply
    chat.agent, chat.loaded, chat.variables = name, loaded, dict(variables)
    chat.new_memory()
    if session is None and isinstance(loaded, LoopAgent) and line.caller.has("write:sessions"):
        session = session_of(loaded.agent, settings.other, os.environ)
    try:
        if session is not None:
            await enter(line, session, asks=False)
        chat.variables = await _with_missing(line, loaded, chat.variables)
    except BaseException:  # interrupted at a question, too: the chat is in the agent as a whole, or not at all
        _without_agent(chat)
        chat.memory, chat.asked, chat.reply = before
        raise
    for problem in loaded.problems:
        chat.warned.add(str(problem))
        await line.warn(str(problem))


async def _with_missing(line: Line, loaded: Loaded, given: dict[str, str]) -> dict[str, str]:
    """The values of the agent's variables, with what the person gives for those that have none.

    Raises:
        UsageError: one stays without a value.
    """
    if isinstance(loaded, WorkflowAgent):
        return given
    declared = (loaded.graph if isinstance(loaded, GraphAgent) else loaded.agent).variables
    values = dict(given)
    secrets = ForChecks(line.root.vault)
    missing = missing_variables(loaded.name, declared, values, os.environ, secrets=secrets)
    for variable in missing:
        about = f"{variable.name}: {variable.description.strip()}".rstrip(": ")
        value = None if line.in_macro else await line.ask(about)
        if value is None:
            wanted = "".join(f"\n  - {each.name}: {each.description.strip()}" for each in missing)
            raise UsageError(f"The following agent variables are required:{wanted}")
        values[variable.name] = value
    return values


def _without_agent(chat: Chat) -> None:
    chat.session = None
    chat.agent, chat.loaded, chat.variables = None, None, {}
    chat.new_memory()


@command(".exit agent", "Leave the agent", needs=("agent",))
async def _exit(line: Line) -> None:
    if line.chat.session is not None:
        await leave(line)
    _without_agent(line.chat)
