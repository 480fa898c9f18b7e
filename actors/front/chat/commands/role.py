"""Roles: `.role`, `.prompt`, and commands for the active role."""

from __future__ import annotations

from typing import Any

import trio

from .....protocol.errors import Conflict, NotFound, UsageError
from .....protocol.problems import did_you_mean
from .....protocol.role import Role, role_of_prompt, split_name
from .....protocol.session import Session, write_yaml
from ....io.named_files import is_name
from ....runs.role_run import without_servers
from ....runs.sessions.roles import change_role
from ....work.roles import FILES, find, locate, save
from ...control.requests import check_role
from .. import completion
from ..chat_storage import ChatStorage, LastPrompt
from ..command_line import MISSING, ChatLine, command
from ..prompting import ask
from .agent import leave_default
from .info import table


@command(
    ".role",
    "Use a role, or ask one question in a role",
    usage="<name> [text]",
    needs=("no agent",),
    completes=lambda chat, caller, words: completion.roles(chat, caller) if len(words) < 2 else [],
)
async def _role(line: ChatLine) -> None:
    name, _, text = line.rest.partition(" ")
    if not name:
        raise line.misused()
    if text and await _is_there(line, line.rest):  # a role name may contain spaces
        name, text = line.rest, ""
    if not await _is_there(line, name) and not await _made(line, name):
        raise NotFound(f"Unknown role `{repr(name[:60])[1:-1]}`, and none was created")
    if text.strip():
        # A session of its own: the exchange must not become part of the conversation.
        once = ChatStorage.in_memory(None, Session(role_name=name))
        await ask(line, LastPrompt(text.strip()), once)
        return
    await use_role(line, name)


async def use_role(line: ChatLine, name: str) -> None:
    """Put the chat into a role from now on."""
    _check_empty(line)
    role = await line.root.loader.threaded(
        lambda: check_role(line.caller, name, line.root, model=line.chat.place.session.model)
    )
    await _leave_default(line)
    await _change(line, name, None)
    if (unserved := without_servers(role, line.chat.settings)) is not None:
        await line.warn(f"{unserved}; turn MCP on with `.set mcp_server_support true`")


async def use_prompt(line: ChatLine, text: str) -> None:
    """Put the chat into a role that consists of this text."""
    _check_empty(line)
    role_of_prompt(text)
    await _leave_default(line)
    await _change(line, None, text)


def _check_empty(line: ChatLine) -> None:
    if line.chat.agent is not None and not line.chat.in_default_agent:
        raise UsageError(
            f"a role can't be used together with an agent, and this chat uses '{line.chat.agent}'; leave it "
            "first with `.exit agent`"
        )
    if line.chat.session is not None and not line.chat.session.is_empty:
        raise Conflict(MISSING["empty session"])


async def _leave_default(line: ChatLine) -> None:
    """Leave the default agent, which the user did not name, because a role is for a model without an agent."""
    if (agent := line.chat.agent) is not None and leave_default(line.chat):
        await line.note(
            f"Left {agent} and its conversation: the model now answers in the role, without the agent's tools."
        )


async def _change(line: ChatLine, name: str | None, prompt: str | None) -> None:
    if line.chat.session is None:
        line.chat.new_memory()
    async with line.chat.place.change(line.hub, line.caller) as session:
        change_role(session, name, prompt)


@command(".prompt", "Use a text as role", usage="<text>", needs=("no agent",))
async def _prompt(line: ChatLine) -> None:
    if not line.rest:
        raise line.misused()
    await use_prompt(line, line.rest)


async def _is_there(line: ChatLine, name: str) -> bool:
    try:
        await line.root.loader.threaded(lambda: find(name, line.root.config_dir))
    except NotFound:
        return False
    return True


async def _is_own(line: ChatLine, name: str) -> bool:
    """Return True if the user has a role of this name."""
    places = await trio.to_thread.run_sync(FILES.places, line.root.config_dir)
    return any(place.name == name and not place.built_in for place in places)


async def _made(line: ChatLine, name: str) -> bool:
    """Open the user's editor to create a missing role; returns False if none was created."""
    base = split_name(name)[0]
    if line.in_macro or not line.caller.has("write:roles") or not is_name(base):
        return False
    known = [each for each, _ in await trio.to_thread.run_sync(completion.roles, line.chat, line.caller)]
    hint = f" ({near})" if (near := did_you_mean(base, known)) else ""
    await line.note(
        f"There is no role '{base}'{hint}. Your editor opens to create one; if you leave the text unchanged, "
        "none is created."
    )
    return await _edited(line, base, _NEW)


async def _edited(line: ChatLine, name: str, text: str) -> bool:
    if await line.edit_until(f"{name}.md", text, lambda edited: save(name, edited, line.root.config_dir)) is None:
        return False
    await line.note(f"The role was saved as '{name}'.")
    return True


_NEW = """\
---
# model: openai:gpt-4o
# temperature: 0.2
# enabled_tools: fs_cat,fs_ls
---
You are a helpful assistant.
"""


@command(".info role", "Show the role", needs=("role",), at_work=True)
async def _info(line: ChatLine) -> None:
    chat = line.chat
    if chat.role is None:
        await line.say(f"role    temp\n\n{chat.role_prompt}")
        return
    line.need("read:roles")
    name = chat.role
    role = await line.root.loader.threaded(lambda: find(name, line.root.config_dir))
    rows: list[tuple[str, object]] = [("role", name), *_settings(role, chat.place.session).items()]
    await line.say(table(rows) + f"\n\n{role.template}")


_SETTINGS = (
    "model",
    "temperature",
    "top_p",
    "enabled_tools",
    "enabled_mcp_servers",
    "auto_continue",
    "max_auto_continues",
    "inject_todo_instructions",
    "continuation_prompt",
)


def _settings(role: Role, session: Session) -> dict[str, Any]:
    """Return the role's settings, overridden by later changes in the session."""
    found: dict[str, Any] = {}
    for key in _SETTINGS:
        own, said = getattr(session, key), getattr(role, key)
        value = own if own is not None else said
        if value is not None:
            found[key] = ",".join(value) if isinstance(value, tuple | list) else value
    return found


@command(".edit role", "Edit the role's file", needs=("role",), scopes=("write:roles",), in_macros=False)
async def _edit(line: ChatLine) -> None:
    name = line.chat.role
    if name is None:
        raise Conflict("this role was set with `.prompt` and has no file; create one with `.save role NAME`")
    base = split_name(name)[0]
    place = locate(base, line.root.config_dir)
    text = await trio.to_thread.run_sync(FILES.text_of, place.file)
    if await _edited(line, base, text):
        await line.note("Takes effect with the next prompt.")


@command(".save role", "Save the role under a name", usage="[name]", needs=("role",), scopes=("write:roles",))
async def _save(line: ChatLine) -> None:
    chat = line.chat
    name = line.rest or chat.role or await line.ask("Name of the role:") or ""
    if not name:
        raise line.misused()
    if chat.role is not None:
        called = chat.role
        role = await line.root.loader.threaded(lambda: find(called, line.root.config_dir))
    else:
        role = role_of_prompt(chat.role_prompt or "")
    # Overwriting the current role is the purpose of the command; only another role of the user needs a question.
    asks = name != chat.role and not line.in_macro and await _is_own(line, name)
    if asks and not await line.confirm(f"Replace the role '{name}'?"):
        await line.note("nothing was changed")
        return
    front = {**({"description": role.description} if role.description else {}), **_settings(role, chat.place.session)}
    if role.prompt:
        front["prompt"] = role.prompt
    head = f"---\n{write_yaml(front).rstrip()}\n---\n" if front else ""
    await trio.to_thread.run_sync(lambda: save(name, head + role.text, line.root.config_dir))
    async with chat.place.change(line.hub, line.caller) as session:
        change_role(session, name, None)
    await line.note(f"The role was saved as '{name}'.")


@command(".exit role", "Leave the role", needs=("role",))
async def _exit(line: ChatLine) -> None:
    await _change(line, None, None)
