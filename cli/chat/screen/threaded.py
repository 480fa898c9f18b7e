"""The screen in a thread of its own, and the terminal as it was before.

The thread begins with the screen alone, so that the first prompt stands before the rest is imported; lines that are
sent meanwhile wait. `guard` knows what the terminal was like, and gives it back on every way out, even if the
thread hangs. Keys that are pressed before the prompt stands are typed there: the terminal echoes none of them, and what
it had echoed before this program could say so is wiped.

A closed terminal ends the thread a moment before SIGHUP comes, which is waited for: the signal leaves a durable run to
the next process, where a person who leaves would end it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from ...render.hangup import HANGS_UP_WITHIN, is_closed

if TYPE_CHECKING:
    from ....protocol.control import chat
    from .application import ChatScreen, Handler

_RESTORE = b"\x18\x1b[?7h\x1b[?2026l\x1b[?2004l\x1b[0m\x1b[?25h"
_ENDS_WITHIN = 2.0
"""Seconds that the thread has to end in."""


class Guard:
    """The terminal's modes, as they were."""

    def __init__(self, stdin: TextIO, stdout: TextIO) -> None:
        self._in, self._out = stdin.fileno(), stdout.fileno()
        self._modes = termios.tcgetattr(self._in)

    def hush(self) -> str:
        """Has the terminal echo nothing, and keep no lines back; what was typed until now, off the screen."""
        modes = termios.tcgetattr(self._in)
        modes[0] &= ~termios.ICRNL
        modes[3] &= ~(termios.ECHO | termios.ICANON)
        termios.tcsetattr(self._in, termios.TCSANOW, modes)
        if not (waiting := int.from_bytes(fcntl.ioctl(self._in, termios.FIONREAD, bytes(4)), sys.byteorder)):
            return ""
        typed = os.read(self._in, waiting).decode("utf-8", "replace").replace("\n", "\r")
        rows = typed.count("\r")
        up = f"\x1b[{rows}A" if rows else ""
        os.write(self._out, f"\r{up}\x1b[J".encode())
        return typed

    def restore(self) -> None:
        """Gives the terminal back; harmless if that was done."""
        with suppress(termios.error, OSError):
            if termios.tcgetattr(self._in) != self._modes:
                termios.tcsetattr(self._in, termios.TCSANOW, self._modes)
                os.write(self._out, _RESTORE)


class ScreenThread:
    """See the module.

    Args:
        stdin, stdout: the terminal.
        ended: called in the screen's thread when it has ended.

    Attributes:
        screen, loop: of the thread, from the first picture on.
        code: the exit code that the person has left with.
        error: what the thread has crashed with.
    """

    def __init__(self, stdin: TextIO, stdout: TextIO, *, ended: Callable[[], None]) -> None:
        self.screen: ChatScreen
        self.loop: asyncio.AbstractEventLoop
        self.code = 0
        self.error: BaseException | None = None
        self._stdin, self._stdout = stdin, stdout
        self._ended = ended
        self._over = False
        self._typed = ""
        self._shown, self._finishing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="screen", daemon=True)
        self.guard = Guard(stdin, stdout)

    def start(self) -> None:
        """Returns when the first prompt stands, or the thread has failed."""
        if os.environ.get("TERM", "dumb") != "dumb":
            self._typed = self.guard.hush()
        self._thread.start()
        self._shown.wait()

    @property
    def over(self) -> bool:
        """Whether the thread has ended."""
        return self._over or not self._thread.is_alive()

    def call(self, work: Callable[..., Any], *args: Any) -> None:
        """Has the screen's loop call this, from any thread."""
        with suppress(RuntimeError, AttributeError):  # it is closed, or was never there
            self.loop.call_soon_threadsafe(work, *args)

    def finish(self) -> None:
        """Ends the thread, if it has not ended, and gives the terminal back."""
        self.call(lambda: self.screen.leave())
        self._finishing.set()
        self._thread.join(_ENDS_WITHIN)
        self.guard.restore()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leaves the terminal to others, for the length of the block; for other threads than the screen's."""
        cleared, over = threading.Event(), asyncio.Event()

        async def held() -> None:
            async with self.screen.aside():
                cleared.set()
                await over.wait()

        if self.over:
            yield
            return
        asyncio.run_coroutine_threadsafe(held(), self.loop)
        cleared.wait(_ENDS_WITHIN)
        try:
            yield
        finally:
            self.call(over.set)

    # --- in the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._play())
        except (EOFError, KeyboardInterrupt):
            self.code = 0  # the terminal is gone
            if is_closed():
                self._finishing.wait(HANGS_UP_WITHIN)
        except BaseException as error:  # noqa: BLE001 - raised in the main thread, once the terminal is given back
            self.error = error
        finally:
            self._over = True  # before anyone hears of it, who would else look at a thread that is not quite dead
            self._shown.set()
            self._ended()

    async def _play(self) -> None:
        from prompt_toolkit.input.typeahead import store_typeahead
        from prompt_toolkit.input.vt100 import Vt100Input
        from prompt_toolkit.input.vt100_parser import Vt100Parser
        from prompt_toolkit.key_binding import KeyPress

        from ...render.markdown.terminal import pushes
        from ...render.text import colours, redrawable
        from .application import ChatScreen
        from .lines import LineScreen
        from .output import TerminalOutput
        from .surface import reflows

        self.loop = asyncio.get_running_loop()
        draws = redrawable(self._stdout)
        output = TerminalOutput(self._stdout, colours=colours(self._stdout), draws=draws)
        source, typed = Vt100Input(self._stdin), list[KeyPress]()
        Vt100Parser(typed.append).feed_and_flush(self._typed)
        store_typeahead(source, typed)
        kind = ChatScreen if draws else LineScreen
        breaks, pushed = reflows(os.environ), pushes(os.environ)
        self.screen = kind(source, output, reflows=breaks, pushes=pushed, shown=self._shown.set)
        self.screen.handler = Waiting()
        self.code = await self.screen.run()


class Waiting:
    """Stands in for who leads the conversation until that is imported: keeps what the person does, in order."""

    def __init__(self) -> None:
        self.busy = False
        self._kept: list[Callable[[Handler], None]] = []
        self._successor: Handler | None = None
        self._succeeded = asyncio.Event()

    def hand_over(self, handler: Handler) -> None:
        """Who leads it is there, and is told what was done."""
        for tell in self._kept:
            tell(handler)
        self._successor = handler
        self._succeeded.set()

    def entered(self, shown: str, text: str) -> None:
        """See `Handler`."""
        self.busy = True
        self._kept.append(lambda handler: handler.entered(shown, text))

    def leave(self) -> None:
        """See `Handler`; as soon as there is something to leave."""
        self._kept.append(lambda handler: handler.leave())

    def interrupt(self) -> None:
        """See `Handler`."""
        self.busy = False
        self._kept.append(lambda handler: handler.interrupt())

    def show_thoughts(self) -> None:
        """See `Handler`."""

    def show_call(self) -> None:
        """See `Handler`."""

    def settled(self) -> list[str]:
        """See `Handler`."""
        return []

    def rows(self, _columns: int, _room: int) -> list[str]:
        """See `Handler`."""
        return []

    async def complete(self, text: str) -> list[chat.Completion]:
        """See `Handler`. The list comes when the conversation is there: an empty one would end the completion."""
        await self._succeeded.wait()
        assert self._successor is not None
        return await self._successor.complete(text)

    async def edited(self, _text: str) -> str | None:
        """See `Handler`."""
        return None


class Above:
    """Stands in for stdout and stderr while the screen is there."""

    encoding, errors = "utf-8", "replace"

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._line = ""
        self._real = sys.stderr

    def write(self, text: str) -> int:
        """Complete lines are told."""
        lines, newline, self._line = (self._line + text).rpartition("\n")
        if newline:
            self._tell(lines)
        return len(text)

    def flush(self) -> None:
        """Nothing waits but half a line."""

    def isatty(self) -> bool:
        """It is drawn on one."""
        return True

    def fileno(self) -> int:
        """The terminal's."""
        return self._real.fileno()
