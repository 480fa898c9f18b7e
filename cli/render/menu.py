"""A list to pick from with the arrow keys: one entry, or with `many` any number of them.

prompt_toolkit has such lists, but theirs moves the cursor when a letter is typed and on Enter returns the
entry that was marked before; with an approval at stake the two must be the same thing.
"""

from __future__ import annotations

from collections.abc import Sequence

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl

from .text import one_line


class Menu:
    """The entries, the cursor, and which entries are ticked."""

    def __init__(self, entries: Sequence[str], *, start: int = 0, many: bool = False) -> None:
        self._entries = entries
        self._many = many
        self.cursor = start
        self.ticked: set[int] = set()

    def application(self) -> Application[list[int]]:
        """An application whose result is the picked entries' positions, in the order of the list.

        Ends with `KeyboardInterrupt` on Ctrl-C and `EOFError` on Ctrl-D.
        """
        rows = Window(FormattedTextControl(self._rows, focusable=True, show_cursor=False), wrap_lines=True)
        hint = "space ticks, enter accepts" if self._many else "arrows or a number, then enter"
        foot = Window(FormattedTextControl([("class:hint", f"    {hint}")]), height=1)
        return Application(
            layout=Layout(HSplit([rows, foot]), focused_element=rows),
            key_bindings=self._keys(),
            erase_when_done=True,
        )

    def _rows(self) -> StyleAndTextTuples:
        rows: StyleAndTextTuples = []
        for position, entry in enumerate(self._entries):
            here = position == self.cursor
            tick = f"[{'x' if position in self.ticked else ' '}] " if self._many else ""
            number = f"{position + 1}. " if position < 9 else "   "
            if here:
                rows.append(("[SetCursorPosition]", ""))
            text = f"  {'>' if here else ' '} {number}{tick}{one_line(entry, 200)}\n"
            rows.append(("bold" if here else "", text))
        return rows

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        def move(by: int) -> None:
            self.cursor = max(0, min(len(self._entries) - 1, self.cursor + by))

        @keys.add("up")
        @keys.add("c-p")
        def _up(_event: KeyPressEvent) -> None:
            move(-1)

        @keys.add("down")
        @keys.add("c-n")
        def _down(_event: KeyPressEvent) -> None:
            move(1)

        @keys.add("home")
        def _first(_event: KeyPressEvent) -> None:
            move(-len(self._entries))

        @keys.add("end")
        def _last(_event: KeyPressEvent) -> None:
            move(len(self._entries))

        @keys.add("<any>")
        def _typed(event: KeyPressEvent) -> None:
            self._jump(event.data)

        @keys.add(" ")
        def _tick(_event: KeyPressEvent) -> None:
            if self._many:
                self.ticked ^= {self.cursor}

        @keys.add("enter")
        def _accept(event: KeyPressEvent) -> None:
            event.app.exit(result=sorted(self.ticked) if self._many else [self.cursor])

        @keys.add("c-c")
        def _interrupt(event: KeyPressEvent) -> None:
            event.app.exit(exception=KeyboardInterrupt())

        @keys.add("c-d")
        def _end(event: KeyPressEvent) -> None:
            event.app.exit(exception=EOFError())

        return keys

    def _jump(self, typed: str) -> None:
        """A digit goes to that entry, a letter to the next entry that begins with it."""
        count = len(self._entries)
        if typed.isdigit() and 1 <= int(typed) <= min(9, count):
            self.cursor = int(typed) - 1
            return
        for step in range(1, count + 1):
            position = (self.cursor + step) % count
            if typed and self._entries[position].casefold().startswith(typed.casefold()):
                self.cursor = position
                return
