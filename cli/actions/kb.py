"""Knowledge bases for `callboard kb`: list, new ones, build, drop, status, search and export.

A TARGET is the name of a base, an agent, one node of an agent, or a directory with documents; `recipes` returns the
recipes of its bases. `new` and `list` open no base.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from ... import GraphAgent, LoopAgent
from ...actors.io.directories import config_dir as configured
from ...actors.io.settings import load_settings
from ...actors.runs.finding import built_in_agents, own_agents
from ...actors.runs.root import Root
from ...actors.runs.target import load_agent
from ...actors.work.knowledge import registry
from ...actors.work.knowledge.base.base import SourceChanges
from ...actors.work.knowledge.base.layout import ENDING
from ...actors.work.knowledge.base.model import BuildReport
from ...actors.work.knowledge.embed import local
from ...actors.work.knowledge.overview import BaseInfo, base_info
from ...actors.work.knowledge.recipe import Recipe, recipes_of
from ...actors.work.knowledge.service import Mode
from ...actors.work.models import weights
from ...protocol.errors import CallboardError, KnowledgeError, KnowledgeMissing, UsageError
from ...protocol.kernel.questions import Question
from ...protocol.knowledge import Chunk, Hit, Retrieved
from ...protocol.problems import did_you_mean
from ...supervisors import Actor
from ..frame import act, choose_display, person_at_terminal
from ..render.narration import ago, duration
from ..render.text import columns, counted, json_object, one_line, redrawable, safe
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
    """Return all named bases, and the bases of agents, as text or JSON.

    A base with an unreadable file is listed with its error. Unreadable agents are omitted.
    """
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


_UNREADABLE = 20
"""Maximum number of unreadable files in the output; `status` lists more."""


def build_bases(target: str, config_dir: str | None, *, quiet: bool, as_json: bool, rebuild: bool = False) -> int:
    """Build the bases of the target one after the other; return 1 if one of them is empty.

    Each result is printed when it is complete, JSON at the end.

    Raises:
        KnowledgeError: a base can't be built; earlier ones are complete.
        click.exceptions.Exit: a signal interrupted it.
    """
    found = recipes(target, config_dir)
    progress = choose_display(sys.stderr, quiet=quiet, verbose=False, by_hand=True)
    reports: list[BuildReport] = []
    unwritten: list[OSError] = []

    async def build(me: Actor, root: Root) -> None:
        for recipe in found:
            # Providers charge for vectors as for a run's requests, so `callboard usage` includes them.
            with root.knowledge.charges.on(root.meter()):
                report = await root.knowledge.build(me, recipe, rebuild=rebuild)
            reports.append(report)
            if as_json or unwritten:
                continue
            try:
                with progress.aside():
                    _print_report(recipe, report, quiet=quiet)
            except OSError as error:
                unwritten.append(error)

    try:
        act(build, config_dir=config_dir, progress=progress)
    except click.exceptions.Exit:
        # Ctrl-C: finished chunks are on disk, and the same command continues after them.
        verb = "rebuild" if rebuild else "build"
        sys.stderr.write(
            f"callboard: the completed part is stored; callboard kb {verb} {shlex.quote(target)} continues from there\n"
        )
        raise
    # Raised only now: a closed pipe must not end a build, which costs money.
    if unwritten:
        raise unwritten[0]
    if as_json:
        rows = [
            {"target": recipe.target, "directory": str(recipe.directory), **msgspec.to_builtins(report)}
            for recipe, report in zip(found, reports, strict=True)
        ]
        sys.stdout.write(json_object(bases=rows))
    # An empty base is a failure for scripts: nothing can be found in it.
    return 0 if all(report.chunks for report in reports) else 1


def _print_report(recipe: Recipe, report: BuildReport, *, quiet: bool) -> None:
    if not quiet:
        for each in report.unreadable[:_UNREADABLE]:
            sys.stderr.write(f"not read: {safe(each.source)}: {one_line(each.reason, 300)}\n")
        if len(report.unreadable) > _UNREADABLE:
            sys.stderr.write(f"not read: {len(report.unreadable) - _UNREADABLE} more\n")
    sys.stdout.write(f"{safe(recipe.target)}: {_report_text(report)}\n")
    sys.stdout.flush()


def _report_text(report: BuildReport) -> str:
    """Format a report:

    `3 added, 1 changed, 40 unchanged; 900 chunks, 12 embedded, in 1.20s; 1 source could not be read`.
    """
    if not report.chunks:
        return "empty: no readable source was found"
    counts = {how: getattr(report, how) for how in ("added", "changed", "removed", "unchanged")}
    sources = ", ".join(f"{count:,} {how}" for how, count in counts.items() if count)
    chunks = counted(report.chunks, "chunk")
    lost = f"; {counted(len(report.unreadable), 'source')} could not be read" if report.unreadable else ""
    if not (sources or report.embedded):  # an unreachable site: its previous content is retained
        return f"unchanged, {chunks}{lost}"
    if not (report.added or report.changed or report.removed or report.embedded):
        return f"up to date, {chunks} of {counted(report.unchanged, 'source')}{lost}"
    embedded = f"{report.embedded:,} embedded" if report.embedded else "none embedded again"
    return f"{sources}; {chunks}, {embedded}, in {duration(report.seconds)}{lost}"


def drop_bases(target: str, config_dir: str | None, *, yes: bool) -> int:
    """Remove the built data of the target's bases; return 1 if the user declines.

    Raises:
        UsageError: there is no terminal for the confirmation.
        KnowledgeBusy: a base is being built.
    """
    # `is_dir`, not `meta`: an interrupted first build has files to remove too.
    there = [seen for seen in map(base_info, recipes(target, config_dir)) if seen.recipe.directory.is_dir()]
    if not there:
        sys.stdout.write(f"{safe(target)} is not built\n")
        return 0
    if not yes and not _agreed(there):
        sys.stdout.write("nothing was removed\n")
        return 1

    async def drop(_me: Actor, root: Root) -> None:
        for seen in there:
            await root.knowledge.drop(seen.recipe)

    act(drop, config_dir=config_dir)
    for seen in there:
        sys.stdout.write(f"removed {safe(str(seen.recipe.directory))}\n")
    return 0


def _agreed(there: Sequence[BaseInfo]) -> bool:
    if not person_at_terminal(no_input=False):
        raise UsageError("removing it needs a confirmation, and no user is present: repeat the command with --yes")
    from ..render.dialog import Dialog

    rows = [f"  {seen.recipe.directory} ({state_of(seen)}, {bytes_in_words(seen.size)})" for seen in there]
    text = "\n".join(["Delete these files? Sources and recipes stay.", *rows])
    # Enter alone keeps the files.
    question = Question(id="", actor="", kind="confirm", text=text, default="no")
    try:
        return Dialog(question).run() == "yes"
    except EOFError:
        return False


_NAMES = 5
"""Maximum number of sources named on a line."""


def show_status(target: str, config_dir: str | None, *, pages: bool, as_json: bool) -> int:
    """Print the status of the target's bases; return the exit code of `KnowledgeError` if one is unusable, else 0.

    A base that is not built is not unusable.

    Args:
        pages: also compare web pages, and the output of loaders that do not read files.
    """
    found = [base_info(recipe) for recipe in recipes(target, config_dir)]
    built = [seen for seen in found if seen.meta is not None]

    async def compare(me: Actor, root: Root) -> dict[str, SourceChanges | str]:
        compared: dict[str, SourceChanges | str] = {}
        for seen in built:
            try:
                compared[seen.recipe.target] = await root.knowledge.changes(me, seen.recipe, pages=pages)
            except KnowledgeError as error:
                # One broken base must not hide the state of the others.
                compared[seen.recipe.target] = str(error)
        return compared

    compared = act(compare, config_dir=config_dir) if built else {}
    changes = [compared.get(seen.recipe.target) for seen in found]
    both = list(zip(found, changes, strict=True))
    if as_json:
        bases = [seen.to_wire() | _compared(each) for seen, each in both]
        sys.stdout.write(json_object(bases=bases))
    else:
        sys.stdout.write("\n".join(_status_text(seen, each) for seen, each in both))
    failed = any(seen.error is not None or isinstance(each, str) for seen, each in both)
    return KnowledgeError.exit_code if failed else 0


def _compared(changes: SourceChanges | str | None) -> dict[str, Any]:
    if changes is None:
        return {}
    if isinstance(changes, str):
        return {"error": changes}
    names = {"added": changes.added, "changed": changes.changed, "removed": changes.removed}
    return {"stale": bool(changes), "changes": {how: list(sources) for how, sources in names.items()}}


def _status_text(seen: BaseInfo, changes: SourceChanges | str | None) -> str:
    recipe, meta = seen.recipe, seen.meta
    build = f"callboard kb build {shlex.quote(recipe.target)}"
    facts = [["directory", f"{recipe.directory}, {bytes_in_words(seen.size)}" if seen.size else str(recipe.directory)]]
    if meta is not None:
        kept = meta.settings
        facts += [
            ["built", f"{age_of(seen)}, generation {meta.generation}"],
            ["model", f"{meta.model}, {meta.dimension} numbers a vector" if meta.dimension else meta.model],
            ["holds", f"{counted(meta.chunks, 'chunk')} of {counted(meta.sources, 'source')}"],
            ["chunks of", f"{kept.chunk_size:,} characters, overlap {seen.overlap}"],
            ["language", kept.language],
        ]
    facts.append(["made of", _made_of(recipe)])
    if seen.builder:
        facts.append(["building", f"{seen.builder} is building it"])
    elif seen.building:
        facts.append(["unfinished", f"a build was interrupted; {build} continues it"])
    if isinstance(changes, SourceChanges):
        current = "up to date, except for unreadable sources" if seen.unreadable else "up to date"
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
    return one_line(", ".join(recipe.documents), 200) + (f" (relative to {recipe.base})" if relative else "")


def _differences(changes: SourceChanges) -> str:
    """Format changes: `2 added (a.md, b.md), 1 changed (c.md)`."""
    named = {"added": changes.added, "changed": changes.changed, "removed": changes.removed}
    return ", ".join(f"{len(sources)} {how} ({_some_names(sources)})" for how, sources in named.items() if sources)


def _some_names(names: Sequence[str]) -> str:
    shown = ", ".join(one_line(name, 60) for name in names[:_NAMES])
    return shown if len(names) <= _NAMES else f"{shown}, ..."


_NONE = "none"


def search_bases(
    *,
    target: str,
    query: str,
    top_k: int | None,
    sources: tuple[str, ...],
    min_score: float,
    mode: Mode,
    rerank: str | None,
    as_json: bool,
    config_dir: str | None,
) -> int:
    """Search the target's bases and print the hits; return 1 if there are none.

    Raises:
        UsageError: the query is empty.
        KnowledgeMissing: a base is not built.
    """
    if not query.strip():
        raise UsageError("QUERY is empty: give a text to search for")
    found = [_reranked(recipe, rerank) for recipe in _built(target, config_dir)]

    async def look_up(me: Actor, root: Root) -> list[Retrieved]:
        with root.knowledge.charges.on(root.meter()):
            return [
                await root.knowledge.retrieve(
                    me,
                    recipe,
                    query,
                    top_k=top_k,
                    filters=sources,
                    min_score=min_score,
                    mode=mode,
                    rerank=rerank != _NONE,
                )
                for recipe in found
            ]

    progress = choose_display(sys.stderr, quiet=not redrawable(sys.stderr), verbose=False, by_hand=True)
    answers = act(look_up, config_dir=config_dir, progress=progress)
    if as_json:
        rows = [
            {"target": recipe.target, "what": recipe.what, **msgspec.to_builtins(answer)}
            for recipe, answer in zip(found, answers, strict=True)
        ]
        sys.stdout.write(json_object(bases=rows))
    else:
        several = len(found) > 1
        for recipe, answer in zip(found, answers, strict=True):
            title = f"{safe(recipe.target)} ({safe(recipe.what)})\n\n" if several else ""
            hits = (f"{_headline(hit)}\n{_indented(hit.text)}\n\n" for hit in answer.chunks)
            sys.stdout.write(title + "".join(hits))
    if any(answer.chunks for answer in answers):
        return 0
    if not as_json:
        sys.stderr.write("callboard: nothing was found\n")
    return 1


def _built(target: str, config_dir: str | None) -> list[Recipe]:
    found = recipes(target, config_dir)
    for recipe in found:
        seen = base_info(recipe)
        # A broken base passes: opening it raises the error that says what to do.
        if seen.meta is None and seen.error is None:
            raise KnowledgeMissing(
                f"{recipe.what} is {state_of(seen)}; run: callboard kb build {shlex.quote(recipe.target)}"
            )
    return found


def _reranked(recipe: Recipe, model: str | None) -> Recipe:
    return recipe if model in (None, _NONE) else msgspec.structs.replace(recipe, reranker_model=model)


def _headline(hit: Hit) -> str:
    first, last = hit.lines
    where = f"{hit.source}:{first}" if first == last else f"{hit.source}:{first}-{last}"
    under = f"  {' > '.join(hit.heading)}" if hit.heading else ""
    # A file's name may contain a newline, which `safe` keeps.
    return safe(f"{hit.score:.3f}  {where}{under}").replace("\n", " ")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in safe(text.strip("\n")).splitlines())


def export_bases(target: str, config_dir: str | None) -> int:
    """Print all chunks of the target's bases as JSON lines, and return 0.

    Raises:
        KnowledgeMissing: a base is not built.
        OSError: stdout can't be written.
    """
    found = _built(target, config_dir)
    encoder = msgspec.json.Encoder()

    def write(chunks: Sequence[Chunk]) -> None:
        sys.stdout.write("".join(f"{encoder.encode(_exported(chunk)).decode()}\n" for chunk in chunks))

    # A write error is returned: raised in the actor, it would become "crashed" (see `act`), and a closed pipe has to
    # end the program with 141.
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
