"""`.info agent`, `.starter`, `.edit agent-config`, and the todo list of an agent."""

from __future__ import annotations

from pathlib import Path

from .....protocol.errors import Conflict, Denied, UsageError
from ....runs.target import GraphAgent, LoopAgent, WorkflowAgent
from ....work.agent.todo import TodoList
from ..asked import LastPrompt
from ..line import ChatLine
from ..prompting import ask
from ..table import command
from .editing import edit_file
from .looking import table


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
        raise Denied(f"{file} is not yours to edit here: it lies outside of {line.root.config_dir}")
    if await edit_file(line, file, check=None):
        await line.note("It counts from the next prompt on.")


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
