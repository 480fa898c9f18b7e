"""A list to pick from: one entry, or with `many` any number of them, or with `write` a text of one's own.

What is picked must be what the person meant: an approval may be at stake. So the cursor and the answer are the same
thing (prompt_toolkit's own lists tell them apart), and text that is typed without looking never picks an entry by its
letters:

- A digit goes to the entry of that number.
- With `write`, anything else that is typed is the beginning of a text, for which the last entry stands.
- Without, what is typed goes to the one entry that begins with it. Text that begins none, or several, takes the cursor
  off the list, and Enter does nothing until an arrow or a number brings it back.
- Keys that came before the list could be read (`early`) do nothing. What to press is shown once keys count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import BufferControl, ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.layout.processors import BeforeInput

from .early import Early
from .text import one_line

Picked = list[int] | str
"""Positions of entries, in the order of the list, or the text that was written."""

_DIGITS = tuple("123456789")


class Menu:
    """The entries, the cursor, and which entries are ticked.

    Args:
        entries: what to pick from.
        start: where the cursor starts; None for nowhere, so that Enter alone picks nothing.
        many: any number of entries may be ticked.
        write: the last entry stands for a text of one's own.
        early: tells the keys that came too early; None where all count.
    """

    def __init__(
        self,
        entries: Sequence[str],
        *,
        start: int | None = 0,
        many: bool = False,
        write: bool = False,
        early: Early | None = None,
    ) -> None:
        self._entries = entries
        self._early = early
        self._many = many
        self._write = write
        self._typed = ""
        self._lost = False
        self._writing = False
        self._text = Buffer(multiline=False, accept_handler=self._written)
        self.rows = Window(FormattedTextControl(self._shown, focusable=True, show_cursor=False), wrap_lines=True)
        self._picked: Callable[[Picked], None] = lambda _: None
        self._focus: Callable[[Buffer | Window], None] = lambda _: None
        self.cursor = start
        self.ticked: set[int] = set()

    def panel(self, picked: Callable[[Picked], None], focus: Callable[[Buffer | Window], None]) -> HSplit:
        """The list as a part of an application, which focuses `rows`.

        Args:
            picked: told what was picked.
            focus: gives keys to a part of the list.
        """
        self._picked, self._focus = picked, focus
        field = Window(BufferControl(self._text, input_processors=[BeforeInput("    > ")]), wrap_lines=True)
        below = ConditionalContainer(field, Condition(lambda: self._writing))
        hint = FormattedTextControl(lambda: [("class:hint", f"    {self.hint}")])
        foot = Window(hint, wrap_lines=True, dont_extend_height=True)
        return HSplit([self.rows, below, foot], key_bindings=self._keys())

    def application(self) -> Application[Picked]:
        """An application whose result is what was picked.

        Ends with `KeyboardInterrupt` on Ctrl-C and `EOFError` on Ctrl-D.
        """
        ends = KeyBindings()
        ends.add("c-c", eager=True)(lambda event: event.app.exit(exception=KeyboardInterrupt()))
        ends.add("c-d", filter=Condition(lambda: not self._text.text))(
            lambda event: event.app.exit(exception=EOFError())
        )
        application: Application[Picked] = Application(
            layout=Layout(
                self.panel(lambda picked: application.exit(result=picked), lambda part: application.layout.focus(part)),
                focused_element=self.rows,
            ),
            key_bindings=ends,
            erase_when_done=True,
        )
        if self._early is not None:
            application.after_render += self._wait_for_reading
        return application

    def _wait_for_reading(self, app: Application[Picked]) -> None:
        """After each picture: once keys count, draw another one, which says so."""
        assert self._early is not None
        self._early.shown()
        if self._early.left and app.loop is not None:
            app.loop.call_later(self._early.left, app.invalidate)

    @property
    def target(self) -> Buffer | Window:
        """The part that takes the keys now: the list, or the text of one's own that was begun."""
        return self._text if self._writing else self.rows

    @property
    def _too_early(self) -> bool:
        return self._early is not None and self._early.left > 0

    # --- what is seen -----------------------------------------------------------------------------------

    def _shown(self) -> StyleAndTextTuples:
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

    @property
    def hint(self) -> str:
        """What to do now; stands below the list."""
        if self._too_early:
            return ""
        if self._early is not None and self._early.dropped and not self._writing:
            return f"{self._what_to_press}\n    (what was typed before this was shown does not count)"
        return self._what_to_press

    @property
    def _what_to_press(self) -> str:
        if self._writing:
            return "enter sends it, an arrow up goes back to the list"
        if self._lost:
            typed = f"'{one_line(self._typed, 30)}' is none of these: " if self._typed else ""
            return typed + "choose with the arrows or a number, then enter"
        if self._many:
            return "space ticks, enter accepts"
        return "arrows or a number, then enter" + ("; or type your answer" if self._write else "")

    # --- keys -------------------------------------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        choosing, writing = Condition(lambda: not self._writing), Condition(lambda: self._writing)
        bindings: list[tuple[str, Condition, Callable[[KeyPressEvent], None]]] = [
            ("up", choosing, lambda _: self._move(-1)),
            ("c-p", choosing, lambda _: self._move(-1)),
            ("down", choosing, lambda _: self._move(1)),
            ("c-n", choosing, lambda _: self._move(1)),
            ("home", choosing, lambda _: self._go(0)),
            ("end", choosing, lambda _: self._go(len(self._entries) - 1)),
            ("<any>", choosing, lambda event: self._take(event.data)),
            ("backspace", choosing, lambda _: self._fit(self._typed[:-1])),
            (" ", choosing, lambda _: self._tick()),
            ("enter", choosing, lambda _: self._accept()),
            ("up", writing, lambda _: self._leave_text()),
        ]
        keys = KeyBindings()
        for key, when, action in bindings:
            keys.add(key, filter=when)(action)

        @keys.add("<any>", filter=Condition(lambda: self._too_early), eager=True)
        def _drop(_event: KeyPressEvent) -> None:
            assert self._early is not None
            self._early.drop()

        return keys

    def _tick(self) -> None:
        if not self._many:
            self._take(" ")
        elif self.cursor is not None:
            self.ticked ^= {self.cursor}

    def _move(self, by: int) -> None:
        last = len(self._entries) - 1
        if self.cursor is None:
            self._go(0 if by > 0 else last)
        else:
            self._go(max(0, min(last, self.cursor + by)))

    def _go(self, position: int) -> None:
        self.cursor, self._typed, self._lost = position, "", False

    def _accept(self) -> None:
        if self.cursor is None:
            self._typed, self._lost = "", True
        elif self._write and self.cursor == len(self._entries) - 1:
            self._write_text("")
        else:
            self._picked(sorted(self.ticked) if self._many else [self.cursor])

    def _take(self, data: str) -> None:
        """What was typed or pasted: a number, the beginning of an entry, or the beginning of a text."""
        pasted = len(data) > 1 and not data.startswith("\x1b")
        if not (data.isprintable() or pasted) or not (self._typed or data.strip()):
            return  # a key with no meaning here, or a blank before any text
        typed = self._typed + data
        if typed in _DIGITS[: len(self._entries)]:
            self._go(int(typed) - 1)
            self._typed = typed
        elif self._write:
            self._typed = ""
            self._write_text(typed)
        else:
            self._fit(typed)

    def _fit(self, typed: str) -> None:
        self._typed = typed
        if not typed or self._write:
            return
        begin = [at for at, entry in enumerate(self._entries) if entry.casefold().startswith(typed.casefold())]
        self.cursor = begin[0] if len(begin) == 1 and not self._many else None
        self._lost = self.cursor is None

    # --- a text of one's own ----------------------------------------------------------------------------

    def _write_text(self, beginning: str) -> None:
        self.cursor, self._writing = len(self._entries) - 1, True
        self._focus(self._text)
        self._text.insert_text(beginning.replace("\r\n", "\n").replace("\r", "\n"))

    def _leave_text(self) -> None:
        self._writing = False
        self._focus(self.rows)

    def _written(self, text: Buffer) -> bool:
        if text.text.strip():
            self._picked(text.text)
        else:  # nothing was said: back to the list
            self._leave_text()
        return True  # keep the text; it is erased with all the rest
