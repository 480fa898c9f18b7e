"""Execution of a macro for `callboard macro`. Its steps are lines of a chat (`actors.front.chat`) in this process.

A macro begins without a role, session, agent or knowledge base, whatever preludes config.yaml names. Each of its
prompts is independent unless a session is open. Questions of the chat get their default answers; its runs ask as those
of `callboard run` do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from ...actors.front.chat.chat import Chat
from ...actors.front.chat.execution import execute_line
from ...actors.front.control.methods import open_hub
from ...actors.io.directories import config_dir as configured
from ...actors.io.saved_replies import store_reply
from ...actors.work.macros import find, lines_of
from ...protocol.control import chat as frames
from ...protocol.control.caller import LOCAL
from ...protocol.errors import UsageError
from ...protocol.events import decode
from ...protocol.macro import Macro
from ...protocol.requests import Limits
from .. import flag_values
from ..failure import complain
from ..frame import choose_display, person_at_terminal, play
from ..render.answer import AnswerDisplay, AnswerResult, style_of
from ..render.result import ResultFormat, for_format
from ..render.text import counted, safe, with_node
from ..settings_warnings import already_printed
from ..stdin import prompt_text

if TYPE_CHECKING:
    from ...actors.front.control.hub import Hub
    from ...actors.front.control.logs.files import LoggedEvent
    from ...actors.runs.root import Root
    from ...protocol.outcome import Outcome
    from ...protocol.requests import RunRequest
    from ..render.progress import ProgressDisplay


def run_macro(name: str, arguments: Sequence[str], flags: dict[str, Any]) -> int:
    """Run a macro.

    Return the exit code of the first prompt that failed, which ends the macro; else 0. `flags` are the command's.

    Raises:
        CallboardError: there is no such macro, its file has errors, a variable has no value, or a step is not allowed
            here.
    """
    macro = find(name, configured(flags["config_dir"], os.environ)[0])
    piped = prompt_text("", quiet=flags["quiet"])
    given = [*arguments, *([piped] if piped else [])]
    lines = lines_of(macro, given)
    quiet, verbose = flags["quiet"], flags["verbose"]
    if not quiet:
        _print_warnings(macro, given)
    request = flag_values.request(flags)
    person = person_at_terminal(no_input=flags["no_input"])
    progress = choose_display(sys.stderr, quiet=quiet, verbose=verbose, prompting=person)
    result: ResultFormat = for_format("text", sys.stdout)
    if sys.stdout.isatty() and not flags["dry_run"]:
        progress = answer = AnswerDisplay(progress, sys.stdout, streams=True)
        result = AnswerResult(sys.stdout, answer)
    body = partial(_played, lines, request, progress, result, quiet=quiet)
    return play(body, progress, config_dir=flags["config_dir"], person=person, dry_run=flags["dry_run"])


def _print_warnings(macro: Macro, given: Sequence[str]) -> None:
    for problem in macro.problems:
        sys.stderr.write(f"{safe(str(problem))}\n")
    if left := macro.unused_arguments(given):
        sys.stderr.write(
            f"{counted(len(left), 'argument')} ignored: the macro has no variable for it. Usage: {safe(macro.usage)}\n"
        )


async def _played(
    lines: Sequence[str],
    request: RunRequest,
    progress: ProgressDisplay,
    result: ResultFormat,
    root: Root,
    *,
    quiet: bool,
) -> int:
    async with open_hub(root) as hub, trio.open_nursery() as nursery:
        chat = Chat(hub, LOCAL.subject)
        chat.model, chat.remembers = request.model, False
        limits = {key: getattr(request.limits, key) for key in Limits.__struct_fields__}
        allowed = {"yes": request.yes, "allow": list(request.allow), "allow_unpriced": request.allow_unpriced}
        chat.terms = {**limits, **allowed}
        terminal = _Terminal(hub, nursery, progress, result)
        code = 0
        for line in lines:
            if not quiet:
                with progress.aside():
                    sys.stderr.write(f">> {safe(line)}\n")
            terminal.ends.clear()
            done = await execute_line(chat, line, terminal, in_macro=True)
            code = await terminal.written() or code
            if code or done.leave:
                break
        return code
    raise AssertionError("unreachable: nothing swallows errors")


class _Terminal:
    """Chat client that prints the runs as `callboard ask` does, and answers questions with their defaults.

    Attributes:
        caller: local user.
        ends: runs of the current line, each with an event that is set after its last event was printed.
    """

    caller = LOCAL

    def __init__(self, hub: Hub, nursery: trio.Nursery, progress: ProgressDisplay, result: ResultFormat) -> None:
        self.ends: dict[str, trio.Event] = {}
        self._hub = hub
        self._nursery = nursery
        self._progress = progress
        self._result = result

    async def began(self, told: frames.Began) -> None:
        """Print the run's events from now on, after warnings about config.yaml."""
        already_printed()
        if isinstance(self._progress, AnswerDisplay):
            root = self._hub.root
            self._progress.begin(style_of(root.settings.other, Path(root.config_dir), sys.stdout, os.environ))
        self.ends[told.run] = trio.Event()
        self._nursery.start_soon(self._printed, told.run)

    async def _printed(self, run: str) -> None:
        async def take(logged: LoggedEvent) -> None:
            if (event := decode(logged.data)) is not None:
                self._progress.on_event(event)
                self._result.on_event(event)

        await self._hub.follow(LOCAL, run, take)
        self.ends[run].set()

    async def written(self) -> int:
        """Write the results of the line's runs; return the exit code of the first that failed, or 0."""
        for run, end in self.ends.items():
            # `wait` below may return before `_printed` has shown the last events; the result belongs below them.
            await end.wait()
            outcome = await self._hub.wait(LOCAL, run)
            await self._write(outcome)
            if outcome.exit_code:
                return outcome.exit_code
        return 0

    async def _write(self, outcome: Outcome) -> None:
        if outcome.status == "done" and outcome.output:
            with suppress(OSError):  # for `-f %%`; a full disk is no reason to fail
                await trio.to_thread.run_sync(store_reply, outcome.output, os.environ)
        with self._progress.aside():
            self._result.finish(outcome)
            if outcome.error is not None:
                node = outcome.error.node
                complain(with_node(outcome.error.message, node))

    async def show(self, told: frames.Said) -> None:
        """Print the output of a chat command to stdout, and notes about it to stderr."""
        stream = sys.stderr if told.kind in ("note", "warning", "error", "echo") else sys.stdout
        with self._progress.aside():
            stream.write(f"{safe(told.text)}\n")
            stream.flush()

    async def changed(self, told: frames.Changed) -> None:
        """Ignore the state of the chat."""

    async def ask(self, asked: frames.AskPerson) -> str | list[str] | None:
        """Return the default answer."""
        return asked.default

    async def edit(self, asked: frames.EditText) -> str | None:
        """Refuse: a macro has no editor."""
        raise UsageError(f"{asked.name} needs an editor, which a macro can't open")

    async def copy(self, asked: frames.CopyText) -> None:
        """Copy a text to the clipboard of the machine that runs the command."""
        from ..desktop import copy_text

        await trio.to_thread.run_sync(copy_text, asked.text)
