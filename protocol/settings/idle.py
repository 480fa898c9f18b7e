"""Keys of `config.yaml` that are accepted for Loki's sake and have no effect yet, and the notes that say so."""

from __future__ import annotations

from ..mcp.config import PoolSettings
from ..problems import Problem
from ..source import Path, Source, dotted
from .model import Settings

WITHOUT_EFFECT: dict[str, str] = {
    **dict.fromkeys(("save", "save_shell_history", "repl_prelude"), "there is no chat at the terminal yet"),
    **dict.fromkeys(("keybindings", "editor", "left_prompt", "right_prompt"), "there is no chat at the terminal yet"),
    **dict.fromkeys(("wrap", "wrap_code", "highlight", "light_theme", "theme"), "replies are printed as they are"),
    "sync_models_url": "no list of models is fetched",
    "vault_password_file": "secrets come from the environment",
    "summarization_threshold": "an agent's own file says it",
    "escalation_timeout": "an agent's own file says it",
    "max_concurrent_agents": "an agent's own file says it",
    "max_agent_depth": "an agent's own file says it",
}
"""Keys that are accepted for Loki's sake and have no effect yet, and why. `doctor` and `validate` tell of them."""


def without_effect(settings: Settings, text: str = "") -> list[Problem]:
    """A warning for every key of the settings that has no effect, with its line in `text`.

    No run tells them: they do no harm there, and a user of Loki may have a dozen.
    """
    found: dict[Path, str] = {
        (key,): why for key, why in WITHOUT_EFFECT.items() if settings.other.get(key) not in (None, False, "")
    }
    if settings.mcp_pool.cleanup_interval_seconds != PoolSettings().cleanup_interval_seconds:
        found["mcp_pool", "cleanup_interval_seconds"] = "servers are stopped exactly when they are due"
    where = Source(settings.file, text)
    return [
        where.problem(
            "warning",
            "ignored_key",
            f"`{dotted(path)}` is accepted for Loki's sake and has no effect yet: {why}",
            path,
            at_key=True,
        )
        for path, why in found.items()
    ]
