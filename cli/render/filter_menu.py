"""A long list to pick from: what is typed keeps the entries that have all of its words, Enter takes the one in bold.

No approval is given here, so what is typed may move the cursor: it is always on an entry that is seen.
"""

from __future__ import annotations

from collections.abc import Sequence

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl

from .text import one_line

ROWS = 10
"""Entries that are shown at once."""


class FilterMenu:
    """The entries, what is typed, and the cursor.

    Args:
        entries: what to pick from.
        free: what is typed may be taken as it is, where no entry is equal to it.
    """

    def __init__(self, entries: Sequence[str], *, free: bool = False) -> None:
        self._entries = entries
        self._free = free
        self.typed = ""
        self.cursor = 0

    @property
    def fitting(self) -> list[int]:
        """Positions of the entries that have all the words that are typed; -1 is what is typed itself."""
        words = self.typed.casefold().split()
        found = [at for at, entry in enumerate(self._entries) if all(word in entry.casefold() for word in words)]
        return [*found, -1] if self._free and self.typed.strip() else found

    def application(self) -> Application[int | str]:
        """An application whose result is the position of an entry, or the text that was typed.

        Ends with `KeyboardInterrupt` on Ctrl-C and `EOFError` on Ctrl-D.
        """
        rows = Window(FormattedTextControl(self.shown, focusable=True, show_cursor=False), wrap_lines=False)
        return Application(layout=Layout(rows), key_bindings=self._keys(), erase_when_done=True)

    def shown(self) -> StyleAndTextTuples:
        """What is seen."""
        fitting = self.fitting
        first = max(0, min(self.cursor - ROWS // 2, len(fitting) - ROWS))
        rows: StyleAndTextTuples = [("", f"  filter: {one_line(self.typed, 60)}_\n")]
        for at, position in enumerate(fitting[first : first + ROWS], first):
            entry = f"'{self.typed.strip()}', as it is typed" if position < 0 else self._entries[position]
            here = at == self.cursor
            rows.append(("bold" if here else "", f"  {'>' if here else ' '} {one_line(entry, 200)}\n"))
        entries = sum(position >= 0 for position in fitting)
        count = f"{entries} of {len(self._entries)}; " if len(fitting) > ROWS or self.typed else ""
        rows.append(("class:hint", f"    {count}type to filter, arrows, then enter" if fitting else "    none fits"))
        return rows

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("up")
        @keys.add("c-p")
        def _up(_event: KeyPressEvent) -> None:
            self._go(self.cursor - 1)

        @keys.add("down")
        @keys.add("c-n")
        def _down(_event: KeyPressEvent) -> None:
            self._go(self.cursor + 1)

        @keys.add("backspace")
        def _back(_event: KeyPressEvent) -> None:
            self._type(self.typed[:-1])

        @keys.add("<any>")
        def _any(event: KeyPressEvent) -> None:
            text = event.data.partition("\r")[0].partition("\n")[0]
            if text.isprintable():
                self._type(self.typed + text)

        @keys.add("enter")
        def _enter(event: KeyPressEvent) -> None:
            fitting = self.fitting
            if fitting:
                position = fitting[self.cursor]
                event.app.exit(result=self.typed.strip() if position < 0 else position)

        @keys.add("c-c")
        def _interrupt(event: KeyPressEvent) -> None:
            event.app.exit(exception=KeyboardInterrupt())

        @keys.add("c-d")
        def _end(event: KeyPressEvent) -> None:
            event.app.exit(exception=EOFError())

        return keys

    def _type(self, text: str) -> None:
        self.typed, self.cursor = text, 0

    def _go(self, position: int) -> None:
        self.cursor = max(0, min(position, len(self.fitting) - 1))
