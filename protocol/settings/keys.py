"""The keys of `config.yaml` that hold one value each, and what may stand there."""

from __future__ import annotations

from typing import Any, get_args

from ..languages import Language
from ..mcp.config import ToolMode

Json = Any

TEXT, FLAG, INT, NUMBER = "text", "true or false", "a whole number", "a number"
SIZE, COUNT = "a whole number of at least 1", "a whole number of at least 0"
LEAST = {SIZE: 1, COUNT: 0}
_MODE, _LANGUAGE = (f"one of {', '.join(get_args(type))}" for type in (ToolMode, Language))
WORDS: dict[str, tuple[str, ...]] = {_MODE: get_args(ToolMode), _LANGUAGE: get_args(Language)}

USED: dict[str, str] = {
    "model": TEXT,
    "temperature": NUMBER,
    "top_p": NUMBER,
    "max_output_tokens": INT,
    "stream": FLAG,
    "dry_run": FLAG,
    "user_agent": TEXT,
    "enabled_tools": TEXT,
    "mcp_server_support": FLAG,
    "enabled_mcp_servers": TEXT,
    "mcp_tools": _MODE,
    "mcp_tools_budget": INT,
    "rag_embedding_model": TEXT,
    "rag_reranker_model": TEXT,
    "rag_top_k": SIZE,
    "rag_chunk_size": SIZE,
    "rag_chunk_overlap": COUNT,
    "rag_language": _LANGUAGE,
    "rag_private_pages": FLAG,
    "rag_template": TEXT,
}
"""Keys that have an effect, and what kind of value each takes."""

KEPT: dict[str, str] = {
    "save": FLAG,
    "keybindings": TEXT,
    "editor": TEXT,
    "wrap": TEXT,
    "wrap_code": FLAG,
    "highlight": FLAG,
    "light_theme": FLAG,
    "theme": TEXT,
    "left_prompt": TEXT,
    "right_prompt": TEXT,
    "save_shell_history": FLAG,
    "sync_models_url": TEXT,
    "vault_password_file": TEXT,
    "function_calling_support": FLAG,
    "function_calling": FLAG,
    "auto_continue": FLAG,
    "max_auto_continues": INT,
    "inject_todo_instructions": FLAG,
    "continuation_prompt": TEXT,
    "repl_prelude": TEXT,
    "cmd_prelude": TEXT,
    "agent_session": TEXT,
    "save_session": FLAG,
    "compression_threshold": INT,
    "summarization_model": TEXT,
    "summarization_threshold": INT,
    "summarization_prompt": TEXT,
    "summary_context_prompt": TEXT,
    "escalation_timeout": INT,
    "max_concurrent_agents": INT,
    "max_agent_depth": INT,
}
"""Keys that are accepted and have none yet."""


def fits(value: Json, kind: str) -> bool:
    if kind is TEXT:
        return isinstance(value, str)
    if kind is FLAG:
        return isinstance(value, bool)
    if kind in WORDS:
        return value in WORDS[kind]
    if isinstance(value, bool):
        return False
    if kind in LEAST:
        return isinstance(value, int) and value >= LEAST[kind]
    return isinstance(value, int) if kind is INT else isinstance(value, int | float)


def from_text(text: str, kind: str) -> Json:
    """A variable's text as a value of that kind, or None."""
    if kind is TEXT:
        return text
    if kind is FLAG:
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(text.lower())
    if kind in WORDS:
        return text if text in WORDS[kind] else None
    try:
        value = float(text) if kind is NUMBER else int(text)
    except ValueError:
        return None
    return value if fits(value, kind) else None
