"""Parameters and results of the methods for durable runs: their rows and steps, resuming, and forks."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from .bounds import MOST, Answer, Name, Object, Text
from .own import Number, PageLimit, Params
from .things import Row, RunInfo, Step


class ResumeRun(Params, frozen=True):
    """Parameters of `_run/resume`: resume an `interrupted` run; `with_changes` uses the present version of its file."""

    run: Name
    with_changes: bool = False


class ReadRows(Params, frozen=True):
    """Parameters of `_run/rows`: read the journal rows of a durable run after number `after`."""

    run: Name
    after: Number = 0
    limit: PageLimit = 100


class ReadSteps(Params, frozen=True):
    """Parameters of `_run/steps`: read the numbered steps of a durable run after number `after`."""

    run: Name
    after: Number = 0
    limit: PageLimit = 100


class ForkRun(Params, frozen=True):
    """Parameters of `_run/fork`: start a run from a step of a durable one; also needs the scope `run:agents`.

    Attributes:
        at: the number of a step, a node and its visit (`plan#2`: before it begins), or the id of a question.
        prompt, model, state, answers, with_changes: what is different, as for `callboard fork`.
        title: title in lists; by default that of the forked run.
        dry_run: only list the changes that would be repeated; start nothing.
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
        at: number of steps that it begins with.
        again: descriptions of the changes after that step; the fork repeats them.
    """

    run: RunInfo | None
    at: int
    again: list[str]
