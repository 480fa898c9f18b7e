"""Menu for long lists: typed words filter the entries, and Enter picks the highlighted one.

No approvals are given here, so typed text may move the cursor: the cursor is always on a visible entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl

from .text import columns, one_line

ROWS = 10
"""Maximum number of visible entries."""


class FilterMenu:
    """Filterable list with a cursor.

    Args:
        entries: entries to pick from.
        about: description of each entry, in a second column; the filter searches it too.
        free: True also offers the typed text itself.
        back: True mentions in the help that Esc goes back; the caller binds the key.
    """

    def __init__(
        self, entries: Sequence[str], about: Sequence[str] = (), *, free: bool = False, back: bool = False
    ) -> None:
        self._entries = entries
        self._about = about or [""] * len(entries)
        self._free = free
        self._back = back
        self.rows = Window(FormattedTextControl(self.visible_rows, focusable=True, show_cursor=False), wrap_lines=False)
        self.typed = ""
        self.cursor = 0

    @property
    def target(self) -> Window:
        """Window to focus."""
        return self.rows

    @property
    def fitting(self) -> list[int]:
        """Positions of the entries that contain all typed words; -1 is the typed text itself."""
        words = self.typed.casefold().split()
        texts = (f"{entry} {about}".casefold() for entry, about in zip(self._entries, self._about, strict=True))
        found = [at for at, text in enumerate(texts) if all(word in text for word in words)]
        return [*found, -1] if self._free and self.typed.strip() else found

    def application(self) -> Application[int | str]:
        """Return an application that results in the position of an entry, or in the typed text.

        Ends with `KeyboardInterrupt` on Ctrl-C and `EOFError` on Ctrl-D.
        """
        ends = KeyBindings()
        ends.add("c-c", eager=True)(lambda event: event.app.exit(exception=KeyboardInterrupt()))
        ends.add("c-d")(lambda event: event.app.exit(exception=EOFError()))
        panel = self.panel(lambda picked: application.exit(result=picked))
        application: Application[int | str] = Application(
            layout=Layout(panel, focused_element=self.rows), key_bindings=ends, erase_when_done=True
        )
        return application

    def panel(self, picked: Callable[[int | str], None]) -> HSplit:
        """Return the list as part of an application, which must focus `rows`.

        Args:
            picked: callback for the position of an entry, or for the typed text.
        """
        return HSplit([self.rows], key_bindings=self._keys(picked))

    def visible_rows(self) -> StyleAndTextTuples:
        """Return the visible rows."""
        fitting = self.fitting
        first = max(0, min(self.cursor - ROWS // 2, len(fitting) - ROWS))
        rows: StyleAndTextTuples = [("", f"  filter: {one_line(self.typed, 60)}_\n")]
        seen = fitting[first : first + ROWS]
        for at, line in enumerate(columns([self._cells(position) for position in seen]), first):
            here = at == self.cursor
            rows.append(("bold" if here else "", f"  {'>' if here else ' '} {line.removeprefix('  ')}\n"))
        entries = sum(position >= 0 for position in fitting)
        count = f"{entries} of {len(self._entries)}; " if len(fitting) > ROWS or self.typed else ""
        help = f"    {count}type to filter, arrows, then enter" if fitting else "    none fits"
        rows.append(("class:hint", f"{help}; Esc goes back" if self._back else help))
        return rows

    def _cells(self, position: int) -> tuple[str, str]:
        if position < 0:
            return f"'{one_line(self.typed, 60)}', as it is typed", ""
        return one_line(self._entries[position], 200), one_line(self._about[position])

    def _keys(self, picked: Callable[[int | str], None]) -> KeyBindings:
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
        def _enter(_event: KeyPressEvent) -> None:
            fitting = self.fitting
            if fitting:
                position = fitting[self.cursor]
                picked(self.typed.strip() if position < 0 else position)

        return keys

    def _type(self, text: str) -> None:
        self.typed, self.cursor = text, 0

    def _go(self, position: int) -> None:
        self.cursor = max(0, min(position, len(self.fitting) - 1))
