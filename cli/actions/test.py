"""Test cases of agents for `callboard test`: execution, results on stdout, and reports as JUnit XML and JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...actors.io.directories import config_dir as configured
from ...actors.runs.rerun.cases import CaseResult, Mode, as_wire, find_cases, junit
from ...actors.runs.rerun.cases import run_cases as play_cases
from ...actors.runs.root import Root
from ...protocol.errors import UsageError
from .. import logging
from ..frame import play as framed
from ..render.progress import ProgressDisplay
from ..render.text import colours, counted, json_object, paint, safe


@dataclass(frozen=True, kw_only=True)
class TestFlags:
    """Flags of `callboard test`, as click parsed them."""

    __test__ = False  # pytest would otherwise collect it

    wanted: str
    mode: Mode
    jobs: int
    junit: str | None
    json: str | None
    as_json: bool
    quiet: bool
    config_dir: str | None


def run_cases(paths: Sequence[str], flags: TestFlags) -> int:
    """Run the cases, print and store their results; return 1 if one of them failed, else 0.

    Raises:
        InvalidFile: a file of cases has errors.
        UsageError: there are no cases, none matches, or a report can't be written.
    """
    logging.configure()
    files = find_cases(paths, Path(configured(flags.config_dir, os.environ)[0]))

    def show(result: CaseResult) -> None:
        if not flags.as_json and (result.failures or not flags.quiet):
            sys.stdout.write(_result_text(result))
            sys.stdout.flush()

    async def drive(root: Root) -> list[CaseResult]:
        return await play_cases(root, files, mode=flags.mode, wanted=flags.wanted, jobs=flags.jobs, on_result=show)

    results = framed(drive, ProgressDisplay(), config_dir=flags.config_dir, person=False)
    # A typing error in -k must not look like success in CI.
    if not results:
        raise UsageError(
            f"no test case has '{flags.wanted}' in its name or file (-k)" if flags.wanted else "there are no test cases"
        )
    if flags.junit is not None:
        _write(flags.junit, junit(results))
    if flags.json is not None:
        _write(flags.json, json_object(**as_wire(results)).encode())
    sys.stdout.write(json_object(**as_wire(results)) if flags.as_json else _sum(results))
    return 1 if any(result.failures for result in results) else 0


def _result_text(result: CaseResult) -> str:
    coloured = colours(sys.stdout)
    word = "FAIL" if result.failures else "ok"
    head = paint(word, "error" if result.failures else "added") if coloured else word
    lines = [f"{head:<4} {safe(result.file)}:{result.line} {safe(result.name)} ({result.seconds:.2f} s)"]
    lines += [f"       {line}" for failure in result.failures for line in safe(failure).splitlines()]
    return "".join(f"{line}\n" for line in lines)


def _sum(results: Sequence[CaseResult]) -> str:
    failed = sum(bool(result.failures) for result in results)
    passed = len(results) - failed
    return f"{counted(passed, 'case')} passed, {failed} failed\n" if failed else f"{counted(passed, 'case')} passed\n"


def _write(file: str, data: bytes) -> None:
    try:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_bytes(data)
    except OSError as error:
        raise UsageError(f"{file} can't be written: {error.strerror or error}") from error
