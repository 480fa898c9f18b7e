"""How the questions of the wizard are put: as menus where the terminal can be drawn on, else as numbered lines.

The value of a key is typed at a prompt that shows nothing of it. Ctrl-C raises `KeyboardInterrupt` in both, and Ctrl-D
`EOFError`.
"""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from ..render.text import colours, one_line, paint, redrawable, safe
from ..render.wrap import wrapped


class Asker(Protocol):
    """Puts questions to a person."""

    def say(self, text: str) -> None:
        """Write lines."""

    def pick(self, title: str, entries: Sequence[str]) -> int:
        """The position of one of a few entries; Enter alone takes the first."""

    def search(self, title: str, entries: Sequence[str], about: Sequence[str] = (), *, free: bool = False) -> int | str:
        """The position of one of many entries, each with a text `about` it, or with `free` a text."""

    def hidden(self, title: str) -> str:
        """A text that is not shown."""


def asker() -> Asker:
    """The one that suits the terminal."""
    return Drawn() if redrawable(sys.stderr) else Numbered()


class _Said:
    def say(self, text: str) -> None:
        """Write lines."""
        lines = safe(text).split("\n")
        if redrawable(sys.stderr):
            columns = shutil.get_terminal_size().columns
            lines = [row for line in lines for row in wrapped(line, columns)]
        sys.stderr.write("".join(f"{line}\n" for line in lines))
        sys.stderr.flush()

    def _title(self, title: str) -> None:
        line = safe(f"? {title}")
        sys.stderr.write(f"{paint(line, 'title') if colours(sys.stderr) else line}\n")
        sys.stderr.flush()


class Drawn(_Said):
    """Menus, of which one line with the answer stays."""

    def pick(self, title: str, entries: Sequence[str]) -> int:
        """See `Asker`."""
        from ..render.early import Early
        from ..render.menu import Menu

        picked = self._run(title, lambda source: Menu(entries, early=Early(source)).application())
        self.say(f"  = {one_line(entries[picked[0]], 110)}")
        return int(picked[0])

    def search(self, title: str, entries: Sequence[str], about: Sequence[str] = (), *, free: bool = False) -> int | str:
        """See `Asker`."""
        from ..render.filter_menu import FilterMenu

        picked: int | str = self._run(title, lambda _: FilterMenu(entries, about, free=free).application())
        self.say(f"  = {one_line(picked if isinstance(picked, str) else entries[picked], 110)}")
        return picked

    def hidden(self, title: str) -> str:
        """See `Asker`."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.output import ColorDepth

        depth = None if colours(sys.stderr) else ColorDepth.DEPTH_1_BIT

        def session(_source: Any) -> Any:
            return PromptSession("  > ", erase_when_done=True, is_password=True, color_depth=depth)

        text = self._run(title, session)
        self.say("  = (not shown)" if text else "  = (empty)")
        return str(text)

    def _run(self, title: str, make: Callable[[Any], Any]) -> Any:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.application import create_app_session
        from prompt_toolkit.input import create_input

        from ..render.dialog import terminal_behind
        from ..render.early import drop_pending

        self._title(title)
        source = create_input(sys.stdin)
        with create_app_session(input=source, output=terminal_behind(sys.stderr)):
            drop_pending(source.fileno())
            made = make(source)
            if isinstance(made, PromptSession):
                return made.prompt(handle_sigint=False, set_exception_handler=False)
            return made.run(handle_sigint=False, set_exception_handler=False)


class Numbered(_Said):
    """Plain lines, for terminals that can't be drawn on."""

    def pick(self, title: str, entries: Sequence[str]) -> int:
        """See `Asker`."""
        self._title(title)
        for number, entry in enumerate(entries, 1):
            self.say(f"  {number}. {one_line(entry, 200)}")
        while True:
            text = self._line("number [1]: ").strip() or "1"
            if text.isascii() and text.isdecimal() and 1 <= int(text) <= len(entries):
                return int(text) - 1
            self.say(f"  a number from 1 to {len(entries)}, please")

    def search(self, title: str, entries: Sequence[str], about: Sequence[str] = (), *, free: bool = False) -> int | str:
        """See `Asker`; what is typed is a number, an entry, or with `free` any text."""
        self._title(title)
        for number, entry in enumerate(entries, 1):
            text = f": {about[number - 1]}" if about and about[number - 1] else ""
            self.say(f"  {number}. {one_line(entry + text, 200)}")
        while True:
            text = self._line("number or name [1]: ").strip() or "1"
            if text.isascii() and text.isdecimal() and 1 <= int(text) <= len(entries):
                return int(text) - 1
            equal = [at for at, entry in enumerate(entries) if entry.casefold() == text.casefold()]
            if equal:
                return equal[0]
            if free:
                return text
            self.say("  that is none of these")

    def hidden(self, title: str) -> str:
        """See `Asker`."""
        from ..vault_opening import hidden_line

        self._title(title)
        with _interruptible():
            return hidden_line("  > ")

    def _line(self, prompt: str) -> str:
        sys.stderr.write(prompt)
        sys.stderr.flush()
        with _interruptible():
            line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C raises, so that what has turned the echo off turns it on again."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
