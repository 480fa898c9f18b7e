"""`.set`, `.model`: how the next prompts are answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from .....protocol.errors import UsageError
from .....protocol.mcp.config import split
from ....work.tools.registry import ALL
from ...control.requests import check_model
from .. import names
from ..line import Line
from ..setting import KEYS, read_value, value_of
from ..table import command
from .looking import as_text

if TYPE_CHECKING:
    from .....protocol.control.caller import Caller
    from ..chat import Chat

_USAGE = "Usage: .set <key> <value>. If value is null, unset key."


def _models(chat: Chat, caller: Caller, words: Sequence[str]) -> names.Names:
    return names.models(chat.hub.root) if len(words) < 2 and caller.has("read:models") else []


@command(
    ".model",
    "Change the model",
    usage="<name>",
    completes=_models,
)
async def _model(line: Line) -> None:
    if not line.rest:
        line.caller.need("read:models")
        known = dict(await trio.to_thread.run_sync(names.models, line.root))
        chosen = await line.choose("Which model? (prices: USD per million tokens)", list(known), list(known.values()))
        if chosen is None:
            raise line.misused()
        await set_model(line, chosen)
        return
    await set_model(line, line.rest)


_LONGEST = 1000
"""Characters that names of models have together."""


async def set_model(line: Line, name: str) -> None:
    """Have a model answer from now on, in the scope that the chat is in."""
    chat = line.chat
    _check_model_name(name)
    model = None if name == "null" else line.root.gateway.check(name)
    check_model(line.caller, model, line.root)
    if not chat.scoped:
        chat.model = model
        chat.memory.session.model = None  # that of the last prompt
        return
    async with chat.place.change(line.hub, line.caller) as session:
        session.model = model


def _check_model_name(name: str) -> None:
    if len(name) > _LONGEST or not name.isprintable():
        raise UsageError(f"{name[:60]!r} names no model; `.list models` shows those there are")


def _values(chat: Chat, caller: Caller, words: Sequence[str]) -> names.Names:
    """The keys, or what the key before may be."""
    if len(words) < 2:
        held = {key: value_of(chat, key) for key in KEYS}
        told = [(key, each.about + ("" if held[key] is None else f" ({held[key]})")) for key, each in KEYS.items()]
        return [*told, ("model", "the model that answers")]
    key, root = words[0], chat.hub.root
    if key in ("model", "rag_reranker_model"):
        return names.models(root, "reranker" if key != "model" else "chat") if caller.has("read:models") else []
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
    now = value_of(chat, key)
    shown = [] if now is None else [(as_text(now), "as it is now")]
    return [*shown, *((each, "") for each in known.suggests if each not in dict(shown))]


def _list_of(typed: str, offered: names.Names) -> names.Names:
    """Names behind those that stand there with commas between them."""
    before, comma, _ = typed.rpartition(",")
    return [(f"{before}{comma}{name}", about) for name, about in offered]


_OF_MACHINE = {"enabled_tools": "run:files", "enabled_mcp_servers": "run:files", "rag_reranker_model": "run:files"}
"""Keys that reach what is on this machine, and the scope for them."""

_OF_AGENT = frozenset({"enabled_tools", "enabled_mcp_servers"})
"""Keys that an agent's file alone decides."""

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
"""Keys of a conversation with one model: the nodes of a graph or a workflow have their own, each for itself."""


@command(".set", "Change a setting for this chat", usage="<key> <value>", completes=_values)
async def _set(line: Line) -> None:
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
    if not (KEYS[key].session and chat.scoped):
        chat.own[key] = value
        return
    if key == "save_session" and value is True and await chat.place.resume(line.hub, line.caller):
        chat.asked, chat.reply = None, chat.place.last_reply
        await line.note("The session goes on as its file has it; what was said meanwhile is not in it.")
        return
    async with chat.place.change(line.hub, line.caller) as session:
        setattr(session, key, value)
    if key == "save_session" and value is False and chat.session is not None and chat.session.kept:
        chat.session = chat.session.apart()
        await line.note("What is said from now on is not kept in the session's file.")


async def _check_names(line: Line, key: str, text: str) -> None:
    """Warn of names that name nothing yet; a model that can't be asked is refused, as `.model` does."""
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
                await line.warn(f"MCP server '{name}' is not configured; `.mcp` shows those there are")


def _check_agent(chat: Chat, key: str) -> None:
    """Raise where the agent that the chat is in has a file that goes before the key."""
    if chat.agent is None:
        return
    if key in _OF_AGENT:
        raise UsageError(f"agent '{chat.agent}' has the tools and servers of its file; `{key}` is for a chat without")
    if key in _OF_LOOP and chat.loop_agent is None:
        raise UsageError(f"`{key}` does not apply to '{chat.agent}', a graph or workflow: its nodes say it in its file")
