"""What `callboard kb search` and `callboard kb export` print: what a query finds, and all there is."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ... import Root
from ...actors.work.knowledge.recipe import Recipe
from ...actors.work.knowledge.service import Mode
from ...protocol.errors import KnowledgeMissing, UsageError
from ...protocol.knowledge import Chunk, Hit, Retrieved
from ...supervisors import Actor
from ..acting import act
from ..render.plain import choose
from ..render.style import redrawable
from ..render.text import json_object, safe
from .seen import look_at
from .targets import recipes

_NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Search:
    """The flags of `callboard kb search`, as click read them."""

    target: str
    query: str
    top_k: int | None
    sources: tuple[str, ...]
    min_score: float
    mode: Mode
    rerank: str | None
    as_json: bool
    config_dir: str | None


def search_bases(request: Search) -> int:
    """Looks the query up in every base that is meant, and prints what was found; returns 1 if that is nothing.

    Raises:
        UsageError: the query is empty.
        KnowledgeMissing: one of them is not built.
    """
    if not request.query.strip():
        raise UsageError("QUERY is empty: say what to look for")
    found = [_reranked(recipe, request.rerank) for recipe in _built(request.target, request.config_dir)]

    async def look_up(me: Actor, root: Root) -> list[Retrieved]:
        return [
            await root.knowledge.retrieve(
                me,
                recipe,
                request.query,
                top_k=request.top_k,
                filters=request.sources,
                min_score=request.min_score,
                mode=request.mode,
                rerank=request.rerank != _NONE,
            )
            for recipe in found
        ]

    progress = choose(sys.stderr, quiet=not redrawable(sys.stderr), verbose=False, by_hand=True)
    answers = act(look_up, config_dir=request.config_dir, progress=progress)
    if request.as_json:
        rows = [_wire(recipe, answer) for recipe, answer in zip(found, answers, strict=True)]
        sys.stdout.write(json_object(bases=rows))
    else:
        several = len(found) > 1
        for recipe, answer in zip(found, answers, strict=True):
            title = f"{safe(recipe.target)} ({safe(recipe.what)})\n\n" if several else ""
            sys.stdout.write(title + _as_text(answer))
    if any(answer.chunks for answer in answers):
        return 0
    if not request.as_json:
        sys.stderr.write("callboard: nothing was found\n")
    return 1


def _built(target: str, config_dir: str | None) -> list[Recipe]:
    """The recipes that are meant, if all of them are built."""
    found = recipes(target, config_dir)
    for recipe in found:
        seen = look_at(recipe)
        if seen.meta is None and seen.error is None:
            raise KnowledgeMissing(
                f"{recipe.what} is {seen.state}; run: callboard kb build {shlex.quote(recipe.target)}"
            )
    return found


def _reranked(recipe: Recipe, model: str | None) -> Recipe:
    return recipe if model in (None, _NONE) else msgspec.structs.replace(recipe, reranker_model=model)


def _wire(recipe: Recipe, answer: Retrieved) -> dict[str, Any]:
    return {"target": recipe.target, "what": recipe.what, **msgspec.to_builtins(answer)}


def _as_text(answer: Retrieved) -> str:
    return "".join(f"{_headline(hit)}\n{_indented(hit.text)}\n\n" for hit in answer.chunks)


def _headline(hit: Hit) -> str:
    first, last = hit.lines
    where = f"{hit.source}:{first}" if first == last else f"{hit.source}:{first}-{last}"
    under = f"  {' > '.join(hit.heading)}" if hit.heading else ""
    return safe(f"{hit.score:.3f}  {where}{under}").replace("\n", " ")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in safe(text.strip("\n")).splitlines())


def export_bases(target: str, config_dir: str | None) -> int:
    """Prints all chunks of the bases that are meant.

    Raises:
        KnowledgeMissing: one of them is not built.
        OSError: stdout can't be written.
    """
    found = _built(target, config_dir)
    encoder = msgspec.json.Encoder()

    def write(chunks: Sequence[Chunk]) -> None:
        sys.stdout.write("".join(f"{encoder.encode(_exported(chunk)).decode()}\n" for chunk in chunks))

    async def export(_me: Actor, root: Root) -> OSError | None:
        try:
            for recipe in found:
                async with root.knowledge.base(recipe) as base:
                    await base.export(write)
        except OSError as error:
            return error
        return None

    if (error := act(export, config_dir=config_dir)) is not None:
        raise error
    return 0


def _exported(chunk: Chunk) -> dict[str, Any]:
    heading = list(chunk.heading)
    return {"id": chunk.id, "source": chunk.source, "lines": chunk.lines, "heading": heading, "text": chunk.text}
