"""What `callboard kb status` prints: what is built of a base, and whether it is what its sources are now."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import Any

from ... import Root
from ...actors.work.knowledge.base.stale import Changes
from ...actors.work.knowledge.recipe import Recipe
from ...protocol.errors import KnowledgeError
from ...supervisors import Actor
from ..acting import act
from ..render.table import columns
from ..render.text import counted, json_object, one_line, safe
from .seen import Seen, bytes_in_words, look_at
from .targets import recipes

_NAMES = 5
"""Sources that a line names."""

_UNREADABLE = 20


def show_status(target: str, config_dir: str | None, *, pages: bool, as_json: bool) -> int:
    """Prints the status of all bases that are meant; returns the exit code: that of the first that can't be used."""
    found = [look_at(recipe) for recipe in recipes(target, config_dir)]
    built = [seen for seen in found if seen.meta is not None]

    async def compare(me: Actor, root: Root) -> dict[str, Changes | str]:
        compared: dict[str, Changes | str] = {}
        for seen in built:
            try:
                compared[seen.recipe.target] = await root.knowledge.changes(me, seen.recipe, pages=pages)
            except KnowledgeError as error:
                compared[seen.recipe.target] = str(error)
        return compared

    compared = act(compare, config_dir=config_dir) if built else {}
    changes = [compared.get(seen.recipe.target) for seen in found]
    both = list(zip(found, changes, strict=True))
    if as_json:
        bases = [seen.to_wire() | _compared(each) for seen, each in both]
        sys.stdout.write(json_object(bases=bases))
    else:
        sys.stdout.write("\n".join(_as_text(seen, each) for seen, each in both))
    failed = any(seen.error is not None or isinstance(each, str) for seen, each in both)
    return KnowledgeError.exit_code if failed else 0


def _compared(changes: Changes | str | None) -> dict[str, Any]:
    if changes is None:
        return {}
    if isinstance(changes, str):
        return {"error": changes}
    names = {"added": changes.added, "changed": changes.changed, "removed": changes.removed}
    return {"stale": bool(changes), "changes": {how: list(sources) for how, sources in names.items()}}


def _as_text(seen: Seen, changes: Changes | str | None) -> str:
    recipe, meta = seen.recipe, seen.meta
    build = f"callboard kb build {shlex.quote(recipe.target)}"
    facts = [["directory", f"{recipe.directory}, {bytes_in_words(seen.size)}" if seen.size else str(recipe.directory)]]
    if meta is not None:
        kept = meta.settings
        facts += [
            ["built", f"{seen.age}, generation {meta.generation}"],
            ["model", f"{meta.model}, {meta.dimension} numbers a vector" if meta.dimension else meta.model],
            ["holds", f"{counted(meta.chunks, 'chunk')} of {counted(meta.sources, 'source')}"],
            ["chunks of", f"{kept.chunk_size:,} {kept.unit}, overlap {seen.overlap}"],
            ["language", kept.language],
        ]
    facts.append(["made of", _made_of(recipe)])
    if seen.builder:
        facts.append(["building", f"{seen.builder} is at it"])
    elif seen.building:
        facts.append(["unfinished", f"a build was interrupted; {build} goes on from there"])
    if isinstance(changes, Changes):
        current = "up to date, but for what could not be read" if seen.unreadable else "up to date"
        facts.append(["state", f"{_differences(changes)}; {build}" if changes else current])
    elif error := seen.error or changes:
        facts.append(["error", error])
    else:
        facts.append(["state", f"not built; {build}"])
    lines = [f"{safe(recipe.target)} ({safe(recipe.what)})", *columns([[name, safe(said)] for name, said in facts])]
    if lost := seen.unreadable:
        lines.append(f"  could not be read: {len(lost)}")
        lines += [f"    {safe(each.source)}: {one_line(each.reason)}" for each in lost[:_UNREADABLE]]
        lines += [f"    and {len(lost) - _UNREADABLE} more"] if len(lost) > _UNREADABLE else []
    return "\n".join(lines) + "\n"


def _made_of(recipe: Recipe) -> str:
    if not recipe.documents:
        return str(recipe.upstream or "")
    relative = any("://" not in document for document in recipe.documents)
    return one_line(", ".join(recipe.documents), 200) + (f" (as seen from {recipe.base})" if relative else "")


def _differences(changes: Changes) -> str:
    """`2 added (a.md, b.md), 1 changed (c.md)`."""
    named = {"added": changes.added, "changed": changes.changed, "removed": changes.removed}
    return ", ".join(f"{len(sources)} {how} ({_some(sources)})" for how, sources in named.items() if sources)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(one_line(name, 60) for name in names[:_NAMES])
    return shown if len(names) <= _NAMES else f"{shown}, ..."
