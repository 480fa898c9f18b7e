"""Questions of the wizard: menus on terminals that can be redrawn, numbered lines on others.

A key is typed without echo. Ctrl-C raises `KeyboardInterrupt` in both, and Ctrl-D `EOFError`. Esc raises `BackError`,
and so does 0 at a list of numbered lines: the previous question is asked again.
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


class BackError(Exception):
    """The user returns to the previous question."""


class Asker(Protocol):
    """Interface of the two kinds of questions."""

    def say(self, text: str) -> None:
        """Print lines."""

    def pick(self, title: str, entries: Sequence[str]) -> int:
        """Return the position of one of a few entries; Enter alone selects the first."""

    def search(self, title: str, entries: Sequence[str], about: Sequence[str] = (), *, free: bool = False) -> int | str:
        """Return the position of one of many entries, described in `about`; with `free` possibly a text."""

    def text(self, title: str, first: str = "") -> str:
        """Return a line of text; `first` is its editable initial value."""

    def hidden(self, title: str) -> str:
        """Return a text that is typed without echo."""


def asker() -> Asker:
    """Return the kind of questions that suits the terminal."""
    return DrawnMenus() if redrawable(sys.stderr) else Numbered()


class _Printer:
    def say(self, text: str) -> None:
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


class DrawnMenus(_Printer):
    """Menus; one line with the answer remains on the screen."""

    def pick(self, title: str, entries: Sequence[str]) -> int:
        from ..render.keyboard import Early
        from ..render.menu import Menu

        picked = self._run(title, lambda source: Menu(entries, early=Early(source), back=True).application())
        self.say(f"  = {one_line(entries[picked[0]], 110)}")
        return int(picked[0])

    def search(self, title: str, entries: Sequence[str], about: Sequence[str] = (), *, free: bool = False) -> int | str:
        from ..render.menu import FilterMenu

        picked: int | str = self._run(title, lambda _: FilterMenu(entries, about, free=free, back=True).application())
        self.say(f"  = {one_line(picked if isinstance(picked, str) else entries[picked], 110)}")
        return picked

    def text(self, title: str, first: str = "") -> str:
        from prompt_toolkit import PromptSession

        text = str(self._run(title, lambda _: PromptSession("  > ", erase_when_done=True), default=first)).strip()
        self.say(f"  = {one_line(text, 110) or '(empty)'}")
        return text

    def hidden(self, title: str) -> str:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.output import ColorDepth

        depth = None if colours(sys.stderr) else ColorDepth.DEPTH_1_BIT

        def session(_source: Any) -> Any:
            return PromptSession("  > ", erase_when_done=True, is_password=True, color_depth=depth)

        text = self._run(title, session)
        self.say("  = (not shown)" if text else "  = (empty)")
        return str(text)

    def _run(self, title: str, make: Callable[[Any], Any], default: str = "") -> Any:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.application import create_app_session
        from prompt_toolkit.input import create_input

        from ..render.dialog import terminal_behind
        from ..render.keyboard import drop_pending

        self._title(title)
        source = create_input(sys.stdin)
        with create_app_session(input=source, output=terminal_behind(sys.stderr)):
            drop_pending(source.fileno())  # keys pressed before the question must not answer it
            made = make(source)
            _bind_back(made.app if isinstance(made, PromptSession) else made)
            if isinstance(made, PromptSession):
                return made.prompt(default=default, handle_sigint=False, set_exception_handler=False)
            return made.run(handle_sigint=False, set_exception_handler=False)


def _bind_back(app: Any) -> None:
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.key_binding.key_bindings import merge_key_bindings

    keys = KeyBindings()
    keys.add("escape")(lambda event: event.app.exit(exception=BackError()))
    app.key_bindings = keys if app.key_bindings is None else merge_key_bindings([app.key_bindings, keys])
    app.ttimeoutlen = app.timeoutlen = _ESCAPE


_ESCAPE = 0.1
"""Seconds that Esc waits for further bytes of an arrow key."""


class Numbered(_Printer):
    """Questions as plain lines, for terminals that can't be redrawn."""

    def pick(self, title: str, entries: Sequence[str]) -> int:
        self._title(title)
        for number, entry in enumerate(entries, 1):
            self.say(f"  {number}. {one_line(entry, 200)}")
        self.say("  0. back")
        while True:
            text = self._line("number [1]: ").strip() or "1"
            if text == "0":
                raise BackError
            if text.isascii() and text.isdecimal() and 1 <= int(text) <= len(entries):
                return int(text) - 1
            self.say(f"  a number from 1 to {len(entries)}, please")

    def search(self, title: str, entries: Sequence[str], about: Sequence[str] = (), *, free: bool = False) -> int | str:
        """Read a number, an entry, or with `free` any text."""
        self._title(title)
        for number, entry in enumerate(entries, 1):
            text = f": {about[number - 1]}" if about and about[number - 1] else ""
            self.say(f"  {number}. {one_line(entry + text, 200)}")
        self.say("  0. back")
        while True:
            text = self._line("number or name [1]: ").strip() or "1"
            if text == "0":
                raise BackError
            if text.isascii() and text.isdecimal() and 1 <= int(text) <= len(entries):
                return int(text) - 1
            equal = [at for at, entry in enumerate(entries) if entry.casefold() == text.casefold()]
            if equal:
                return equal[0]
            if free:
                return text
            self.say("  no entry matches")

    def text(self, title: str, first: str = "") -> str:
        self._title(title)
        return self._line(f"  [{first}]> " if first else "  > ").strip() or first

    def hidden(self, title: str) -> str:
        from ..vault_passphrase import hidden_line

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
    """Raise `KeyboardInterrupt` on Ctrl-C, so that the echo of the terminal is restored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
