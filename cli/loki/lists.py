"""Names for scripts, one per line: output of `--list-models` and similar flags."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from ...actors.io.directories import config_dir as configured
from ...actors.io.settings import load_settings
from ...actors.runs.finding import built_in_agents, own_agents
from ...actors.runs.sessions.store import SessionStore
from ...actors.work.macros import FILES as MACROS
from ...actors.work.models.model_listing import model_names
from ...actors.work.roles import FILES as ROLES
from ..options import base_names


def _models(base: Path, _agent: str | None) -> Iterable[str]:
    settings, _ = load_settings(base)
    return sorted(model_names(settings, os.environ))


_LISTS: dict[str, Callable[[Path, str | None], Iterable[str]]] = {
    "models": _models,
    "roles": lambda base, _agent: [place.name for place in ROLES.places(base)],
    "sessions": lambda base, agent: [meta.alias or meta.id for meta in SessionStore(base).list(agent)],
    "agents": lambda base, _agent: sorted({*own_agents(base), *built_in_agents()}),
    "rags": lambda base, _agent: sorted(base_names(base)),
    "macros": lambda base, _agent: [place.name for place in MACROS.places(base)],
}


def names_of(kind: str, config_dir: str | None, agent: str | None) -> Iterable[str]:
    """Return names by the word after `--list-`; sessions are the agent's, or the ones without an agent."""
    return _LISTS[kind](configured(config_dir, os.environ)[0], agent)
