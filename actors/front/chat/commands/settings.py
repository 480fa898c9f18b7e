"""Settings: `.set` and `.model` for the next prompts, `.edit config` and `.edit mcp-config` for files.

The client opens an editor with the text of a file; the result is checked and written (`edit_file`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from .....protocol.errors import ConfigError, InvalidFile, NotKept, UsageError
from .....protocol.mcp.config import read_mcp, split
from .....protocol.problems import Problem, errors_in
from .....protocol.settings.read import read_settings
from ....io.atomic_write import write_whole
from ....io.directories import config_file, user_folder
from ....work.tools.registry import ALL
from ...control.requests import check_model
from .. import completion
from ..command_line import ChatLine, command
from ..options import KEYS, read_value
from .info import as_text

if TYPE_CHECKING:
    from .....protocol.control.caller import Caller
    from ..chat import Chat


_USAGE = "Usage: .set <key> <value>. If value is null, unset key."


def _models(chat: Chat, caller: Caller, words: Sequence[str]) -> completion.Names:
    return completion.models(chat.hub.root) if len(words) < 2 and caller.has("read:models") else []


@command(
    ".model",
    "Change the model",
    usage="<name>",
    completes=_models,
)
async def _model(line: ChatLine) -> None:
    if not line.rest:
        line.caller.need("read:models")
        known = dict(await trio.to_thread.run_sync(completion.models, line.root))
        chosen = await line.choose("Which model? (prices: USD per million tokens)", list(known), list(known.values()))
        if chosen is None:
            raise line.misused()
        await set_model(line, chosen)
        return
    await set_model(line, line.rest)


_LONGEST = 1000
"""Maximum characters of a list of model names."""


async def set_model(line: ChatLine, name: str) -> None:
    """Set the model in the current scope of the chat."""
    chat = line.chat
    _check_model_name(name)
    model = None if name == "null" else line.root.gateway.check(name)
    check_model(line.caller, model, line.root)
    if not chat.scoped:
        chat.model = model
        chat.memory.session.model = None  # clear the model of the last prompt
        return
    async with chat.place.change(line.hub, line.caller) as session:
        session.model = model


def _check_model_name(name: str) -> None:
    if len(name) > _LONGEST or not name.isprintable():
        raise UsageError(f"{name[:60]!r} is not a known model; list the models with `.list models`")


def _values(chat: Chat, caller: Caller, words: Sequence[str]) -> completion.Names:
    """Return completions: keys, or values of the key before."""
    if len(words) < 2:
        held = {key: chat.value_of(key) for key in KEYS}
        told = [(key, each.about + ("" if held[key] is None else f" ({held[key]})")) for key, each in KEYS.items()]
        return [*told, ("model", "the model that answers")]
    key, root = words[0], chat.hub.root
    if key in ("model", "rag_reranker_model"):
        return completion.models(root, "reranker" if key != "model" else "chat") if caller.has("read:models") else []
    if key == "enabled_tools":
        offered = [*root.registry.global_names(), *root.settings.mapping_tools]
        return _list_of(words[1], [("all", ""), *((name, "") for name in dict.fromkeys(offered))])
    if key == "enabled_mcp_servers":
        if not caller.has("admin:mcp"):
            return []
        offered = [*root.mcp.config.names, *root.settings.mapping_mcp_servers]
        return _list_of(words[1], [("all", ""), *((name, "") for name in dict.fromkeys(offered))])
    known = KEYS.get(key)
    if known is None or len(words) > 2:
        return []
    now = chat.value_of(key)
    shown = [] if now is None else [(as_text(now), "the present value")]
    return [*shown, *((each, "") for each in known.suggests if each not in dict(shown))]


def _list_of(typed: str, offered: completion.Names) -> completion.Names:
    """Return completions of the last name in a comma-separated list."""
    before, comma, _ = typed.rpartition(",")
    return [(f"{before}{comma}{name}", about) for name, about in offered]


_OF_MACHINE = {"enabled_tools": "run:files", "enabled_mcp_servers": "run:files", "rag_reranker_model": "run:files"}
"""Keys that give access to this machine, with the required scope."""

_OF_AGENT = frozenset({"enabled_tools", "enabled_mcp_servers"})
"""Keys that only an agent's own file may set."""

_OF_LOOP = frozenset(
    {
        "temperature",
        "top_p",
        "auto_continue",
        "max_auto_continues",
        "inject_todo_instructions",
        "continuation_prompt",
    }
)
"""Keys of a conversation with a single model; each node of a graph or workflow has its own."""


@command(".set", "Change a setting for this chat", usage="<key> <value>", completes=_values)
async def _set(line: ChatLine) -> None:
    key, _, text = line.rest.partition(" ")
    text = text.strip()
    if not key or (not text and key in {*KEYS, "model"}):
        raise UsageError(_USAGE)
    if key == "model":
        await set_model(line, text)
        return
    value = read_value(key, text)
    if key in _OF_MACHINE:
        line.caller.need(_OF_MACHINE[key])
    chat = line.chat
    _check_agent(chat, key)
    if isinstance(value, str):
        await _check_names(line, key, value)
    # Outside of a scope, the value is stored in the chat and applied to the settings of each run.
    if not (KEYS[key].session and chat.scoped):
        chat.own[key] = value
        return
    if key == "save_session" and value is True and await chat.place.resume(line.hub, line.caller):
        chat.last_prompt, chat.reply = None, chat.place.last_reply
        await line.note(
            "The session is saved again, and continues from its file; the messages sent in between are not in the file."
        )
        return
    async with chat.place.change(line.hub, line.caller) as session:
        setattr(session, key, value)
    if key == "save_session" and value is False and chat.session is not None and chat.session.kept:
        # The setting itself is already in the file.
        chat.session = chat.session.apart()
        await line.note("From now on, messages are not saved in the session's file (`save_session` is false).")


async def _check_names(line: ChatLine, key: str, text: str) -> None:
    """Warn of unknown names; an unusable model is refused, as in `.model`."""
    if key == "rag_reranker_model":
        _check_model_name(text)
        line.root.gateway.catalog.access(text, "reranker")
    elif key == "enabled_tools":
        for name, hint in await trio.to_thread.run_sync(line.root.registry.unknown, split(text)):
            await line.warn(f"there is no tool '{name}'; {hint}")
    elif key == "enabled_mcp_servers":
        known = {ALL, *line.root.mcp.config.names, *line.root.settings.mapping_mcp_servers}
        for name in split(text):
            if name not in known:
                await line.warn(f"MCP server '{name}' is not configured; list the servers with `.mcp`")


def _check_agent(chat: Chat, key: str) -> None:
    """Raise if the file of the current agent takes precedence over the key."""
    if chat.agent is None:
        return
    if key in _OF_AGENT:
        raise UsageError(
            f"agent '{chat.agent}' uses the tools and servers of its own file; `{key}` only applies to chats "
            "without an agent"
        )
    if key in _OF_LOOP and chat.loop_agent is None:
        raise UsageError(
            f"`{key}` does not apply to '{chat.agent}', a graph or workflow: set it for the nodes in its file"
        )


Check = Callable[[str, str], Sequence[Problem]]
"""Function from a text and its file name to the problems in it."""

_NEW_MCP = '{\n  "mcpServers": {}\n}\n'
_SCOPES = ("run:files", "admin:mcp")


async def edit_file(line: ChatLine, file: Path, *, check: Check | None, new: str = "") -> bool:
    """Open a file in the user's editor; returns False if it was not changed.

    Args:
        check: returns problems; errors among them are shown, and the text is edited again.
        new: initial text for a missing file.

    Raises:
        ConfigError, NotKept: the file cannot be read or written.
    """
    try:
        before = await trio.to_thread.run_sync(_text_of, file, new)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} can't be read: {error}") from None

    def keep(text: str) -> None:
        if check is not None and (found := errors_in(check(text, str(file)))):
            raise InvalidFile("\n".join(map(str, found)))
        try:
            _write(file, text)
        except OSError as error:
            raise NotKept(f"{file} can't be written: {error.strerror or error}") from None

    if await line.edit_until(str(file), before, keep) is None:
        return False
    await line.note(f"wrote {file}")
    return True


def _text_of(file: Path, new: str) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else new


def _write(file: Path, text: str) -> None:
    # Write through a symbolic link instead of replacing it.
    real = file.resolve()
    real.parent.mkdir(parents=True, exist_ok=True)
    mode = real.stat().st_mode & 0o777 if real.exists() else 0o600  # private by default: it may contain an API key
    write_whole(real, text.encode(), private=True)
    real.chmod(mode)


@command(".edit config", "Edit config.yaml", scopes=_SCOPES, in_macros=False)
async def _config(line: ChatLine) -> None:
    def check(text: str, file: str) -> Sequence[Problem]:
        return read_settings(text, file, dict(os.environ))[1]

    if await edit_file(line, config_file(line.root.config_dir), check=check):
        await line.note(
            "Takes effect when callboard starts again; most settings of this chat can be changed at once with `.set`."
        )


@command(".edit mcp-config", "Edit mcp.json", scopes=_SCOPES, in_macros=False)
async def _mcp_config(line: ChatLine) -> None:
    first, second = line.root.config_dir / "mcp.json", user_folder("functions", line.root.config_dir) / "mcp.json"
    file = second if second.exists() and not first.exists() else first

    def check(text: str, name: str) -> Sequence[Problem]:
        return read_mcp(text, name).problems

    if await edit_file(line, file, check=check, new=_NEW_MCP):
        names = await line.hub.mcp_reload(line.caller)
        await line.note(f"read again: {', '.join(names)}" if names else "mcp.json was read again.")
