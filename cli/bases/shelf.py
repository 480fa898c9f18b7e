"""What `callboard kb new` and `callboard kb list` do."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from ...actors.io.directories import config_dir as configured
from ...actors.io.settings import load_settings
from ...actors.runs.finding import built_in_agents, own_agents
from ...actors.runs.target import load_agent
from ...actors.work.knowledge import shelf
from ...actors.work.knowledge.embed import static
from ...actors.work.knowledge.recipe import Recipe
from ...actors.work.models import weights
from ...protocol.errors import CallboardError
from ..render.table import columns
from ..render.text import json_object, one_line, safe
from .seen import Seen, look_at
from .targets import is_agent, of_agent

_SOURCES = 60


def make_base(name: str, sources: tuple[str, ...], config_dir: str | None, **how: Any) -> str:
    """Writes the file of a base, with `how` among its keys; what to tell the user.

    Raises:
        UsageError: the name is taken or won't do, or a source means nothing.
    """
    base, _ = configured(config_dir, os.environ)
    settings, _ = load_settings(base)
    file = shelf.make(name, sources, base, loaders=tuple(settings.document_loaders), **how)
    there = "" if config_dir is None else f" --config-dir {shlex.quote(config_dir)}"
    target = shlex.quote(str(shelf.home(name, base))) if is_agent(name, base) else name  # for which both could be meant
    steps = [f"callboard kb build {target}{there}", f'callboard ask --kb {name}{there} "what you want to know"']
    if not (how["embedding_model"] or settings.rag_embedding_model or _has_weights()):
        steps.insert(0, f"callboard models pull {static.PULLED_AS}")
    return "\n".join([f"wrote {safe(str(file))}", "", *steps]) + "\n"


def _has_weights() -> bool:
    """Whether the default model is installed."""
    return weights.KNOWN[static.PULLED_AS].are_in(weights.directory(os.environ))


def list_bases(config_dir: str | None, *, as_json: bool) -> str:
    """All bases with names of their own, and those of agents. Agents that can't be read are left out."""
    base, _ = configured(config_dir, os.environ)
    broken: list[list[str]] = []
    own: list[Seen] = []
    for name in shelf.names(base):
        try:
            own.append(look_at(shelf.named(name, base)))
        except CallboardError as error:
            broken.append([name, "can't be read", "", one_line(str(error))])
    ofs = [look_at(recipe) for recipe in _of_agents(base)]
    if as_json:
        rows = [*(seen.to_wire() for seen in (*own, *ofs)), *({"target": row[0], "error": row[3]} for row in broken)]
        return json_object(bases=rows)
    lines = [f"yours ({safe(str(shelf.folder(base)))})"]
    lines += columns([*map(_row, own), *broken]) or ["  none yet (callboard kb new NAME SOURCE... makes one)"]
    if ofs:
        lines += ["of agents", *columns([_row(seen) for seen in ofs])]
    return "\n".join(lines) + "\n"


def _of_agents(base: Path) -> list[Recipe]:
    own = own_agents(base)
    found: list[Recipe] = []
    for name in [*own, *(each for each in built_in_agents() if each not in own)]:
        try:
            found += of_agent(load_agent(name, config_dir=base), base).values()
        except CallboardError:
            continue  # `callboard agents` lists it, and says what is wrong
    return found


def _row(seen: Seen) -> list[str]:
    recipe = seen.recipe
    made_of = ", ".join(recipe.documents) or str(recipe.upstream or "")
    return [safe(recipe.target), seen.state, seen.age, one_line(made_of, _SOURCES)]
