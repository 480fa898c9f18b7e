"""Implementation of `callboard attach` and `callboard logs`: follow the events of a run.

`attach` displays a run of a server as `callboard run` does, from beginning to end. The run does not depend on this
process: a signal, or a closed stdout, only ends the display. `logs` prints the narration or the events of a run, from
the state directory or a server. A `Relay` is an output format of both.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TextIO

import msgspec
import trio

from ....actors.io.lines import from_any_thread, line_writer
from ....actors.views.run_view import RunView
from ....protocol.control import method_structs
from ....protocol.control.errors import RUN_FAILED, error_of
from ....protocol.control.resources import RunInfo
from ....protocol.decoding import convert
from ....protocol.errors import CallboardError, NoServer, NotFound, RunFailed, ServerLost, exit_codes
from ....protocol.events import TERMINAL, Event, QuestionAnswered, QuestionAsked, decode
from ....protocol.jsonrpc import ErrorData
from ....protocol.outcome import Outcome
from ...frame import choose_display, person_at_terminal
from ...render.narration import Narrator
from ...render.progress import ProgressDisplay, mark_for
from ...render.result import for_format
from ...render.text import colours, paint, with_node
from ..client import CommandInterrupted, ControlClient, QuestionWatch, RunEvents, find_run, print_to_stderr, with_client
from ..servers import Where, find_server
from . import stored_runs
from .stored_runs import ending

if TYPE_CHECKING:
    from ...render.dialog import TerminalPrompts


def attach(
    *, run: str, no_input: bool, output: str, quiet: bool, verbose: bool, url: str | None, token: str | None
) -> int:
    """Follow the run to its end; return its exit code.

    Raises:
        CallboardError: the run can't be followed (any more).
        CommandInterrupted: a signal arrived; the run continues.
        BrokenPipeError: the reader of stdout has closed the pipe.
    """
    person = person_at_terminal(no_input=no_input)
    relay: Relay = LineRelay(sys.stdout) if output == "stream-json" else AtTheEnd(output, sys.stdout)
    shared = output == "stream-json" and sys.stdout.isatty()
    progress = choose_display(sys.stderr, quiet=quiet, verbose=verbose, prompting=person, shared=shared)
    attached = _Attached(run, relay, progress, person, quiet)
    try:
        outcome = with_client(Where(url=url, token=token), attached.follow)
    except CommandInterrupted:
        if attached.info is not None:
            _print_detached(attached.info.run, as_json=output == "json", quiet=quiet)
        raise
    except ServerLost as error:
        if attached.info is None:
            raise
        raise ServerLost(
            f"{error}; to see the stored data of the run: callboard runs show {attached.info.run}"
        ) from None
    relay.finish(outcome)
    if outcome.status == "failed" and outcome.error is not None:
        print_to_stderr(with_node(outcome.error.message, outcome.error.node))
    elif outcome.status == "cancelled":
        print_to_stderr(f"{outcome.run_id} was cancelled")
    return outcome.exit_code


class _Attached:
    """Display of one run."""

    def __init__(self, run: str, relay: Relay, progress: ProgressDisplay, person: bool, quiet: bool) -> None:
        self.info: RunInfo | None = None
        self._run = run
        self._quiet = quiet
        self._relay = relay
        self._progress = progress
        self._person = person
        self._desk: RemoteQuestions | None = None
        self._caught_up = False
        self._view = RunView()
        self._outcome: Outcome | None = None

    async def follow(self, client: ControlClient) -> Outcome:
        """Display the run to its end."""
        info = self.info = await find_run(client, self._run)
        client.tell = self._progress.note
        events = RunEvents(client, info.run)
        await events.begin()
        gone = trio.Event()
        self._relay.on_write_error(from_any_thread(gone.set))
        async with trio.open_nursery() as nursery:
            with self._progress, ExitStack() as stack:
                stack.callback(nursery.cancel_scope.cancel)
                nursery.start_soon(self._progress.animate)
                nursery.start_soon(_cancel_when, gone, nursery.cancel_scope)
                await self._show_all(events, client, info, nursery)
        if gone.is_set():
            self._relay.finish(None)  # raises the write error
        if self._outcome is None:
            info = (await client.ask("_run/get", method_structs.OneRun, run=info.run)).run
        return self._ended(info, events)

    async def _show_all(self, events: RunEvents, client: ControlClient, info: RunInfo, nursery: trio.Nursery) -> None:
        while True:
            if not self._caught_up and events.seq >= events.newest:
                self._caught_up = True
                if not info.over:
                    await self._ask_what_is_open(client, info.run, nursery)
            try:
                line = await anext(events)
            except StopAsyncIteration:
                return
            self._relay.put(line)
            event = decode(line)
            if event is not None:
                self._show(event)

    async def _ask_what_is_open(self, client: ControlClient, run: str, nursery: trio.Nursery) -> None:
        """Ask open questions after the earlier events, so that the user knows the context."""
        if not self._person:
            for question in sorted(self._view.questions):
                self._print_how_to_answer(question)
            return
        from ...render.dialog import TerminalPrompts

        desk = self._desk = RemoteQuestions(client, run, nursery, self._progress.note)
        await nursery.start(TerminalPrompts(desk, self._progress.aside).serve)
        nursery.start_soon(desk.listen)

    def _show(self, event: Event) -> None:
        data = event.data
        self._outcome = outcome_of(event) or self._outcome
        if isinstance(data, QuestionAnswered) and self._desk is not None and event.id in self._desk.mine:
            # The prompt has displayed it. Answers of other clients with the same name get a line.
            event = msgspec.structs.replace(event, data=msgspec.structs.replace(data, by="terminal"))
        self._progress.on_event(event)
        self._view.see(event)
        if isinstance(data, QuestionAsked) and self._caught_up and not self._person:
            self._print_how_to_answer(event.id)

    def _print_how_to_answer(self, question: str) -> None:
        self._progress.note(f"to answer it: callboard answer {question} TEXT")

    def _ended(self, info: RunInfo, events: RunEvents) -> Outcome:
        outcome = self._outcome
        if events.missing and not self._quiet:
            print_to_stderr(f"warning: {events.missing} events of {info.run} were not stored, and are missing here")
        if outcome is None and info.error is not None and info.status == "failed":  # the worker could not start the run
            raise error_of(ErrorData(RUN_FAILED, info.error.message, {"code": info.error.code}))
        if outcome is None and info.status == "cancelled":
            raise RunFailed(f"{info.run} was cancelled before it began")
        if outcome is None:
            raise RunFailed(f"{info.run} has no end: it was lost when its server was killed")
        if info.over and info.exit_code is not None:
            outcome.exit_code = info.exit_code
        return outcome


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def _print_detached(run: str, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps({"schema_version": 1, "run_id": run, "detached": True}) + "\n")
        sys.stdout.flush()
    if not quiet:
        print_to_stderr(f"detached; {run} continues (callboard attach {run}, callboard stop {run})")


Value = str | list[str]


class RemoteQuestions:
    """Question desk for `TerminalPrompts`, behind a connection.

    Args:
        note: prints a line about a refused answer.

    Attributes:
        mine: ids of questions answered here.
    """

    def __init__(self, client: ControlClient, run: str, nursery: trio.Nursery, note: Callable[[str], None]) -> None:
        self.mine: set[str] = set()
        self._client = client
        self._watch = QuestionWatch(client, run)
        self._nursery = nursery
        self._note = note
        self._front_end: TerminalPrompts | None = None

    @contextmanager
    def attach(self, front_end: TerminalPrompts) -> Iterator[None]:
        """Send questions to the prompt for the duration of the `with` block."""
        self._front_end = front_end
        try:
            for question in self._watch.open.values():
                front_end.asked(question)
            yield
        finally:
            self._front_end = None

    async def listen(self) -> None:
        """Receive questions until cancelled. A client without the permission gets a note instead."""
        try:
            async for change in self._watch:
                if self._front_end is None:
                    continue
                if change.what == "asked":
                    self._front_end.asked(change.question)
                else:
                    self._front_end.closed(change.question.id, change.by)
        except CallboardError as error:
            self._note(f"you can't answer questions here: {error}")

    def answer(self, question_id: str, value: Value, _by: str = "") -> bool:
        """Send the answer in the background. Returns True; a refusal is printed later."""
        self.mine.add(question_id)
        self._nursery.start_soon(self._send, question_id, value)
        return True

    async def _send(self, question_id: str, value: Value) -> None:
        why = "another client answered it, or it was withdrawn"
        try:
            if (
                await self._client.ask("_question/answer", method_structs.Answered, question=question_id, value=value)
            ).answered:
                return
        except CallboardError as error:
            why = str(error)
        self.mine.discard(question_id)
        self._note(f"the answer was not accepted: {why}")


def show_log(
    *, run: str, follow: bool, after: int, output: str, verbose: bool, url: str | None, token: str | None
) -> int:
    """Print past events, and with `follow` new ones; return the exit code.

    Raises:
        CallboardError: there is no such run.
        BrokenPipeError: the reader of stdout has closed the pipe.
    """
    relay = LineRelay(sys.stdout) if output == "stream-json" else RelayedStory(sys.stdout, verbose=verbose)
    where = Where(url=url, token=token)
    under_way = _is_under_way(run) if follow else None
    if url is not None or (under_way is None and follow) or (under_way and _has_server(where)):
        return _from_server(run, relay, where, after=after, follow=follow)
    try:
        return _from_disk(run, relay, after, follow=bool(under_way))
    except NotFound:
        if _has_server(where):  # which may have another state directory
            return _from_server(run, relay, where, after=after, follow=follow)
        raise


def _is_under_way(word: str) -> bool | None:
    """Return whether the run is active; None if its id matches no log or several, because a server may know it."""
    try:
        return not stored_runs.find_stored_run(word).over
    except CallboardError:
        return None


def _has_server(where: Where) -> bool:
    try:
        find_server(where, os.environ)
    except NoServer:
        return False
    return True


def _from_disk(word: str, relay: Relay, after: int, *, follow: bool) -> int:
    run = stored_runs.find_stored_run(word)
    gone: list[bool] = []
    relay.on_write_error(lambda: gone.append(True))
    for line in stored_runs.stored_event_lines(run.run, after=after, follow=follow):
        relay.put(line)
        if gone:
            break
    if isinstance(relay, RelayedStory):
        relay.lost(stored_runs.find_stored_run(run.run) if follow else run)
    relay.finish(None)
    return 0


def _from_server(word: str, relay: Relay, where: Where, *, after: int, follow: bool) -> int:
    async def read_along(client: ControlClient) -> None:
        run = await find_run(client, word)
        events = RunEvents(client, run.run, after=after)
        await events.begin()
        last = None if follow else events.newest
        gone = trio.CancelScope()
        relay.on_write_error(from_any_thread(gone.cancel))
        with gone:
            while last is None or events.seq < last:
                try:
                    relay.put(await anext(events))
                except StopAsyncIteration:
                    break
        if isinstance(relay, RelayedStory) and not gone.cancelled_caught:
            relay.lost(run)
        if events.missing:
            print_to_stderr(f"warning: {events.missing} events of {run.run} were not stored, and are missing here")

    with_client(where, read_along)
    relay.finish(None)
    return 0


_CANCELLED = 130


class Relay:
    """Output format that receives a run's events one by one."""

    def __init__(self, stream: TextIO) -> None:
        self._writer = line_writer(stream)

    def on_write_error(self, callback: Callable[[], None]) -> None:
        """Register a callback for a write error. It may be called in any thread.

        Errors are a closed pipe, a reader that has stopped reading for good, or a full disk.
        """
        self._writer.on_error = callback

    def put(self, line: bytes) -> None:
        """Process an event in wire form. Never blocks."""
        raise NotImplementedError

    def finish(self, outcome: Outcome | None) -> None:  # noqa: ARG002 - the events contain it
        """Write the remaining output; there may be no outcome.

        Raises:
            OSError: the output can't be written.
        """
        self._writer.finish()


class AtTheEnd(Relay):
    """Formats `-o text` and `-o json`: the result, as `run` writes it."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._result = for_format(name, stream)

    def on_write_error(self, callback: Callable[[], None]) -> None:
        """Do nothing: no output is written before the end."""

    def put(self, line: bytes) -> None:
        """Do nothing: no output is written before the end."""

    def finish(self, outcome: Outcome | None) -> None:
        if outcome is not None:
            self._result.finish(outcome)


class LineRelay(Relay):
    """Format `-o stream-json`: every event unchanged, including kinds that only the server knows."""

    def __init__(self, stream: TextIO) -> None:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")
        super().__init__(stream)

    def put(self, line: bytes) -> None:
        self._writer.put(line.decode("utf-8", "surrogateescape") + "\n")


class RelayedStory(Relay):
    """Narration as `run` prints it on a stream that can't be redrawn, and the end of the run.

    Texts are cut only on a terminal.
    """

    def __init__(self, stream: TextIO, *, verbose: bool) -> None:
        self._narrator = Narrator(
            verbose=verbose, mark=mark_for(stream), whole=not stream.isatty(), thoughts=stream.isatty()
        )
        self._colours = colours(stream)
        super().__init__(stream)

    def put(self, line: bytes) -> None:
        event = decode(line)
        if event is None:
            return
        for told in self._narrator.lines(event):
            self._put(told.text, told.style)
        outcome = outcome_of(event)
        if outcome is not None:
            self._end(ending(outcome))

    def lost(self, run: RunInfo) -> None:
        """Report that the log of a lost run has no end."""
        if run.status == "lost":
            self._end(ending(run))

    def _end(self, lines: list[str]) -> None:
        for line in lines:
            self._put(line, "error")

    def _put(self, text: str, style: str) -> None:
        self._writer.put((paint(text, style) if self._colours else text) + "\n")


def outcome_of(event: Event) -> Outcome | None:
    """Return the outcome in a run's last event, with its exit code; None for any other event."""
    if event.kind not in TERMINAL:
        return None
    outcome = convert(getattr(event.data, "outcome", None), Outcome, strict=False)
    if outcome.status == "cancelled":
        outcome.exit_code = _CANCELLED
    elif outcome.error is not None:
        outcome.exit_code = exit_codes().get(outcome.error.code, 1)
    return outcome
