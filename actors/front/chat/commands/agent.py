"""Agents: `.agent`, and commands for the current agent."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from .....protocol.chat import AssistantTurn, Turn, UserTurn
from .....protocol.control.own import StartRun
from .....protocol.errors import ConfigError, Conflict, Denied, UsageError
from .....protocol.session_turns import messages_of, turns_of
from .....protocol.words import split_words
from ....io.vault.lookups import ForChecks
from ....runs.loading import NO_HOOKS
from ....runs.target import GraphAgent, Loaded, LoopAgent, WorkflowAgent
from ....work.agent.todo import TodoList
from ....work.variables import missing_variables, session_of
from .. import completion
from ..chat_storage import LastPrompt
from ..command_line import MISSING, ChatLine, command
from ..prompting import ask
from .edit import edit_file
from .info import table
from .session import enter, leave

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
        await line.note(f"{words[0]} reads the conversation so far; `.clear` starts a new one.")


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
                f"agent '{name}' uses MCP servers, and MCP is turned off; `.set mcp_server_support true` first"
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


@command(".init", "Have the agent write or update AGENTS.md here", needs=("agent",))
async def _init(line: ChatLine) -> None:
    if line.rest:
        raise line.misused()
    await ask(line, LastPrompt(INIT))


@command(".review", "Have the agent review uncommitted changes, or what you name", usage="[what]", needs=("agent",))
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


@command(".starter", "Show the agent's conversation starters, or use one", usage="[number]", needs=("agent",))
async def _starter(line: ChatLine) -> None:
    starters = _starters(line)
    if not starters:
        raise Conflict(f"Agent '{line.chat.agent}' has no conversation starters.")
    if not line.rest:
        await line.say(_numbered(starters) + "\n\n`.starter NUMBER` uses one.")
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
        raise Conflict(f"'{line.chat.agent}' has no file")
    file = _file(loaded)
    # Only files of the user's configuration directory, not files of built-in agents or other paths.
    if not file.is_relative_to(line.root.config_dir):
        raise Denied(f"{file} can't be edited here: it is outside of {line.root.config_dir}")
    if await edit_file(line, file, check=None):
        await line.note("Takes effect with the next prompt.")


def _file(loaded: GraphAgent | LoopAgent | WorkflowAgent) -> Path:
    assert loaded.directory is not None
    return loaded.directory / Path(loaded.file).name


@command(".clear todo", "Clear the todo list, so that the agent stops")
async def _clear(line: ChatLine) -> None:
    place = line.chat.place
    await place.refresh(line.hub, line.caller)
    if not _goes_on(line) and place.session.todo is None:
        raise Conflict(
            "Auto-continue is not enabled. Set 'auto_continue: true' in the agent's file, or `.set auto_continue true`."
        )
    async with place.change(line.hub, line.caller) as session:
        session.todo = None
    await line.note("The todo list is clear.")


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
