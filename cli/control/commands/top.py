"""Implementation of `callboard top`: live view of a server's actors, with keys to control them.

One task draws, at most five times a second, and only after a change; elapsed times are updated once a second. Tree
changes arrive at the same rate, whatever the load of the server.

`Screen` writes only rows that differ from the screen. The screen is the terminal's alternate one: its previous content
returns at the end, and whenever a prompt needs the terminal. `KeyReader` names the keys: `up`, `enter`, `esc`, or the
character itself.
"""

from __future__ import annotations

import codecs
import os
import re
import signal
import sys
import termios
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import trio
from rich.cells import cell_len, set_cell_size

from ....protocol.control import method_structs
from ....protocol.control.resources import ActorDetail, ActorInfo
from ....protocol.errors import CallboardError
from ....protocol.kernel.questions import Question
from ...render.keyboard import READING, drop_pending
from ...render.text import colours, counted, json_object, one_line, safe, table
from ..client import ControlClient, QuestionWatch, TreeWatch, find_run, with_client
from ..figures import amount, money
from ..servers import Where
from .actor_table import ActorTable, ScreenRow, about, below, full, total

_GAP = 0.2
"""Minimum seconds between two pictures."""

_TICK = 1.0
_HINT = "↑↓  enter look  c cancel  p pause  a answer  / filter  s sort  o own  q quit"
_HINT_CLOSER = "↑↓ scroll  c cancel  p pause  a answer  q back"


def watch(where: Where, run: str | None) -> int:
    """Show the actors until the user quits; return the exit code.

    Raises:
        CallboardError: there is no such server or run, or the server is gone.
        CommandInterrupted: a signal arrived.
    """
    screen = Screen(sys.stdin.fileno(), sys.stdout.fileno(), coloured=colours(sys.stdout))

    async def show(client: ControlClient) -> int:
        of = None if run is None else (await find_run(client, run)).run
        await Top(client, of, screen).play()
        return 0

    return with_client(where, show)


def snapshot(where: Where, run: str | None, *, as_json: bool) -> str:
    """Return the current actors as text, for use without a terminal."""

    async def ask(client: ControlClient) -> tuple[str, method_structs.Actors]:
        of = None if run is None else (await find_run(client, run)).run
        return client.server.url, await client.ask("_actor/tree", method_structs.Actors, run=of)

    url, tree = with_client(where, ask)
    if as_json:
        shown = [msgspec.to_builtins(actor) for actor in tree.actors]
        return json_object(server=url, memory=tree.memory, actors=shown)
    return table(full(tree.actors)) if tree.actors else "there are no actors\n"


class Top:
    """Interactive view.

    Args:
        run: run of the actors; None for all.
    """

    def __init__(self, client: ControlClient, run: str | None, screen: Screen) -> None:
        self._client = client
        self._run = run
        self._screen = screen
        self._keys = KeyReader(sys.stdin.fileno())
        self._tree = TreeWatch(client, run, interval=_GAP)
        self._questions = QuestionWatch(client, run)
        self._table = ActorTable()
        self._dirty = trio.Event()
        self._aside = False
        self._message = ""
        self._prompt = ""
        self._closer: tuple[ActorDetail, int] | None = None
        self._asked: Question | None = None
        self._withdraw: Callable[[], None] = lambda: None

    async def play(self) -> None:
        """Run until the user quits."""
        self._client.tell = self._say
        async with trio.open_nursery() as nursery:
            self._screen.open()
            try:
                nursery.start_soon(self._hear_tree)
                nursery.start_soon(self._hear_questions)
                nursery.start_soon(self._hear_signals)
                nursery.start_soon(self._draw_on)
                nursery.start_soon(self._open_details)
                await self._obey_keys()
                nursery.cancel_scope.cancel()
            finally:
                self._aside = True
                self._screen.close()

    # --- subscriptions and signals --------------------------------------------------------------------------

    async def _hear_tree(self) -> None:
        while True:
            await self._tree.change()
            self._table.take(self._tree.actors)
            self._dirty.set()

    async def _hear_questions(self) -> None:
        try:
            async for change in self._questions:
                self._table.asking = {question.actor for question in self._questions.open.values()}
                if change.what == "closed" and self._asked is not None and self._asked.id == change.question.id:
                    self._withdraw()
                self._dirty.set()
        except CallboardError as error:
            self._say(f"questions are not available: {error}")

    async def _hear_signals(self) -> None:
        """Handle resizes, and Ctrl-Z, which must restore the screen before the process stops."""
        with trio.open_signal_receiver(signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT) as signals:
            async for number in signals:
                if number == signal.SIGTSTP and not self._aside:
                    self._screen.close()
                    os.kill(os.getpid(), signal.SIGSTOP)
                elif number == signal.SIGCONT and not self._aside:
                    self._screen.close()
                    self._screen.open()
                self._screen.forget()
                self._dirty.set()

    def _say(self, text: str) -> None:
        self._message = text
        self._dirty.set()

    # --- drawing --------------------------------------------------------------------------------------------

    async def _draw_on(self) -> None:
        while True:
            with trio.move_on_after(_TICK):
                await self._dirty.wait()
            self._dirty = trio.Event()
            self._draw()
            await trio.sleep(_GAP)

    def _draw(self) -> None:
        if self._aside:
            return
        width, height = self._screen.size
        if self._closer is not None:
            rows = self._closer_rows(height)
        else:
            body = max(height - 3, 1)
            rows = [ScreenRow(self._summary(), "title"), ScreenRow(self._table.head(width), "dim")]
            rows += self._table.body(width, body) or self._nothing()
            rows += [ScreenRow("")] * (2 + body - len(rows))
        rows.append(self._foot())
        self._screen.show(rows)

    def _nothing(self) -> list[ScreenRow]:
        """Return the rows of an empty table, with the reason and a hint."""
        if self._table.filter:
            return [ScreenRow("  no actor matches the filter; / changes it", "dim")]
        if self._run is not None:
            return [ScreenRow("  this run has no actors", "dim")]
        begins = f"  to start one: callboard run AGENT PROMPT --on {safe(self._client.server.url)}"
        return [
            ScreenRow(text, "dim") for text in ("  no run is under way", begins, "  o shows the server's own actors")
        ]

    def _summary(self) -> str:
        actors = self._tree.actors.values()
        used, cost, priced = total(actors)
        runs = sum(actor.kind == "run" for actor in actors)
        many = counted(sum(bool(actor.run) or self._table.plumbing for actor in actors), "actor")
        if self._table.filter:
            many = f"{len(self._table.rows):,} of {many} with '{one_line(self._table.filter, 30)}'"
        parts = [many, f"by {self._table.sort}", counted(runs, "run")]
        if self._questions.open:
            parts.append(counted(len(self._questions.open), "open question"))
        parts += [f"{amount(used)} tokens"] if used else []
        parts += [f"{self._tree.memory / 1e6:.0f} MB of memory"] if self._tree.memory else []
        parts += [spent] if (spent := money(cost, priced)) else []
        return safe(f"{', '.join(parts)}  {self._client.server.url}").replace("\n", " ")

    def _foot(self) -> ScreenRow:
        if self._prompt:
            return ScreenRow(safe(self._prompt).replace("\n", " "), "title")
        if self._message:
            return ScreenRow(safe(self._message).replace("\n", " "), "warning")
        return ScreenRow(_HINT if self._closer is None else _HINT_CLOSER, "dim")

    def _closer_rows(self, height: int) -> list[ScreenRow]:
        assert self._closer is not None
        actor, first = self._closer
        rows = about(actor)
        room = max(height - 1, 1)
        first = max(0, min(first, len(rows) - room))
        self._closer = (actor, first)
        rows = rows[first : first + room]
        return rows + [ScreenRow("")] * (room - len(rows))

    async def _open_details(self) -> None:
        while True:
            await trio.sleep(_TICK)
            if self._closer is not None:
                await self._inspect(self._closer[0].path)

    async def _inspect(self, path: str) -> None:
        async def ask() -> None:
            detail = (await self._client.ask("_actor/inspect", method_structs.OneActor, path=path)).actor
            if self._closer is not None:
                self._closer = (detail, self._closer[1])

        await self._try(ask)
        self._dirty.set()

    # --- keys -----------------------------------------------------------------------------------------------

    async def _obey_keys(self) -> None:
        while True:
            key = await self._keys.get()
            self._message = ""
            self._dirty.set()
            if key == "eof" or (key == "q" and self._closer is None):
                return
            if self._closer is not None:
                await self._obey_closer(key)
            else:
                await self._obey(key)

    async def _obey_closer(self, key: str) -> None:
        assert self._closer is not None
        if key in ("q", "esc", "enter"):
            self._closer = None
        elif key in ("a", "c", "p"):
            await self._obey(key)
        elif (by := self._steps(key)) is not None:
            self._closer = (self._closer[0], self._closer[1] + by)

    async def _obey(self, key: str) -> None:
        if (by := self._steps(key)) is not None:
            self._table.move(by)
        elif key in ("s", "S"):
            self._table.next_sort(1 if key == "s" else -1)
        elif key == "/":
            await self._read_filter()
        elif key == "o":
            self._table.turn_plumbing()
        elif key == "esc":
            self._table.narrow("")
        elif key == "a":
            await self._answer()
        elif (actor := self._selected) is None:
            return
        elif key == "enter":
            self._closer = (ActorDetail(path=actor.path, parent=actor.parent, name=actor.name), 0)
            await self._inspect(actor.path)
        elif key == "p":
            await self._try(lambda: self._pause(actor))
        elif key == "c":
            await self._cancel(actor)

    @property
    def _selected(self) -> ActorInfo | None:
        if self._closer is None:
            return self._table.chosen
        shown = self._closer[0]
        return self._tree.actors.get(shown.path, shown)

    def _steps(self, key: str) -> int | None:
        page = max(self._screen.size[1] - 4, 1)
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -page, "pgdn": page, "home": -(10**9), "end": 10**9}
        return steps.get(key)

    async def _read_filter(self) -> None:
        """Read a filter: typed text applies at once, Enter confirms, Esc discards it."""
        text = self._table.filter
        while True:
            self._prompt = f"filter: {text}_  (enter keeps it, esc shows all)"
            self._table.narrow(text)
            self._dirty.set()
            key = await self._keys.get()
            if key in ("enter", "esc", "eof"):
                break
            if key == "backspace":
                text = text[:-1]
            elif len(key) == 1:
                text += key
        self._prompt = ""
        self._table.narrow("" if key == "esc" else text)
        self._dirty.set()

    async def _try(self, act: Callable[[], Awaitable[None]]) -> None:
        try:
            await act()
        except CallboardError as error:
            self._say(str(error))

    async def _pause(self, actor: ActorInfo) -> None:
        await self._client.ask("_actor/resume" if actor.paused else "_actor/pause", dict, path=actor.path)
        if actor.path in self._tree.actors:  # a second `p` right away must see the new state
            self._tree.actors[actor.path] = msgspec.structs.replace(actor, paused=not actor.paused)
            self._table.take(self._tree.actors)
        self._say(
            f"{actor.path} goes on" if actor.paused else f"{actor.path} starts no new work until you press p again"
        )

    async def _cancel(self, actor: ActorInfo) -> None:
        many = below(actor.path, self._tree.actors)
        also = f" and the {counted(many, 'actor')} below it" if many else ""
        for words in ("", " y: yes, any other key: no"):  # `y` counts only after its meaning is on the screen
            self._prompt = f"cancel {actor.path}{also}?{words}"
            self._draw()
            if not words:
                await self._keys.wait_for_reading()
        key = await self._keys.get()
        self._prompt = ""
        if key != "y":
            self._say("nothing was cancelled")
            return

        async def cancel() -> None:
            done = await self._client.ask("_actor/cancel", method_structs.Cancelled, path=actor.path)
            self._say(f"{actor.path} is asked to end" if done.cancelled else f"{actor.path} had ended")

        await self._try(cancel)

    async def _answer(self) -> None:
        """Ask a question in a dialog: of the selected actor, of those below it, or the oldest."""
        question = self._question()
        if question is None:
            self._say("no question is open")
            return
        from prompt_toolkit.input import create_input

        from ...render.dialog import Dialog, WithdrawnError, answer_of, terminal_behind

        self._asked, self._aside = question, True
        value = None
        try:
            with self._screen.aside(), suppress(KeyboardInterrupt, EOFError, WithdrawnError):
                dialog = Dialog(question, terminal=(create_input(sys.stdin), terminal_behind(sys.stdout), sys.stdout))
                self._withdraw = dialog.close
                value = await answer_of(dialog)
        finally:
            self._asked, self._aside = None, False
            self._keys.forget()
            self._dirty.set()
        if value is None:
            self._say(f"question {question.id} was not answered")
            return

        async def send() -> None:
            done = await self._client.ask(
                "_question/answer", method_structs.Answered, question=question.id, value=value
            )
            self._say(
                f"{question.id} answered" if done.answered else f"another client has answered {question.id} before"
            )

        await self._try(send)

    def _question(self) -> Question | None:
        waiting = list(self._questions.open.values())
        path = "" if self._selected is None else self._selected.path
        near = [each for each in waiting if each.actor == path] or [
            each for each in waiting if each.actor.startswith(f"{path}/") or path.startswith(f"{each.actor}/")
        ]
        return next(iter(near or waiting), None)


_OPEN = "\x1b[?1049h\x1b[?25l\x1b[?7l"
_CLOSE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
_STYLES = {"": "", "here": "7", "title": "1", "dim": "2", "question": "1;33", "warning": "33"}
_UNCOLOURED = {"question": "1", "warning": "1"}


class Screen:
    """Full-screen terminal output.

    Args:
        source: file descriptor for key input.
        sink: file descriptor for output.
        coloured: True allows colours. Bold and reverse are always used.
    """

    def __init__(self, source: int, sink: int, *, coloured: bool) -> None:
        self._source = source
        self._sink = sink
        self._coloured = coloured
        self._shown: list[str] = []
        self._modes: Any = None

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        try:
            found = os.get_terminal_size(self._sink)
        except OSError:
            return 80, 24
        return found.columns or 80, found.lines or 24

    def open(self) -> None:
        """Switch to the alternate screen and to unbuffered keys; Ctrl-C remains a signal."""
        self._modes = termios.tcgetattr(self._source)
        modes = termios.tcgetattr(self._source)
        modes[0] &= ~(termios.IXON | termios.ICRNL)  # Ctrl-S must not stop output in the middle of a picture
        modes[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(self._source, termios.TCSADRAIN, modes)
        self._shown = []
        self._write(_OPEN)

    def close(self) -> None:
        """Restore the terminal. Idempotent."""
        if self._modes is None:
            return
        modes, self._modes = self._modes, None
        with suppress(OSError, termios.error):  # the terminal is closed
            self._write(_CLOSE)
            termios.tcsetattr(self._source, termios.TCSADRAIN, modes)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Restore the terminal for a prompt for the duration of the `with` block."""
        self.close()
        try:
            yield
        finally:
            self.open()

    def forget(self) -> None:
        """Redraw everything next time, whatever is on the screen."""
        self._shown = []

    def show(self, rows: Sequence[ScreenRow]) -> None:
        """Draw the rows from the top of the screen."""
        width, height = self.size
        lines = [self._painted(row, width) for row in rows[:height]]
        lines += [""] * (height - len(lines))
        changed = [
            f"\x1b[{place + 1};1H\x1b[2K{line}"
            for place, line in enumerate(lines)
            if place >= len(self._shown) or self._shown[place] != line
        ]
        self._shown = lines
        if changed:
            self._write("".join(changed))

    def _painted(self, row: ScreenRow, width: int) -> str:
        text = row.text if cell_len(row.text) <= width else set_cell_size(row.text, width)
        code = _STYLES[row.style] if self._coloured else _UNCOLOURED.get(row.style, _STYLES[row.style])
        return f"\x1b[{code}m{text}\x1b[0m" if code else text

    def _write(self, text: str) -> None:
        left = memoryview(text.encode("utf-8", "backslashreplace"))
        while left:
            left = left[os.write(self._sink, left) :]


_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O[@-~])")
_SPELLINGS = {
    "up": ("\x1b[A", "\x1bOA"),
    "down": ("\x1b[B", "\x1bOB"),
    "pgup": ("\x1b[5~",),
    "pgdn": ("\x1b[6~",),
    "home": ("\x1b[H", "\x1bOH", "\x1b[1~"),
    "end": ("\x1b[F", "\x1bOF", "\x1b[4~"),
    "enter": ("\r", "\n"),
    "backspace": ("\x7f", "\x08"),
    "eof": ("\x04",),
    "esc": ("\x1b",),
}
_NAMES = {spelling: name for name, spellings in _SPELLINGS.items() for spelling in spellings}
_ALONE = 0.05
"""Seconds after which an escape character is the Esc key and not the start of a sequence."""


class KeyReader:
    """Key reader of a terminal without line buffering and echo.

    Args:
        source: file descriptor.
    """

    def __init__(self, source: int) -> None:
        self._source = source
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._keys: deque[str] = deque()

    async def get(self) -> str:
        """Return the next key; `eof` if the terminal is closed."""
        while not self._keys:
            wait = _ALONE if self._text else float("inf")
            with trio.move_on_after(wait) as clock:
                await trio.lowlevel.wait_readable(self._source)
            if clock.cancelled_caught:
                self._split(whole=True)
                continue
            try:
                data = os.read(self._source, 1024)
            except OSError:
                data = b""
            if not data:
                return "eof"
            self._text += self._decoder.decode(data)
            self._split(whole=False)
        return self._keys.popleft()

    def forget(self) -> None:
        """Drop pressed keys: they referred to an earlier picture."""
        self._keys.clear()
        self._text = ""
        drop_pending(self._source)

    async def wait_for_reading(self) -> None:
        """Wait until the user can have read the latest picture and no key was pressed meanwhile (`render.keyboard`)."""
        self.forget()
        while True:
            with trio.move_on_after(READING) as quiet:
                await trio.lowlevel.wait_readable(self._source)
            if quiet.cancelled_caught:
                return
            try:
                if not os.read(self._source, 1024):
                    return
            except OSError:  # the terminal is closed, which `get` reports
                return

    def _split(self, *, whole: bool) -> None:
        """Move complete keys from the text to the queue; `whole` also moves an incomplete sequence."""
        while self._text:
            if self._text[0] != "\x1b":
                length = 1
            elif found := _SEQUENCE.match(self._text):
                length = found.end()
            elif whole or (len(self._text) > 1 and self._text[1] not in "[O"):
                length = 1
            else:
                return
            part, self._text = self._text[:length], self._text[length:]
            name = _NAMES.get(part, part)
            if name.isprintable():  # unknown sequences are dropped
                self._keys.append(name)
