"""Keys of `.set`: the type of their values, and the scope that they change.

    scope: session    changes the session, role or agent if there is one, else the chat
    scope: chat       always changes the chat

`runs.session_run` and `runs.begin` (`RunCallbacks.settings`) read the values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from ....protocol.errors import UsageError
from ....protocol.problems import did_you_mean
from ....protocol.settings import Settings

Value = str | int | float | bool | None
MOST = 2**53 - 1
"""Largest integer that every JSON client can represent."""

LONGEST = 10_000
"""Maximum characters of a text value, because every change sends all values to each watcher."""

_FLAGS = {"true": True, "false": False}


class SettingKey(msgspec.Struct, frozen=True, kw_only=True):
    """Key of `.set`.

    Attributes:
        read: parses a value; raises ValueError.
        wanted: description of valid values.
        session: whether `Session` has a field of that name.
        about: description of the effect.
        suggests: values offered by completion.
        default: effective value if none is set; None if clients need not know it.
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


def _number(
    about: str, read: Callable[[str], Value], wanted: str, *, session: bool = False, suggest: str = ""
) -> SettingKey:
    return SettingKey(
        read=read, wanted=wanted, about=about, session=session, suggests=(*([suggest] if suggest else []), "null")
    )


def _switch(about: str, *, session: bool = False, default: bool | None = None) -> SettingKey:
    suggests = ("true", "false", "null")
    return SettingKey(
        read=_flag, wanted="true or false", about=about, session=session, suggests=suggests, default=default
    )


def _words(about: str, wanted: str, *, session: bool = False) -> SettingKey:
    return SettingKey(read=_text, wanted=f"{wanted}, at most {LONGEST:,} characters", about=about, session=session)


KEYS: dict[str, SettingKey] = {
    "temperature": _number(
        "randomness of the model's words (sampling temperature)",
        _between(0, 2),
        "a number from 0 to 2",
        session=True,
        suggest="0.7",
    ),
    "top_p": _number(
        "share of the likely words that the model chooses from (nucleus sampling)",
        _between(0, 1),
        "a number from 0 to 1",
        session=True,
        suggest="0.9",
    ),
    "enabled_tools": _words("tools that the model may call, or `all`", "names separated by commas", session=True),
    "enabled_mcp_servers": _words(
        "MCP servers that the model may use, or `all`", "names separated by commas", session=True
    ),
    "max_output_tokens": _number(
        "maximum length of a reply, in tokens", _at_least(1), "a number of at least 1", suggest="4096"
    ),
    "save_session": _switch(
        "whether sessions are saved without asking (true), never (false), or after asking (null)", session=True
    ),
    "compression_threshold": _number(
        "number of tokens above which a session is compressed; 0 for never",
        _at_least(-MOST),
        "a whole number",
        session=True,
        suggest="4000",
    ),
    "rag_reranker_model": _words("model that sorts the passages found in a knowledge base", "a model"),
    "rag_top_k": _number(
        "number of passages that a search in a knowledge base returns",
        _at_least(1),
        "a number of at least 1",
        suggest="5",
    ),
    "dry_run": _switch("whether requests are only shown, and not sent to a model"),
    "function_calling_support": _switch("whether models may call tools"),
    "mcp_server_support": _switch("whether MCP servers are used"),
    "stream": _switch("whether answers are shown while they are written", default=True),
    "save": _switch("whether questions and answers are appended to the messages file"),
    "highlight": _switch("whether Markdown is rendered and code is coloured"),
    "auto_continue": _switch("whether the agent continues while the todo list has open items", session=True),
    "max_auto_continues": _number(
        "how often it continues at most", _at_least(0), "a number of at least 0", session=True, suggest="10"
    ),
    "inject_todo_instructions": _switch("whether the todo list is explained to the model", session=True),
    "continuation_prompt": _words("prompt with which the agent continues by itself", "a text", session=True),
}

_ONE_WORD = {"enabled_tools", "enabled_mcp_servers", "rag_reranker_model"}


def read_value(key: str, text: str) -> Value:
    """Return the value of a key; None for `null`.

    Raises:
        UsageError: the key is unknown, or the value is invalid for it.
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
        raise UsageError(f"the value of `.set {key}` must be {known.wanted}, or null, not {text[:60]!r}") from None


_OF_SETTINGS = frozenset(Settings.__struct_fields__)


def applied(settings: Settings, own: dict[str, Any]) -> Settings:
    """Return the settings with the chat's changes; None restores the default of a setting."""
    if not own:
        return settings
    fields = {
        key: _by_themselves()[key] if value is None else value for key, value in own.items() if key in _OF_SETTINGS
    }
    other = {key: value for key, value in own.items() if key not in _OF_SETTINGS}
    if "function_calling_support" in other:  # the configuration file has two names for it
        other["function_calling"] = other["function_calling_support"]
    return msgspec.structs.replace(settings, **fields, other={**settings.other, **other})


@cache
def _by_themselves() -> dict[str, Any]:
    """Return the defaults of all settings. Cached, because msgspec compiles every annotation for this."""
    return {field.name: field.default for field in msgspec.structs.fields(Settings)}


def configured_value(settings: Settings, key: str) -> Value:
    """Return the value of a key in the settings, else its default; None for none."""
    # Keys without a field of `Settings` are among its other keys.
    found: Value = getattr(settings, key) if key in _OF_SETTINGS else settings.other.get(key)
    return KEYS[key].default if found in (None, "") else found
