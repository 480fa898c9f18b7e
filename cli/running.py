"""What `callboard run` does: reads what was given, opens the root, shows progress, writes the result.

The three front ends of a run (progress on stderr, prompts on the terminal, the result on stdout) hang on the
same stream of events; none of them can hold the run up.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack
from dataclasses import dataclass

import trio

from .. import Limits, Root
from .. import run as run_target
from ..protocol.errors import CallboardError, NobodyToAsk
from ..protocol.events import Event, RunStarted
from ..protocol.outcome import Outcome
from . import given, logging
from .failure import told
from .render.progress import Progress, choose
from .render.result import Result, for_format
from .render.style import redrawable
from .render.text import safe
from .stdin import prompt_text

_SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
_SHOW_CURSOR = b"\x1b[?25h"


@dataclass(frozen=True, kw_only=True)
class Request:
    """The flags of `callboard run`, as click read them."""

    target: str
    prompt: str | None
    model: str | None
    variables: tuple[str, ...]
    state: tuple[str, ...]
    answers: tuple[str, ...]
    answers_file: str | None
    no_input: bool
    output: str
    compat: str | None
    timeout: float | None
    max_turns: int | None
    max_tokens: int | None
    max_cost: float | None
    strict: bool
    quiet: bool
    verbose: bool
    config_dir: str | None


def run(request: Request) -> int:
    """Runs the request; returns the exit code.

    Raises:
        CallboardError: the run could not start (usage, invalid file, configuration).
        BrokenPipeError: the reader of stdout has gone.
    """
    logging.configure()
    result = for_format(request.output, sys.stdout)
    progress = choose(sys.stderr, quiet=request.quiet, verbose=request.verbose, prompting=_person_at_terminal(request))
    arguments = _Arguments(
        prompt=prompt_text(request.prompt, quiet=request.quiet),
        variables=given.variables(request.variables),
        state=given.state(request.state),
        answers=given.answers(request.answers, request.answers_file),
    )
    outcome = trio.run(_drive, request, arguments, progress, result)
    if isinstance(outcome, CallboardError):
        raise outcome
    result.finish(outcome)
    _tell_failure(outcome)
    return outcome.exit_code


@dataclass(frozen=True, kw_only=True)
class _Arguments:
    prompt: str
    variables: dict[str, str]
    state: dict[str, object]
    answers: given.Answers | None


async def _drive(
    request: Request, arguments: _Arguments, progress: Progress, result: Result
) -> Outcome | CallboardError:
    limits = Limits(
        timeout=request.timeout,
        max_turns=request.max_turns,
        max_tokens=request.max_tokens,
        max_cost=request.max_cost,
    )
    async with (
        Root(config_dir=request.config_dir, signals=True, on_signal=_tell_signal) as root,
        trio.open_nursery() as nursery,
    ):
        with progress, ExitStack() as stack:
            stack.callback(nursery.cancel_scope.cancel)
            nursery.start_soon(progress.animate)
            if _person_at_terminal(request):
                from .render.prompt import TerminalPrompts

                await nursery.start(TerminalPrompts(root.questions, progress.aside).serve)

            def on_event(event: Event) -> None:
                progress.on_event(event)
                if isinstance(event.data, RunStarted) and event.data.why:
                    progress.note(f"model: {event.data.model} ({event.data.why})")
                result.on_event(event)

            token = trio.lowlevel.current_trio_token()
            result.when_gone(lambda: token.run_sync_soon(root.begin_stop))
            try:
                return await run_target(
                    request.target,
                    arguments.prompt,
                    model=request.model,
                    variables=arguments.variables,
                    state=arguments.state,
                    answers=arguments.answers,
                    on_event=on_event,
                    compat=request.compat,
                    limits=limits,
                    strict=request.strict,
                    root=root,
                )
            except CallboardError as error:
                return error
    raise AssertionError("unreachable: the root swallows no errors")


def _person_at_terminal(request: Request) -> bool:
    return not request.no_input and all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _tell_signal(number: int, count: int) -> None:
    if count == 1:
        name = _SIGNALS.get(signal.Signals(number), f"signal {number}")
        if redrawable(sys.stderr):
            os.write(2, _SHOW_CURSOR)  # past rich, which drops it; after a third signal nobody could
        sys.stderr.write(f"callboard: {name}, stopping\n")
        sys.stderr.flush()


def _tell_failure(outcome: Outcome) -> None:
    if outcome.status != "failed" or outcome.error is None:
        return
    sys.stderr.write(f"callboard: {safe(told(outcome.error.message, outcome.error.node))}\n")
    if outcome.error.code == NobodyToAsk.code:
        sys.stderr.write("    answer it at a terminal (without --no-input), or beforehand with --answer or --answers\n")
