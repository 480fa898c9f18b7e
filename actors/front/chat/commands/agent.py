"""Agents: `.agent`, commands for the current agent, and the default agent of a chat.

A chat in which the user names no agent begins in `chat_agent` of config.yaml, else in the built-in `assistant`. For
Loki's commands, a chat in its default agent counts as one without an agent: `.role`, `.prompt` and `.agent NAME` leave
the default agent implicitly.

The chat begins without an agent, and the model has no tools or only the configured ones, if

    chat_agent: none          the user disables it
    compat: loki              Loki's chat has no agent
    enabled_tools, enabled_mcp_servers
                              these name the tools of a chat without an agent, and an agent would hide them
    the model                 cannot call tools, or its window is too small for their declarations
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.chat import AssistantTurn, Turn, UserTurn, models_of
from .....protocol.control.chat import split_words
from .....protocol.control.errors import error_for_client
from .....protocol.control.method_structs import StartRun
from .....protocol.errors import CallboardError, ConfigError, Conflict, Denied, ShuttingDown, UsageError
from .....protocol.session import messages_of, turns_of
from ....io.vault.lookups import ForChecks
from ....runs.finding import own_agents
from ....runs.loading import NO_HOOKS
from ....runs.target import GraphAgent, Loaded, LoopAgent, WorkflowAgent
from ....work.agent.todo import TodoList
from ....work.models.weights import KNOWN
from ....work.variables import missing_variables, session_of
from .. import completion
from ..chat_storage import LastPrompt
from ..command_line import MISSING, ChatLine, command
from ..prompting import ask
from .info import table
from .session import enter, leave
from .settings import edit_file

if TYPE_CHECKING:
    from .....protocol.settings import Settings
    from ..chat import Chat
    from ..command_line import ChatLine


INIT = """\
Write AGENTS.md for this directory: what a coding agent has to know before it works here. Read the README, the build \
files, the tests, and the layout first. Cover, where the files show it: what the project is, how to build, test, and \
lint it (exact commands), where things are, and conventions that the code follows. At most 60 lines, no advice that \
holds for any project. If there is an AGENTS.md or CLAUDE.md, correct and complete it, and keep what still holds."""

REVIEW = """\
Review {what}. Read the code around each change before you judge it. Report errors first, then risks, then missing \
tests, each with file and line, and why. Leave out matters of taste. Say so if you find nothing. Change no file."""

UNCOMMITTED = (
    "the changes here that are not committed (`git status`, `git diff HEAD`), or the last commit if there are none"
)

_RESTORED = ("agent", "loaded", "variables", "in_default_agent", "session", "memory", "last_prompt", "reply")
"""Attributes of a chat that a change of agents sets; a failed change restores them."""


@command(
    ".agent",
    "Change to an agent, which reads the conversation so far",
    usage="<name> [session] [key=value]...",
    completes=lambda chat, caller, words: completion.agents(chat, caller) if len(words) < 2 else [],
)
async def _agent(line: ChatLine) -> None:
    words = split_words(line.rest)
    if not words:
        raise line.misused()
    variables = dict(word.split("=", 1) for word in words[1:] if "=" in word)
    sessions = [word for word in words[1:] if "=" not in word]
    if len(sessions) > 1:
        raise line.misused()
    chat = line.chat
    if chat.agent is not None and not chat.in_default_agent and chat.settings.other.get("compat") == "loki":
        raise Conflict(MISSING["no agent"])
    # A session without an agent is not left below, so its messages are not carried over.
    said = spoken(turns_of(chat.place.session)) if chat.session is None or chat.agent is not None else []
    if chat.agent is not None and chat.session is not None:
        await leave(line)
    await begin_agent(line, words[0], sessions[0] if sessions else None, variables)
    if said and chat.place.is_empty and chat.loop_agent is not None:
        async with chat.place.change(line.hub, line.caller) as session:
            session.messages = messages_of(said)
        await line.note(f"{words[0]} reads the conversation so far; start a new one with `.clear`.")


def spoken(turns: Iterable[Turn]) -> list[Turn]:
    """Return the conversation without tool calls.

    Another agent may lack these tools, and some providers refuse a request with calls of undeclared tools.
    """
    found: list[Turn] = []
    for turn in turns:
        if isinstance(turn, UserTurn):
            found.append(turn)
        elif isinstance(turn, AssistantTurn) and turn.text:
            last = found[-1] if found else None
            if isinstance(last, AssistantTurn):
                found[-1] = msgspec.structs.replace(last, text=f"{last.text}\n\n{turn.text}")
            else:
                found.append(AssistantTurn(turn.text))
    return found


async def begin_agent(
    line: ChatLine, name: str, session: str | None, variables: dict[str, str], *, own_session: bool = True
) -> None:
    """Put the chat into an agent, and into the named session or the one that the agent always runs in.

    Args:
        own_session: whether to use the latter.
    """
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
                f"agent '{name}' uses MCP servers, and MCP is turned off; turn it on with `.set "
                "mcp_server_support true`"
            )
    before = {name: getattr(chat, name) for name in _RESTORED}
    chat.agent, chat.loaded, chat.variables, chat.in_default_agent = name, loaded, dict(variables), False
    chat.new_memory()
    if own_session and session is None and isinstance(loaded, LoopAgent) and line.caller.has("write:sessions"):
        session = session_of(loaded.agent, settings.other, os.environ)
    try:
        if session is not None:
            await enter(line, session, asks=False)
        chat.variables = await _with_missing(line, loaded, chat.variables)
    except BaseException:  # cancellation at a question included: the chat changes completely or not at all
        for name, value in before.items():
            setattr(chat, name, value)
        raise
    # Reported here once; `warned` keeps the agent's runs from reporting them again.
    for problem in loaded.problems:
        chat.warned.add(str(problem))
        await line.warn(str(problem))


async def _with_missing(line: ChatLine, loaded: Loaded, given: dict[str, str]) -> dict[str, str]:
    """Return the values of the agent's variables; asks the user for those without a value.

    Raises:
        UsageError: a variable remains without a value.
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


@command(".exit agent", "Leave the agent", needs=("agent",))
async def _exit(line: ChatLine) -> None:
    if line.chat.session is not None:
        await leave(line)
    line.chat.leave_agent()


@command(".init", "Let the agent write or update AGENTS.md of this directory", needs=("agent",))
async def _init(line: ChatLine) -> None:
    if line.rest:
        raise line.misused()
    await ask(line, LastPrompt(INIT))


@command(".review", "Let the agent review uncommitted changes, or what you name", usage="[what]", needs=("agent",))
async def _review(line: ChatLine) -> None:
    await ask(line, LastPrompt(REVIEW.format(what=UNCOMMITTED if not line.rest else line.rest)))


@command(".info agent", "Show the agent", needs=("agent",), at_work=True)
async def _info(line: ChatLine) -> None:
    chat, loaded = line.chat, line.chat.loaded
    shows_files = line.shows("run:files")
    rows: list[tuple[str, object]] = [("agent", chat.agent), ("model", chat.model_in_use)]
    if isinstance(loaded, LoopAgent):
        agent = loaded.agent
        rows += [
            ("description", agent.description.strip()),
            ("version", agent.version),
            ("temperature", agent.temperature),
            ("top_p", agent.top_p),
            ("global_tools", ", ".join(agent.global_tools)),
            ("mcp_servers", ", ".join(agent.mcp_servers)),
            ("documents", ", ".join(agent.documents) if shows_files else None),
            ("can_spawn_agents", agent.can_spawn_agents or None),
            ("auto_continue", agent.auto_continue or None),
        ]
    elif isinstance(loaded, GraphAgent):
        rows += [("description", loaded.graph.description.strip()), ("nodes", len(loaded.graph.nodes))]
    rows += [(f"variable {name}", value) for name, value in chat.variables.items()]
    if loaded is not None and shows_files:
        rows.append(("file", loaded.file))
    said = table((name, value) for name, value in rows if value not in (None, ""))
    starters = _starters(line)
    if starters:
        said += "\n\nconversation starters\n" + _numbered(starters)
    await line.say(said)


def _starters(line: ChatLine) -> tuple[str, ...]:
    loaded = line.chat.loaded
    if isinstance(loaded, LoopAgent):
        return loaded.agent.conversation_starters
    return loaded.graph.conversation_starters if isinstance(loaded, GraphAgent) else ()


def _numbered(texts: tuple[str, ...]) -> str:
    return "\n".join(f"{number}: {text}" for number, text in enumerate(texts, 1))


@command(".starter", "List the agent's conversation starters, or send one", usage="[number]", needs=("agent",))
async def _starter(line: ChatLine) -> None:
    starters = _starters(line)
    if not starters:
        raise Conflict(f"Agent '{line.chat.agent}' has no conversation starters.")
    if not line.rest:
        await line.say(_numbered(starters) + "\n\nSend one with `.starter NUMBER`.")
        return
    if not line.rest.isdecimal() or not 1 <= int(line.rest) <= len(starters):
        raise UsageError(f"Usage: .starter [number], from 1 to {len(starters)}, not {line.rest[:60]!r}")
    await ask(line, LastPrompt(starters[int(line.rest) - 1]))


@command(
    ".edit agent-config", "Edit the agent's file", needs=("agent",), scopes=("run:files", "admin:mcp"), in_macros=False
)
async def _edit(line: ChatLine) -> None:
    loaded = line.chat.loaded
    if loaded is None or loaded.directory is None:
        raise Conflict(f"'{line.chat.agent}' is not loaded from a file that can be edited")
    file = _file(loaded)
    # Only files of the user's configuration directory, not files of built-in agents or other paths.
    if not file.is_relative_to(line.root.config_dir):
        raise Denied(f"{file} can't be edited in the chat: it is outside of {line.root.config_dir}")
    if await edit_file(line, file, check=None):
        await line.note("Takes effect with the next prompt.")


def _file(loaded: GraphAgent | LoopAgent | WorkflowAgent) -> Path:
    assert loaded.directory is not None
    return loaded.directory / Path(loaded.file).name


@command(".clear todo", "Empty the todo list, so that the agent stops")
async def _clear(line: ChatLine) -> None:
    place = line.chat.place
    await place.refresh(line.hub, line.caller)
    if not _goes_on(line) and place.session.todo is None:
        raise Conflict(
            "Auto-continue is not enabled. Set 'auto_continue: true' in the agent's file, or `.set auto_continue true`."
        )
    async with place.change(line.hub, line.caller) as session:
        session.todo = None
    await line.note("The todo list was emptied.")


def _goes_on(line: ChatLine) -> bool:
    agent = line.chat.loop_agent
    # The session overrides the agent, which overrides the settings.
    own = line.chat.place.session.auto_continue
    if own is not None:
        return own
    return agent.agent.auto_continue if agent is not None else line.chat.settings.other.get("auto_continue") is True


@command(".todo", "Show the todo list", at_work=True)
async def _todo(line: ChatLine) -> None:
    session = line.chat.place.session
    await line.say(TodoList(session.todo).render() if session.todo is not None else "The todo list is empty.")


ASSISTANT = "assistant"
NO_AGENT = "none"
"""Value of `chat_agent` that disables the default agent."""

LEAST_WINDOW = 16_000
"""Minimum window in tokens. The declarations of the assistant's tools and its instructions take about 4,000."""

WIDTH = 78
"""Maximum characters of a line on the first screen; a terminal has 80."""

_HIDDEN = frozenset(("demo", "explore", "file-reviewer", "oracle", "report-writer"))
"""Built-in agents that the first screen omits, because only other agents call them."""


def default_agent_of(settings: Settings) -> str | None:
    """Return the name of the default agent; None if it is disabled."""
    if settings.other.get("compat") == "loki":
        return None
    named = settings.other.get("chat_agent")
    return None if named == NO_AGENT else str(named or ASSISTANT)


async def begin_default(line: ChatLine, session: str | None, variables: dict[str, str]) -> list[str] | None:
    """Put the chat into the default agent and return the first lines of the screen; None if it has no agent.

    A failure does not prevent the chat: it begins without an agent, and the lines give the reason.
    """
    from .agent import begin_agent

    chat = line.chat
    name = default_agent_of(chat.settings)
    if name is None:
        return None
    if (why := _why_unfit(chat)) is not None:
        return [f"No agent: {why}.", *await _agents_offered(line)] if why else None
    try:
        await begin_agent(line, name, session, variables)
    except ShuttingDown:
        raise
    except Denied:  # a caller with few scopes gets a chat without an agent instead of an error
        return None
    except CallboardError as error:
        return [
            f"No agent: '{name}' could not be started: {error_for_client(line.caller, error)}",
            *await _agents_offered(line),
        ]
    chat.in_default_agent = True
    return await _agents_offered(line, name)


def _why_unfit(chat: Chat) -> str | None:
    """Return the reason not to use the default agent: "" for one that the user knows, None if it can be used."""
    settings, model = chat.settings, chat.model_in_use
    # The user's configuration explains itself, so the screen gives no reason.
    if settings.enabled_tools or settings.enabled_mcp_servers:
        return ""
    if not settings.calls_functions:
        return "function calling is turned off, so the model has no tools"
    gateway = chat.hub.root.gateway
    if model == gateway.choice().model and gateway.lacks_model():
        return ""  # the chat already begins with that message
    try:
        known = [gateway.catalog.named(name) for name in models_of(model)]
    except CallboardError:  # the first prompt reports it
        return None
    if not all(entry.supports_function_calling for _, entry in known):
        return f"{model} does not support tools, so it only answers"
    if any(client.type == "local" and entry.name in KNOWN for client, entry in known):
        return f"{model} is too small to use tools, so it only answers"
    window = chat.window_of(model)
    if window is not None and window < LEAST_WINDOW:
        return f"the context window of {model} is too small for tools ({window:,} tokens)"
    return None


def leave_default(chat: Chat) -> bool:
    """Leave the default agent and its conversation; returns False if the chat was not in it."""
    if not chat.in_default_agent:
        return False
    chat.leave_agent()
    return True


async def _agents_offered(line: ChatLine, name: str = "") -> list[str]:
    """Return a line about the agent, and one that lists the others."""
    known = dict(await trio.to_thread.run_sync(completion.agents, line.chat, line.caller))
    # An own agent of a hidden name replaces the built-in one, and is offered.
    about, hidden = known.pop(name, ""), _HIDDEN.difference(own_agents(line.root.config_dir))
    others = [each for each in known if each not in hidden]
    shown = f"{name}: {about}"
    first = [shown if len(shown) <= WIDTH else f"{shown[: WIDTH - 3]}..."] if name else []
    return [*first, *([_in_one_line("Other agents: " if name else "Agents: ", others)] if others else [])]


def _in_one_line(head: str, agents: list[str]) -> str:
    """Return as many names as fit into one line."""
    for count in range(len(agents), 0, -1):
        more = f" and {len(agents) - count} more" if count < len(agents) else ""
        line = f"{head}{', '.join(agents[:count])}{more} (.agent NAME)"
        if len(line) <= WIDTH:
            break
    return line
