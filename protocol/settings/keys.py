"""Keys of `config.yaml` that are not fields of `Settings`, and keys without an effect."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import inspect

from ..mcp.config import PoolSettings
from ..problems import Problem
from ..reading import fields_of
from ..schema import why_without_effect
from ..source import Source
from ..tree import Path, dotted
from .model import Settings

Text: TypeAlias = str | None
Flag: TypeAlias = bool | None
Whole: TypeAlias = int | None


class OtherKeys(msgspec.Struct, frozen=True, kw_only=True):
    """Keys that are accepted and have no effect yet, or are read by name (`Settings.other`)."""

    save: Flag = None
    compat: Literal["standard", "loki"] | None = None
    chat_agent: Text = None
    keybindings: Text = None
    editor: Text = None
    wrap: Text = None
    wrap_code: Flag = None
    highlight: Flag = None
    light_theme: Flag = None
    theme: Text = None
    left_prompt: Text = None
    right_prompt: Text = None
    save_shell_history: Flag = None
    sync_models_url: Text = None
    vault_password_file: Text = None
    function_calling_support: Flag = None
    function_calling: Flag = None
    auto_continue: Flag = None
    max_auto_continues: Whole = None
    inject_todo_instructions: Flag = None
    continuation_prompt: Text = None
    repl_prelude: Text = None
    cmd_prelude: Text = None
    agent_session: Text = None
    agent_prelude: Text = None
    save_session: Flag = None
    compression_threshold: Whole = None
    summarization_model: Text = None
    summarization_threshold: Whole = None
    summarization_prompt: Text = None
    summary_context_prompt: Text = None
    escalation_timeout: Whole = None
    max_concurrent_agents: Whole = None
    max_agent_depth: Whole = None


KEPT = OtherKeys.__struct_fields__
_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def bare(wanted: inspect.Type) -> inspect.Type:
    """Return the type of a non-null value, without its bounds."""
    while isinstance(wanted, inspect.Metadata | inspect.UnionType):
        wanted = wanted.type if isinstance(wanted, inspect.Metadata) else wanted.types[0]
    return wanted


def from_text(text: str, wanted: inspect.Type) -> Any:
    """Convert a text (of a variable or a reference) to the wanted type; return the text itself if it does not fit."""
    wanted = bare(wanted)
    try:
        if isinstance(wanted, inspect.IntType | inspect.FloatType):
            return float(text) if isinstance(wanted, inspect.FloatType) else int(text)
    except ValueError:
        return text
    return _FLAGS.get(text.lower(), text) if isinstance(wanted, inspect.BoolType) else text


WITHOUT_EFFECT: dict[str, str] = {
    "summarization_threshold": "an agent's own file says it",
    "escalation_timeout": "an agent's own file says it",
    "max_concurrent_agents": "an agent's own file says it",
    "max_agent_depth": "an agent's own file says it",
}
"""Keys that are accepted for compatibility with Loki and have no effect yet, with reasons. `doctor` and `validate`
report them.
"""


def without_effect(settings: Settings, text: str = "") -> list[Problem]:
    """Return a warning for every key of the settings without an effect, with its line in `text`.

    Runs do not report them: they are harmless there, and a user of Loki may have a dozen.
    """
    found: dict[Path, str] = {
        (key,): why for key, why in WITHOUT_EFFECT.items() if settings.other.get(key) not in (None, False, "")
    }
    for field in fields_of(PoolSettings):
        why = why_without_effect(field.type)
        if why is not None and getattr(settings.mcp_pool, field.name) != field.default:
            found["mcp_pool", field.name] = why
    where = Source(settings.file, text)
    what = "is accepted for Loki's sake and has no effect yet"
    return [
        where.problem("warning", "ignored_key", f"`{dotted(path)}` {what}: {why}", path, at_key=True)
        for path, why in found.items()
    ]
