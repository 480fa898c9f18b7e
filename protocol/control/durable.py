"""Parameters and results of the methods for durable runs: their rows and steps, resuming, and forks."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from .bounds import MOST, Answer, Name, Object, Text
from .own import Number, PageLimit, Params
from .things import Row, RunInfo, Step


class ResumeRun(Params, frozen=True):
    """`_run/resume`: goes on with a run that is `interrupted`; with `with_changes` with its file as it is today."""

    run: Name
    with_changes: bool = False


class ReadRows(Params, frozen=True):
    """`_run/rows`: what is kept of a durable run to go on with, after the row of number `after`."""

    run: Name
    after: Number = 0
    limit: PageLimit = 100


class ReadSteps(Params, frozen=True):
    """`_run/steps`: what a durable run has done, as numbered steps, after the step of number `after`."""

    run: Name
    after: Number = 0
    limit: PageLimit = 100


class ForkRun(Params, frozen=True):
    """`_run/fork`: begins another run with the steps of a durable run up to a place; needs the scope `run:agents`, too.

    Attributes:
        at: the number of a step, a node and its visit (`plan#2`: before it begins), or the id of a question.
        prompt, model, state, answers, with_changes: what is different, as for `callboard fork`.
        title: what lists call it; that of the run, if it is silent.
        dry_run: only say what would be done again; nothing begins.
    """

    run: Name
    at: int | Name
    prompt: Text | None = None
    model: Name | None = None
    state: Object = msgspec.field(default_factory=dict)
    answers: Annotated[dict[Name, Answer], Meta(max_length=MOST)] = msgspec.field(default_factory=dict)
    with_changes: bool = False
    title: Name = ""
    dry_run: bool = False


class Rows(msgspec.Struct, kw_only=True):
    """Result of `_run/rows`; `next` is the `after` of the next page, None where there is none now."""

    rows: list[Row]
    next: int | None


class Steps(msgspec.Struct, kw_only=True):
    """Result of `_run/steps`; `next` is the `after` of the next page, None where there is none now."""

    steps: list[Step]
    next: int | None


class Forked(msgspec.Struct, kw_only=True):
    """Result of `_run/fork`.

    Attributes:
        run: the new run; None for a `dry_run`.
        at: how many steps it begins with.
        again: what the run has done to the world behind there, in words: the fork does it again.
    """

    run: RunInfo | None
    at: int
    again: list[str]
