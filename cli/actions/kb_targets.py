"""Knowledge bases by name: the bases of a TARGET of `callboard kb`, new ones, and the list.

A TARGET is the name of a base, an agent, one node of an agent, or a directory. This module reads no document and opens
no base; `.kb` does, and has the heavy imports.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

from ... import GraphAgent, LoopAgent
from ...actors.io.directories import config_dir as configured
from ...actors.io.settings import load_settings
from ...actors.runs.finding import built_in_agents, own_agents
from ...actors.runs.target import load_agent
from ...actors.work.knowledge import registry
from ...actors.work.knowledge.base.layout import ENDING
from ...actors.work.knowledge.embed import local
from ...actors.work.knowledge.overview import BaseInfo, base_info
from ...actors.work.knowledge.recipe import Recipe, recipes_of
from ...actors.work.models import weights
from ...protocol.errors import CallboardError, UsageError
from ...protocol.problems import did_you_mean
from ..render.narration import ago
from ..render.text import columns, counted, json_object, one_line, safe
from .missing_inputs import definition


def recipes(target: str, config_dir: str | None) -> list[Recipe]:
    """Return the recipes of the target's bases, at least one. Warnings about a base's file go to stderr.

    Raises:
        UsageError: the target does not exist, or is ambiguous.
        CallboardError: the agent's file, or the base's, has errors.
    """
    base, _ = configured(config_dir, os.environ)
    # The shell's completion appends a slash to a directory.
    if target.rstrip(os.sep).endswith(ENDING):
        return [registry.named(target.rstrip(os.sep), base)]
    agent, colon, node = target.rpartition(":")
    # A directory's own name may contain a colon.
    if colon and not Path(target).exists():
        return [_one_recipe(load_agent(agent, config_dir=config_dir), node, base)]
    file = registry.file_of(target, base)
    if file is None:
        return list(_all_recipes(_agent(target, config_dir, base), base).values())
    if is_agent(target, base):
        agent_home = base / "agents" / target
        where = agent_home if agent_home.is_dir() else f"$(callboard agents path {target})"
        raise UsageError(
            f"'{target}' is a knowledge base ({file}) and an agent too; use one of these: {registry.home(target, base)}"
            f" or {where}"
        )
    recipe = registry.named(target, base)
    sys.stderr.write("".join(f"{safe(str(each))}\n" for each in registry.warnings(target, base)))
    return [recipe]


def of_agent(agent: GraphAgent | LoopAgent, base: Path) -> dict[str, Recipe]:
    """Return the recipes of an agent's knowledge bases by node; `base` is the configuration directory."""
    return recipes_of(definition(agent), agent.directory, base, os.environ)


def _agent(target: str, config_dir: str | None, base: Path) -> GraphAgent | LoopAgent:
    # Before `load_agent`, whose error would only say that the directory has no agent.
    if _is_only_documents(target) and not is_agent(target, base):
        raise UsageError(
            f"'{target}' is neither a knowledge base nor an agent; to make a base of it:"
            f" callboard kb new NAME {shlex.quote(target)}"
        )
    if os.sep in target or is_agent(target, base) or Path(target).exists():
        return load_agent(target, config_dir=config_dir)
    near = did_you_mean(target, [*registry.names(base), *own_agents(base), *built_in_agents()])
    raise UsageError(
        f"'{target}' is neither a knowledge base nor an agent nor the directory of one;"
        f" {near or 'to list the bases: callboard kb; to make one: callboard kb new'}"
    )


def _is_only_documents(target: str) -> bool:
    """True if the target is a directory without an agent's file."""
    path = Path(target).expanduser()
    return path.is_dir() and not any((path / name).exists() for name in ("config.yaml", "graph.yaml"))


def is_agent(target: str, base: Path) -> bool:
    """True if the target is the name of an agent; `base` is the configuration directory."""
    return (base / "agents" / target).is_dir() or target in built_in_agents()


def _all_recipes(agent: GraphAgent | LoopAgent, base: Path) -> dict[str, Recipe]:
    found = of_agent(agent, base)
    if not found:
        lacks = "rag node" if isinstance(agent, GraphAgent) else "`documents`"
        raise UsageError(f"agent '{agent.name}' has no {lacks}, so it has no knowledge base")
    return found


def _one_recipe(agent: GraphAgent | LoopAgent, node: str, base: Path) -> Recipe:
    found = _all_recipes(agent, base)
    if node not in found:
        hint = did_you_mean(node, found) or f"there are: {', '.join(found)}"
        raise UsageError(f"agent '{agent.name}' has no knowledge base '{node}'; {hint}")
    return found[node]


def state_of(seen: BaseInfo) -> str:
    """Return the state of a base: its number of chunks, or why there are none."""
    if seen.error is not None:
        return "can't be used"
    if seen.meta is None:
        return "being built" if seen.builder else "unfinished" if seen.building else "not built"
    return counted(seen.meta.chunks, "chunk")


def age_of(seen: BaseInfo) -> str:
    """Return the time since the base was built; "" if it was not."""
    return "" if seen.meta is None else ago(seen.meta.built)


def bytes_in_words(size: int) -> str:
    """Return a size as `640 kB` or `12.4 MB`."""
    return f"{max(1, round(size / 1000))} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


_SOURCES = 60


def make_base(name: str, sources: tuple[str, ...], config_dir: str | None, **how: Any) -> str:
    """Write the file of a new base, with `how` as further keys; return a message for the user.

    Raises:
        UsageError: the name is invalid or taken, or a source is invalid.
    """
    base, _ = configured(config_dir, os.environ)
    settings, _ = load_settings(base)
    file = registry.make(name, sources, base, loaders=tuple(settings.document_loaders), **how)
    there = "" if config_dir is None else f" --config-dir {shlex.quote(config_dir)}"
    both = is_agent(name, base)  # the name would be ambiguous
    target = shlex.quote(str(registry.home(name, base))) if both else name
    steps = [f"callboard kb build {target}{there}", f'callboard ask --kb {name}{there} "what you want to know"']
    if not (how["embedding_model"] or settings.rag_embedding_model or _has_weights()):
        steps.insert(0, f"callboard models pull {local.PULLED_AS}")
    return "\n".join([f"wrote {safe(str(file))}", "", *steps]) + "\n"


def _has_weights() -> bool:
    return weights.KNOWN[local.PULLED_AS].are_in(weights.directory(os.environ))


def list_bases(config_dir: str | None, *, as_json: bool) -> str:
    """Return all named bases, and the bases of agents. Unreadable agents are omitted."""
    base, _ = configured(config_dir, os.environ)
    broken: list[list[str]] = []
    own: list[BaseInfo] = []
    for name in registry.names(base):
        try:
            own.append(base_info(registry.named(name, base)))
        except CallboardError as error:
            broken.append([name, "can't be read", "", one_line(str(error))])
    ofs = [base_info(recipe) for recipe in _of_agents(base)]
    if as_json:
        rows = [*(seen.to_wire() for seen in (*own, *ofs)), *({"target": row[0], "error": row[3]} for row in broken)]
        return json_object(bases=rows)
    lines = [f"yours ({safe(str(registry.folder(base)))})"]
    lines += columns([*map(_base_row, own), *broken]) or ["  none yet (to make one: callboard kb new NAME SOURCE...)"]
    if ofs:
        lines += ["of agents", *columns([_base_row(seen) for seen in ofs])]
    return "\n".join(lines) + "\n"


def _of_agents(base: Path) -> list[Recipe]:
    own = own_agents(base)
    found: list[Recipe] = []
    for name in [*own, *(each for each in built_in_agents() if each not in own)]:
        try:
            found += of_agent(load_agent(name, config_dir=base), base).values()
        except CallboardError:
            continue  # `callboard agents` lists it with its error
    return found


def _base_row(seen: BaseInfo) -> list[str]:
    recipe = seen.recipe
    made_of = ", ".join(recipe.documents) or str(recipe.upstream or "")
    return [safe(recipe.target), state_of(seen), age_of(seen), one_line(made_of, _SOURCES)]
