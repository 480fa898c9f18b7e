"""What `callboard kb build`, `rebuild` and `drop` do: make bases, and take them away."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from ... import Root
from ...actors.work.knowledge.base.model import BuildReport
from ...actors.work.knowledge.recipe import Recipe
from ...protocol.errors import UsageError
from ...protocol.knowledge import Unreadable
from ...protocol.questions import Question
from ...supervisors import Actor
from ..acting import act
from ..frame import person_at_terminal
from ..render.lines import duration
from ..render.plain import choose
from ..render.text import counted, json_object, one_line, safe
from .seen import Seen, bytes_in_words, look_at
from .targets import recipes

_UNREADABLE = 20
"""At most so many unreadable files are named; `status` has more."""


def build_bases(target: str, config_dir: str | None, *, quiet: bool, as_json: bool, rebuild: bool = False) -> int:
    """Builds the bases that are meant, one after the other; returns 1 if one of them came out empty.

    Each is printed when it is done, JSON at the end.

    Raises:
        KnowledgeError: one can't be built; those before it are.
        click.exceptions.Exit: it was interrupted.
    """
    found = recipes(target, config_dir)
    progress = choose(sys.stderr, quiet=quiet, verbose=False, by_hand=True)
    reports: list[BuildReport] = []
    unwritten: list[OSError] = []

    async def build(me: Actor, root: Root) -> None:
        for recipe in found:
            report = await root.knowledge.build(me, recipe, rebuild=rebuild)
            reports.append(report)
            if as_json or unwritten:
                continue
            try:
                with progress.aside():
                    _tell(recipe, report, quiet=quiet)
            except OSError as error:
                unwritten.append(error)

    try:
        act(build, config_dir=config_dir, progress=progress)
    except click.exceptions.Exit:
        verb = "rebuild" if rebuild else "build"
        sys.stderr.write(
            f"callboard: what is done is kept; callboard kb {verb} {shlex.quote(target)} goes on from there\n"
        )
        raise
    if unwritten:
        raise unwritten[0]
    if as_json:
        rows = [_wire(recipe, report) for recipe, report in zip(found, reports, strict=True)]
        sys.stdout.write(json_object(bases=rows))
    return 0 if all(report.chunks for report in reports) else 1


def _tell(recipe: Recipe, report: BuildReport, *, quiet: bool) -> None:
    if not quiet:
        _tell_unreadable(report.unreadable)
    sys.stdout.write(f"{safe(recipe.target)}: {_told(report)}\n")
    sys.stdout.flush()


def _tell_unreadable(unreadable: Sequence[Unreadable]) -> None:
    for each in unreadable[:_UNREADABLE]:
        sys.stderr.write(f"not read: {safe(each.source)}: {one_line(each.reason, 300)}\n")
    if len(unreadable) > _UNREADABLE:
        sys.stderr.write(f"not read: {len(unreadable) - _UNREADABLE} more\n")


def _told(report: BuildReport) -> str:
    """`3 added, 1 changed, 40 unchanged; 900 chunks, 12 embedded, in 1.20s; 1 source could not be read`."""
    if not report.chunks:
        return "empty: nothing was found that could be read"
    counts = {how: getattr(report, how) for how in ("added", "changed", "removed", "unchanged")}
    sources = ", ".join(f"{count:,} {how}" for how, count in counts.items() if count)
    chunks = counted(report.chunks, "chunk")
    lost = f"; {counted(len(report.unreadable), 'source')} could not be read" if report.unreadable else ""
    if not (sources or report.embedded):  # a site that can't be reached: what it said is kept
        return f"as it was, {chunks}{lost}"
    if not (report.added or report.changed or report.removed or report.embedded):
        return f"up to date, {chunks} of {counted(report.unchanged, 'source')}{lost}"
    embedded = f"{report.embedded:,} embedded" if report.embedded else "none embedded anew"
    return f"{sources}; {chunks}, {embedded}, in {duration(report.seconds)}{lost}"


def _wire(recipe: Recipe, report: BuildReport) -> dict[str, Any]:
    return {"target": recipe.target, "directory": str(recipe.directory), **msgspec.to_builtins(report)}


def drop_bases(target: str, config_dir: str | None, *, yes: bool) -> int:
    """Removes what is built of the bases that are meant; returns 1 if the person would rather not.

    Raises:
        UsageError: no terminal to ask at.
        KnowledgeBusy: one of them is being built.
    """
    there = [seen for seen in map(look_at, recipes(target, config_dir)) if seen.recipe.directory.is_dir()]
    if not there:
        sys.stdout.write(f"nothing is built of {safe(target)}\n")
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


def _agreed(there: Sequence[Seen]) -> bool:
    if not person_at_terminal(no_input=False):
        raise UsageError("nobody can be asked whether to remove it: --yes says so beforehand")
    from ..render.dialog import Dialog

    rows = [f"  {seen.recipe.directory} ({seen.state}, {bytes_in_words(seen.size)})" for seen in there]
    text = "\n".join(["Remove what is built here? Sources and recipes stay.", *rows])
    question = Question(id="", actor="", kind="confirm", text=text, default="no")
    try:
        return Dialog(question).run() == "yes"
    except EOFError:
        return False
