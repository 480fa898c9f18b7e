"""Knowledge bases: `.rag` and its related commands select, build and show the base that prompts are looked up in."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from .....protocol.errors import NotFound, UsageError
from .....protocol.events import KnowledgeRetrieved, decode
from ....work.knowledge import registry
from ....work.knowledge.overview import base_info
from ....work.knowledge.recipe import Recipe
from .. import completion
from ..command_line import ChatLine, command
from .info import counted, table

if TYPE_CHECKING:
    from ....work.knowledge.base.model import BuildReport
    from ....work.knowledge.overview import BaseInfo

MAKES_BASES = ("run:files",)
"""Scopes required to build a base, which reads and writes files of this machine."""

_NAMED = 20
"""Maximum number of unreadable sources listed by name."""


@command(
    ".rag",
    "Use a knowledge base for prompts, or create one",
    usage="<name>",
    completes=lambda chat, caller, words: completion.rags(chat, caller) if len(words) == 1 else [],
)
async def _rag(line: ChatLine) -> None:
    name = line.rest
    if not name:
        known = [each for each, _ in await trio.to_thread.run_sync(completion.rags, line.chat, line.caller)]
        name = (await line.choose("Which knowledge base?", known) if known else None) or ""
    if not name:
        raise UsageError("Usage: .rag <name>; a name that does not exist yet creates a new knowledge base")
    if not registry.is_path(name) and registry.file_of(name, line.root.config_dir) is None:
        await _make(line, name)
    recipe, is_built = await _usable(line, name)
    if not is_built:
        await _build(line, recipe)
    line.chat.rag = name


async def use_rag(line: ChatLine, name: str) -> None:
    """Look prompts up in an existing knowledge base from now on."""
    if not registry.is_path(name) and registry.file_of(name, line.root.config_dir) is None:
        raise NotFound(f"there is no knowledge base {name[:60]!r}; create it in a chat with `.rag NAME`")
    await _usable(line, name)
    line.chat.rag = name


async def _usable(line: ChatLine, name: str) -> tuple[Recipe, bool]:
    """Return the recipe of a base that the caller may use, and whether the base is built."""
    if registry.is_path(name):
        line.caller.need("run:files")
    recipe = await _recipe(line, name)
    seen = await trio.to_thread.run_sync(base_info, recipe)
    if seen.error is not None:
        raise UsageError(f"{recipe.what} can't be used: {seen.error}")
    return recipe, seen.meta is not None


async def _make(line: ChatLine, name: str) -> None:
    """Ask the user for the documents of a new base, and write its file."""
    line.caller.need("run:files")
    settings = line.root.settings
    text = (
        f"There is no knowledge base {name[:60]!r} yet. From which documents shall it be built? Files, globs, "
        "URLs, separated by `;`"
    )
    documents = [each.strip() for each in (await line.ask(text) or "").split(";") if each.strip()]
    if not documents:
        raise UsageError(f"no documents were named, so the knowledge base {name[:60]!r} was not created")
    model = settings.rag_embedding_model or None
    if model is None and (known := _embedding_models(line)):
        model = known[0] if len(known) == 1 else await line.choose("Which embedding model shall be used?", known)
    size = await _number(line, "Chunk size in characters", settings.rag_chunk_size)
    overlap = await _number(line, "Overlap of chunks in characters", settings.rag_chunk_overlap)
    make = partial(
        registry.make,
        name,
        documents,
        line.root.config_dir,
        loaders=tuple(settings.document_loaders),
        embedding_model=model,
        chunk_size=size,
        chunk_overlap=overlap,
    )
    file = await trio.to_thread.run_sync(make)
    await line.note(f"wrote {file}")


def _embedding_models(line: ChatLine) -> list[str]:
    """Return the embedding models of the configuration."""
    return [
        f"{client.name or client.type}:{model.name}"
        for client in line.root.settings.clients
        for model in client.models
        if model.type == "embedding"
    ]


async def _number(line: ChatLine, text: str, default: int | None) -> int | None:
    said = await line.ask(f"{text} (Enter for {default or 'the default of the model'})", default=str(default or ""))
    if not said or not said.strip():
        return default
    if not said.strip().isdecimal():
        raise UsageError(f"'{said.strip()[:60]}' is not a number of characters")
    return int(said)


async def _recipe(line: ChatLine, name: str) -> Recipe:
    try:
        return await trio.to_thread.run_sync(registry.named, name, line.root.config_dir)
    except (OSError, RuntimeError, ValueError):  # name too long, unknown home directory, or a zero byte
        raise NotFound(f"{name[:60]!r} is neither a knowledge base nor a readable directory") from None


async def _build(line: ChatLine, recipe: Recipe, *, rebuild: bool = False) -> None:
    await line.note(f"Building {recipe.what} ...")
    await _report_build(line, recipe, await line.root.build_knowledge(recipe, line.caller.subject, rebuild=rebuild))


async def _report_build(line: ChatLine, recipe: Recipe, report: BuildReport) -> None:
    for each in report.unreadable[:_NAMED]:
        await line.warn(f"not read: {each.source}: {each.reason}")
    if len(report.unreadable) > _NAMED:
        await line.warn(f"could not be read: {len(report.unreadable) - _NAMED} more documents")
    if not report.chunks:
        raise UsageError(f"{recipe.what} is empty: none of its documents has readable text")
    sources = report.added + report.changed + report.unchanged
    await line.note(
        f"{recipe.what}: {counted(report.chunks, 'chunk')} of {counted(sources, 'source')}, in {report.seconds:.1f} s"
    )


@command(".rebuild rag", "Rebuild the knowledge base", needs=("rag",), scopes=MAKES_BASES)
async def _rebuild(line: ChatLine) -> None:
    await _build(line, await _in_use(line), rebuild=True)


async def _in_use(line: ChatLine) -> Recipe:
    assert line.chat.rag is not None  # guaranteed by `needs`
    return await _recipe(line, line.chat.rag)


@command(".edit rag-docs", "Edit the list of the knowledge base's documents", needs=("rag",), scopes=MAKES_BASES)
async def _edit(line: ChatLine) -> None:
    recipe = await _in_use(line)
    file = registry.file_of(recipe.target, line.root.config_dir)
    # Bases of Loki have no file of Callboard's format.
    if file is None or recipe.upstream is not None:
        raise UsageError(
            f"{recipe.what} has no definition file in the configuration directory, so it can't be edited in the chat"
        )
    text = await trio.to_thread.run_sync(partial(file.read_text, encoding="utf-8"))
    base = line.root.config_dir
    if await line.edit_until(file.name, text, lambda edited: registry.replace(recipe.target, edited, base)) is None:
        await line.note("nothing was changed")
        return
    await _build(line, await _in_use(line))


@command(".sources rag", "Show the sources of the last answer's passages", needs=("rag",), at_work=True)
async def _sources(line: ChatLine) -> None:
    sources = await _retrieved(line)
    await line.say("\n".join(sources) if sources else "No sources")


async def _retrieved(line: ChatLine) -> list[str]:
    """Return the sources retrieved by the last run, each once, in order."""
    run, after, found = line.chat.last_run, 0, dict[str, None]()
    while run is not None:
        try:
            page = await line.hub.events(line.caller, run, after)
        except NotFound:  # its log was removed
            break
        if not page:
            break
        for event in page:
            if event.kind == KnowledgeRetrieved.kind and (told := decode(event.data)) is not None:
                assert isinstance(told.data, KnowledgeRetrieved)
                found |= dict.fromkeys(told.data.sources)
        after = page[-1].seq
    return list(found)


@command(".info rag", "Show the knowledge base", needs=("rag",), at_work=True)
async def _info(line: ChatLine) -> None:
    recipe = await _in_use(line)
    seen: BaseInfo = await trio.to_thread.run_sync(base_info, recipe)
    meta = seen.meta
    shows_files = line.shows("run:files")
    rows: list[tuple[str, object]] = [("name", recipe.target)]
    if shows_files:
        rows.append(("directory", recipe.directory))
    if meta is not None:
        rows += [
            ("model", meta.model),
            ("chunk_size", meta.settings.chunk_size),
            ("chunk_overlap", seen.overlap),
            ("chunks", meta.chunks),
            ("sources", meta.sources),
        ]
    settings = line.chat.settings
    rows += [("top_k", settings.rag_top_k), ("reranker_model", settings.rag_reranker_model or "none")]
    if shows_files:
        rows += [("documents" if not at else "", each) for at, each in enumerate(recipe.documents)]
    await line.say(table(rows))


@command(".exit rag", "Stop using the knowledge base", needs=("rag",))
async def _exit(line: ChatLine) -> None:
    line.chat.rag = None
