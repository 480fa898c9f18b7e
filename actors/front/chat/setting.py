"""What `.set` can set: a table of keys, each with the kind of its value and where it has its effect.

    scope: session    in a session, a role or an agent it goes with that; else it is the chat's
    scope: chat       it is always the chat's

A key of `Session` or of the settings is read where that is read: `runs.in_session`, `runs.begin` (`Hooks.settings`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from ....protocol.errors import UsageError
from ....protocol.problems import did_you_mean
from ....protocol.settings import Settings

if TYPE_CHECKING:
    from ....protocol.session import Session
    from .chat import Chat

Value = str | int | float | bool | None
MOST = 2**53 - 1
"""The largest number, which every client can read."""

LONGEST = 10_000
"""Characters of a text, since each who watches is told all values whenever one changes."""

_FLAGS = {"true": True, "false": False}


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key of `.set`.

    Attributes:
        read: makes a value of a text; raises ValueError.
        wanted: what is expected, in words.
        session: whether a session has a field of that name.
        about: what it does.
        suggests: values that completion shows.
        default: what it is where nothing says it, if that is for every client to know.
    """

    read: Callable[[str], Value]
    wanted: str
    about: str
    session: bool = False
    suggests: tuple[str, ...] = ()
    default: Value = None


def _flag(text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise ValueError
    return _FLAGS[text.lower()]


def _between(low: float, high: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise ValueError
        return value

    return read


def _at_least(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if not least <= value <= MOST:
            raise ValueError
        return value

    return read


def _text(text: str) -> str:
    if len(text) > LONGEST:
        raise ValueError
    return text


def _number(about: str, read: Callable[[str], Value], wanted: str, *, session: bool = False, suggest: str = "") -> Key:
    return Key(
        read=read, wanted=wanted, about=about, session=session, suggests=(*([suggest] if suggest else []), "null")
    )


def _switch(about: str, *, session: bool = False, default: bool | None = None) -> Key:
    suggests = ("true", "false", "null")
    return Key(read=_flag, wanted="true or false", about=about, session=session, suggests=suggests, default=default)


def _words(about: str, wanted: str, *, session: bool = False) -> Key:
    return Key(read=_text, wanted=f"{wanted}, {LONGEST:,} characters at most", about=about, session=session)


KEYS: dict[str, Key] = {
    "temperature": _number(
        "how free the model is with words", _between(0, 2), "a number from 0 to 2", session=True, suggest="0.7"
    ),
    "top_p": _number(
        "how many of the likely words it chooses from",
        _between(0, 1),
        "a number from 0 to 1",
        session=True,
        suggest="0.9",
    ),
    "enabled_tools": _words("tools that the model may call, or `all`", "names with commas between them", session=True),
    "enabled_mcp_servers": _words(
        "MCP servers that the model may use, or `all`", "names with commas between them", session=True
    ),
    "max_output_tokens": _number(
        "the longest reply, in tokens", _at_least(1), "a number of at least 1", suggest="4096"
    ),
    "save_session": _switch("keep sessions without asking (true), never (false), or ask (null)", session=True),
    "compression_threshold": _number(
        "tokens from which on a session is compressed; 0 for never",
        _at_least(-MOST),
        "a whole number",
        session=True,
        suggest="4000",
    ),
    "rag_reranker_model": _words("the model that puts what was found in order", "a model"),
    "rag_top_k": _number("how many passages a look-up finds", _at_least(1), "a number of at least 1", suggest="5"),
    "dry_run": _switch("send nothing to a model; the answer is what would have been sent"),
    "function_calling_support": _switch("whether models may call tools at all"),
    "mcp_server_support": _switch("whether MCP servers are used at all"),
    "stream": _switch("show answers while they are written", default=True),
    "save": _switch("keep what is asked and answered in a file of messages"),
    "highlight": _switch("render Markdown and colour code"),
    "auto_continue": _switch("go on while the todo list has open items", session=True),
    "max_auto_continues": _number(
        "how often, at most", _at_least(0), "a number of at least 0", session=True, suggest="10"
    ),
    "inject_todo_instructions": _switch("explain the todo list to the model", session=True),
    "continuation_prompt": _words("what the model reads when it goes on by itself", "a text", session=True),
}

_ONE_WORD = {"enabled_tools", "enabled_mcp_servers", "rag_reranker_model"}


def read_value(key: str, text: str) -> Value:
    """The value of a key; None for `null`.

    Raises:
        UsageError: there is no such key, or it takes no such value.
    """
    known = KEYS.get(key)
    if known is None:
        near = did_you_mean(key[:60], list(KEYS))
        raise UsageError(f"Unknown key {key[:60]!r}; " + (near or "`.help .set` lists them"))
    if text == "null":
        return None
    if key != "continuation_prompt" and key not in _ONE_WORD and len(text.split()) > 1:
        raise UsageError("Usage: .set <key> <value>. If value is null, unset key.")
    try:
        return known.read(text)
    except ValueError:
        raise UsageError(f"`.set {key}` takes {known.wanted}, or null, not {text[:60]!r}") from None


_OF_SETTINGS = frozenset(Settings.__struct_fields__)


def applied(settings: Settings, own: dict[str, Any]) -> Settings:
    """The settings with what a chat has set. None is what a setting is by itself."""
    if not own:
        return settings
    fields = {
        key: _by_themselves()[key] if value is None else value for key, value in own.items() if key in _OF_SETTINGS
    }
    other = {key: value for key, value in own.items() if key not in _OF_SETTINGS}
    if "function_calling_support" in other:  # which has two names in the file
        other["function_calling"] = other["function_calling_support"]
    return msgspec.structs.replace(settings, **fields, other={**settings.other, **other})


@cache
def _by_themselves() -> dict[str, Any]:
    """What settings are by themselves. msgspec compiles every annotation to find out, so once is enough."""
    return {field.name: field.default for field in msgspec.structs.fields(Settings)}


def value_of(chat: Chat, key: str) -> Value:
    """What a key is at the moment, wherever that was said; None for nothing."""
    if KEYS[key].session:
        of_session: Session = chat.place.session
        value: Value = getattr(of_session, key)
        if value is not None:
            return value
    settings = chat.settings
    found: Value = getattr(settings, key) if key in _OF_SETTINGS else settings.other.get(key)
    return KEYS[key].default if found in (None, "") else found


def shown(chat: Chat) -> dict[str, Value]:
    """Every key that has a value."""
    return {key: value for key in KEYS if (value := value_of(chat, key)) is not None}
