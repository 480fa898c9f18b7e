"""Screen thread, and restoration of the terminal.

The thread starts with the screen alone, so that the first prompt appears before the rest is imported; lines sent
meanwhile wait. `Guard` saves the terminal's modes and restores them on every exit path, even if the thread hangs. Keys
pressed before the prompt appears are inserted into it. The terminal does not echo them, and text that it had echoed
before is erased.

A closed terminal ends the thread a moment before SIGHUP arrives. The thread waits for the signal, which leaves a
durable run to the next process; a user who leaves would end it.
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

from ...render.keyboard import HANGS_UP_WITHIN, is_closed

if TYPE_CHECKING:
    from ....protocol.control import chat
    from .application import ChatScreen, ConversationHandler

_RESTORE = b"\x18\x1b[?7h\x1b[?2026l\x1b[?2004l\x1b[0m\x1b[?25h"
_ENDS_WITHIN = 2.0
"""Seconds within which the thread must end."""


class Guard:
    """Saved modes of the terminal."""

    def __init__(self, stdin: TextIO, stdout: TextIO) -> None:
        self._in, self._out = stdin.fileno(), stdout.fileno()
        self._modes = termios.tcgetattr(self._in)

    def hush(self) -> str:
        """Switch echo and line buffering off; erase and return the text typed so far."""
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
        """Restore the terminal. Idempotent."""
        with suppress(termios.error, OSError):
            if termios.tcgetattr(self._in) != self._modes:
                termios.tcsetattr(self._in, termios.TCSANOW, self._modes)
                os.write(self._out, _RESTORE)


class ScreenThread:
    """Thread of the chat screen.

    Args:
        stdin, stdout: terminal.
        ended: callback in the screen's thread after its end.

    Attributes:
        screen, loop: objects of the thread, available after the first picture.
        code: exit code.
        error: exception that ended the thread.
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
        """Start the thread; return when the first prompt is on the screen, or the thread has failed."""
        if os.environ.get("TERM", "dumb") != "dumb":
            self._typed = self.guard.hush()
        self._thread.start()
        self._shown.wait()

    @property
    def over(self) -> bool:
        """True if the thread has ended."""
        return self._over or not self._thread.is_alive()

    def call(self, work: Callable[..., Any], *args: Any) -> None:
        """Schedule a call in the screen's loop. Thread-safe; ignored if the loop is closed."""
        with suppress(RuntimeError, AttributeError):  # the loop is closed, or never existed
            self.loop.call_soon_threadsafe(work, *args)

    def finish(self) -> None:
        """End the thread if it still runs, and restore the terminal."""
        self.call(lambda: self.screen.leave())
        self._finishing.set()
        self._thread.join(_ENDS_WITHIN)
        self.guard.restore()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Give the terminal to another program for the duration of the block. Not for the screen's own thread."""
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
            self.code = 0  # the terminal is closed
            if is_closed():
                self._finishing.wait(HANGS_UP_WITHIN)
        except BaseException as error:  # noqa: BLE001 - raised in the main thread after the restoration
            self.error = error
        finally:
            self._over = True  # set before the events: a waiter must not see the thread as alive
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
        from .surface import TerminalOutput, reflows

        self.loop = asyncio.get_running_loop()
        draws = redrawable(self._stdout)
        output = TerminalOutput(self._stdout, colours=colours(self._stdout), draws=draws)
        source, typed = Vt100Input(self._stdin), list[KeyPress]()
        Vt100Parser(typed.append).feed_and_flush(self._typed)
        store_typeahead(source, typed)
        kind = ChatScreen if draws else LineScreen
        breaks, pushed = reflows(os.environ), pushes(os.environ)
        self.screen = kind(source, output, reflows=breaks, pushes=pushed, shown=self._shown.set)
        self.screen.handler = WaitingHandler()
        self.code = await self.screen.run()


class WaitingHandler:
    """Placeholder for the conversation until it is imported: records the user's actions in order."""

    def __init__(self) -> None:
        self.busy = False
        self._kept: list[Callable[[ConversationHandler], None]] = []
        self._successor: ConversationHandler | None = None
        self._succeeded = asyncio.Event()

    def hand_over(self, handler: ConversationHandler) -> None:
        """Replay the recorded actions to the conversation."""
        for tell in self._kept:
            tell(handler)
        self._successor = handler
        self._succeeded.set()

    def entered(self, shown: str, text: str) -> None:
        """Record a line."""
        self.busy = True
        self._kept.append(lambda handler: handler.entered(shown, text))

    def leave(self) -> None:
        """Record the wish to leave, for as soon as the chat exists."""
        self._kept.append(lambda handler: handler.leave())

    def interrupt(self) -> None:
        """Record an interrupt."""
        self.busy = False
        self._kept.append(lambda handler: handler.interrupt())

    def show_thoughts(self) -> None:
        pass

    def show_call(self) -> None:
        pass

    def settled(self) -> list[str]:
        return []

    def rows(self, _columns: int, _room: int) -> list[str]:
        return []

    def is_command(self, _text: str) -> bool:
        """Return False: no question is open yet."""
        return False

    async def complete(self, text: str) -> list[chat.Completion]:
        """Wait for the conversation and return its completions. An empty list would end the completion."""
        await self._succeeded.wait()
        assert self._successor is not None
        return await self._successor.complete(text)

    async def edited(self, _text: str) -> str | None:
        """Return None: there is no editor yet."""
        return None


class PrintedAbove:
    """Replacement for stdout and stderr while the screen is active."""

    encoding, errors = "utf-8", "replace"

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._line = ""
        self._real = sys.stderr

    def write(self, text: str) -> int:
        """Print complete lines above the prompt."""
        lines, newline, self._line = (self._line + text).rpartition("\n")
        if newline:
            self._tell(lines)
        return len(text)

    def flush(self) -> None:
        """Do nothing: only an incomplete line is buffered."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._real.fileno()
