"""Menus: `Menu` picks one entry, any number (`many`), or a written text (`write`); `FilterMenu` is for long lists.

The picked entry must be the one that the user meant: it may be an approval. So the cursor and the answer are the same
thing; prompt_toolkit's own lists separate them. Text that is typed without looking never picks an entry by its letters:

- A digit moves to the entry of that number.
- With `write`, other typed text begins an answer in the text field of the last entry.
- Without `write`, typed text moves to the one entry that begins with it. If no entry or several begin with it, the
  cursor leaves the list. Enter then does nothing until an arrow or a number brings it back.
- In a chat (`commands`), a leading `.`, `/` or `!` begins a command in the input line, not an answer.
- Keys pressed before the list could be read (`keyboard.Early`) do nothing. The help text appears once keys count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import BufferControl, ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.layout.processors import BeforeInput

from .keyboard import Early
from .text import columns, one_line
from .wrap import wrapped

Picked = list[int] | str
"""Positions of entries in the order of the list, or the written text."""

_DIGITS = tuple("123456789")
_BEGIN_COMMANDS = (".", "/", "!")


class Commands(Protocol):
    """Input line of a chat, as far as questions pass text to it."""

    def is_command(self, text: str) -> bool:
        """Return True if the text is a command that may run while the question is open."""

    @property
    def is_free(self) -> bool:
        """Return True if the input line is empty."""

    def begin(self, text: str) -> None:
        """Put a text into the input line and focus it; the question regains the focus later."""


class Menu:
    """Entries with a cursor and ticks.

    Args:
        entries: texts of the entries.
        start: initial cursor position; None for none, so that Enter alone picks nothing.
        many: True allows to tick any number of entries.
        write: True makes the last entry a free-text answer.
        early: detector of keys that come too early; None if all count.
        back: True mentions in the help that Esc goes back; the caller binds the key.
    Attributes:
        commands: receiver of text that begins a command; None outside a chat.
    """

    def __init__(
        self,
        entries: Sequence[str],
        *,
        start: int | None = 0,
        many: bool = False,
        write: bool = False,
        early: Early | None = None,
        back: bool = False,
    ) -> None:
        self._back = back
        self._entries = entries
        self._early = early
        self._many = many
        self._write = write
        self._typed = ""
        self._lost = False
        self._writing = False
        self._text = Buffer(multiline=False, accept_handler=self._written)
        self.rows = Window(FormattedTextControl(self._visible_rows, focusable=True, show_cursor=False), wrap_lines=True)
        self._picked: Callable[[Picked], None] = lambda _: None
        self._focus: Callable[[Buffer | Window], None] = lambda _: None
        self.commands: Commands | None = None
        self.cursor = start
        self.ticked: set[int] = set()

    def panel(self, picked: Callable[[Picked], None], focus: Callable[[Buffer | Window], None]) -> HSplit:
        """Return the menu as part of an application, which must focus `rows`.

        Args:
            picked: callback for the selection.
            focus: callback that focuses a part of the menu.
        """
        self._picked, self._focus = picked, focus
        field = Window(BufferControl(self._text, input_processors=[BeforeInput(self._field_prompt)]), wrap_lines=True)
        below = ConditionalContainer(field, Condition(lambda: self._writing))
        hint = FormattedTextControl(lambda: [("class:hint", f"    {self.hint}")])
        foot = Window(hint, wrap_lines=True, dont_extend_height=True)
        return HSplit([self.rows, below, foot], key_bindings=self._keys())

    def application(self) -> Application[Picked]:
        """Return an application that results in the selection.

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
                focused_element=self.target,
            ),
            key_bindings=ends,
            erase_when_done=True,
        )
        if self._early is not None:
            application.after_render += self._wait_for_reading
        return application

    def _wait_for_reading(self, app: Application[Picked]) -> None:
        """Redraw once keys count, so that the help text appears. Runs after each rendering."""
        assert self._early is not None
        self._early.question_displayed()
        if self._early.remaining and app.loop is not None:
            app.loop.call_later(self._early.remaining, app.invalidate)

    @property
    def target(self) -> Buffer | Window:
        """Part that should have the focus: the list, or the text field while it is in use."""
        return self._text if self._writing else self.rows

    @property
    def _too_early(self) -> bool:
        return self._early is not None and self._early.remaining > 0

    # --- rows -------------------------------------------------------------------------------------------

    def _visible_rows(self) -> StyleAndTextTuples:
        rows: StyleAndTextTuples = []
        for position, entry in enumerate(self._entries):
            here = position == self.cursor
            tick = f"[{'x' if position in self.ticked else ' '}] " if self._many else ""
            number = f"{position + 1}. " if position < 9 else "   "
            if here:
                rows.append(("[SetCursorPosition]", ""))
            head = f"  {'>' if here else ' '} {number}{tick}"
            width = get_app().output.get_size().columns - len(head) - 1
            text = f"\n{' ' * len(head)}".join(wrapped(one_line(entry, 200), max(width, 20)))
            rows.append(("bold" if here else "", f"{head}{text}\n"))
        if rows and self._writing:  # the field is the next row
            rows[-1] = (rows[-1][0], rows[-1][1].rstrip("\n"))
        return rows

    @property
    def hint(self) -> str:
        """Help text below the list; "" until keys count."""
        if self._too_early:
            return ""
        if self._early is not None and self._early.dropped and not self._text.text:
            return f"{self._what_to_press}\n    (keys pressed before this line appeared are ignored)"
        return self._what_to_press

    @property
    def _what_to_press(self) -> str:
        if self._writing:
            return "enter sends it, an arrow up goes back to the list"
        if self._lost:
            typed = f"'{one_line(self._typed, 30)}' matches none of these: " if self._typed else ""
            return typed + "choose with the arrows or a number, then enter"
        if self._many:
            return "space ticks, enter accepts"
        more = "; or type your answer" if self._write else "; Esc goes back" if self._back else ""
        return f"arrows or a number, then enter{more}"

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
        """Handle typed or pasted text: a number, the start of an entry, or the start of a free text."""
        pasted = len(data) > 1 and not data.startswith("\x1b")
        if not (data.isprintable() or pasted) or not (self._typed or data.strip()):
            return  # an unbound key, or a blank before any text
        typed = self._typed + data
        if not self._typed and self._takes_commands and data[0] in _BEGIN_COMMANDS:
            self._begin_command(data)
            return
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

    # --- commands of the chat ---------------------------------------------------------------------------

    @property
    def _takes_commands(self) -> bool:
        return self.commands is not None and self.commands.is_free

    def _is_command(self, text: str) -> bool:
        return self.commands is not None and self.commands.is_command(text)

    def _begin_command(self, text: str) -> None:
        assert self.commands is not None
        self._text.reset()
        self.commands.begin(text)

    # --- a text of one's own ----------------------------------------------------------------------------

    def _field_prompt(self) -> str:
        return "    > "

    def _write_text(self, beginning: str) -> None:
        self.cursor, self._writing = len(self._entries) - 1, True
        self._focus(self._text)
        self._text.insert_text(beginning.replace("\r\n", "\n").replace("\r", "\n"))

    def _leave_text(self) -> None:
        self._writing = False
        self._focus(self.rows)

    def _written(self, text: Buffer) -> bool:
        if self._is_command(text.text.strip()):
            self._begin_command(text.text.strip())
        elif text.text.strip():
            self._picked(text.text)
        else:  # an empty text: back to the list
            self._leave_text()
        return True  # keep the text; the application erases it with everything else


ROWS = 10
"""Maximum number of visible entries."""


class FilterMenu:
    """Menu for long lists: typed words filter the entries, and Enter picks the highlighted one.

    No approvals are given here, so typed text may move the cursor: the cursor is always on a visible entry.

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
        """Return the row of the filter, at most `ROWS` entries around the cursor, and the row of the help."""
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
