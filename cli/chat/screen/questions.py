"""Questions above the input line: several may be open and answered in any order.

The text of each is printed into the scrollback when it arrives. The area above the input line has one line per
question, and the answers of the focused one. A question gets the focus from the user, or automatically if the input
line is empty and no key was pressed for a moment: text typed before that belongs to the input line and is never an
answer. A chat command typed at a question moves to the input line (`lend`). After the user has left a question it does
not take the focus again by itself: typed text goes to the input line until the user selects a question, or a new one
arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout import BufferControl, Container, HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.layout.processors import BeforeInput, PasswordProcessor, Processor

from ....protocol.kernel.questions import Question, understood
from ...render.choices import Value, filter_of, menu_of, value_of
from ...render.menu import Commands, FilterMenu, Menu, Picked
from ...render.text import one_line

CALM = 0.4
"""Seconds without a key after which a question may take the focus; also the minimum reading time."""


@dataclass
class ScreenQuestion:
    """Question on the screen.

    Attributes:
        number: its number on the screen.
        who: display name of the asking actor.
        about: description of each option.
        answered: callback for the answer.
        since: time of the first drawing; None before that, and after another program had the terminal.
        several: True if another question was open at the same time: its number is then displayed.
        left: True if the user has returned to the input line: it takes no focus by itself.
        filters: True allows to filter a long list of answers by typing.
        menu: list of answers, if there is one; `panel` displays it, or the field for the answer.
    """

    number: int
    question: Question
    who: str
    answered: Callable[[Value], None]
    since: float | None = None
    about: tuple[str, ...] = ()
    several: bool = False
    left: bool = False
    filters: bool = False
    panel: Container | None = None
    menu: Menu | FilterMenu | None = None


class ScreenQuestions:
    """Open questions and their focus.

    Args:
        input: window that has the focus when no question has it.
        commands: input line, for commands typed at a question.
        free: returns True if the input line is empty.
        clock: monotonic seconds.
        changed: callback that requests a redraw.
    """

    def __init__(
        self,
        input: Window,
        commands: Commands,
        free: Callable[[], bool],
        clock: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        self.open: list[ScreenQuestion] = []
        self.focused: ScreenQuestion | None = None
        self.last_key = 0.0
        self.layout: Layout
        self._input = input
        self._commands = commands
        self._free = free
        self._clock = clock
        self._changed = changed
        self._numbers = 0
        self._summary = Window(
            FormattedTextControl(self._lines, show_cursor=False), dont_extend_height=True, wrap_lines=False
        )
        self._nothing = Window(height=0)

    def add(
        self,
        question: Question,
        who: str,
        answered: Callable[[Value], None],
        about: tuple[str, ...] = (),
        *,
        filters: bool = False,
    ) -> ScreenQuestion:
        """Add a question."""
        self._numbers = self._numbers + 1 if self.open else 1
        asking = ScreenQuestion(self._numbers, question, who, answered, about=about, filters=filters)
        self.open.append(asking)
        for each in self.open:
            each.several = each.several or len(self.open) > 1
        self._changed()
        return asking

    def remove(self, asking: ScreenQuestion) -> None:
        """Remove a question that was answered or withdrawn."""
        if asking in self.open:
            self.open.remove(asking)
        if self.focused is asking:
            self._release()
        self._changed()

    def drawn(self) -> bool:
        """Record that all open questions are on the screen; return True if one of them is new there."""
        fresh = [asking for asking in self.open if asking.since is None]
        for asking in fresh:
            asking.since = self._clock()
        return bool(fresh)

    def hidden(self) -> None:
        """Release the focus while another program has the terminal: its input must not answer a question."""
        self._release()
        for asking in self.open:
            asking.since = None

    def container(self) -> Container:
        """Return the layout of the open questions."""
        if not self.open:
            return self._nothing
        if self.focused is None or self.focused.panel is None:
            return self._summary
        return HSplit([self._summary, self.focused.panel])

    @property
    def first(self) -> ScreenQuestion | None:
        """First question that may take the focus by itself."""
        return next((asking for asking in self.open if not asking.left), None)

    def wait(self) -> float | None:
        """Return the seconds until a question may take the focus; None if none will."""
        first = self.first
        if first is None or first.since is None or self.focused is not None or not self._free():
            return None
        return max(0.0, max(first.since, self.last_key) + CALM - self._clock())

    def next(self) -> None:
        """Focus the next question, and after the last one the input line."""
        shown = [asking for asking in self.open if asking.since is not None]
        at = shown.index(self.focused) + 1 if self.focused in shown else 0
        if at < len(shown):
            self.focus(shown[at])
        else:
            self.leave()

    def choose(self, number: int) -> None:
        """Focus the question with this number."""
        for asking in self.open:
            if asking.number == number and asking.since is not None:
                self.focus(asking)

    def focus(self, asking: ScreenQuestion) -> None:
        self.focused, asking.left = asking, False
        if asking.panel is None:
            asking.panel = self._panel(asking)
        self.layout.focus(asking.panel if asking.menu is None else asking.menu.target)
        # Otherwise keys find the list's bindings only after the next picture, and prompt_toolkit caches their absence
        # for good.
        self.layout.update_parents_relations()
        # prompt_toolkit keeps it for good that there were none

    def lend(self) -> None:
        """Focus the input line for a command; the question takes the focus again when the command is sent."""
        self._release()

    def leave(self) -> None:
        """Focus the input line; no open question takes the focus by itself any more."""
        for asking in self.open:
            asking.left = True
        self._release()

    # --- internal -------------------------------------------------------------------------------------------

    def _release(self) -> None:
        """Move the focus to the input line."""
        self.focused = None
        self.layout.focus(self._input)
        self._changed()

    def _panel(self, asking: ScreenQuestion) -> Container:
        question = asking.question
        many = filter_of(question, asking.about) if asking.filters else None
        if many is not None:
            asking.menu = many
            return many.panel(lambda at: self._answer(asking, question.options[int(at)]))
        menu = asking.menu = menu_of(question, about=asking.about)
        if menu is not None:
            menu.commands = self._commands

            def picked(what: Picked) -> None:
                self._answer(asking, value_of(question, what))

            return menu.panel(picked, lambda part: self.layout.focus(part))
        processors: list[Processor] = [BeforeInput("  > ")]
        if question.secret:
            processors.insert(0, PasswordProcessor())

        def written(buffer: Buffer) -> bool:
            if not question.secret and buffer.text.startswith(".") and self._commands.is_command(buffer.text):
                self._commands.begin(buffer.text)
                return False
            self._answer(asking, understood(question, buffer.text))
            return False

        buffer = Buffer(multiline=False, accept_handler=written)
        return Window(BufferControl(buffer, input_processors=processors), wrap_lines=True, dont_extend_height=True)

    def _answer(self, asking: ScreenQuestion, value: Value) -> None:
        self.remove(asking)
        asking.answered(value)

    def _lines(self) -> StyleAndTextTuples:
        lines: StyleAndTextTuples = []
        many = any(asking.several for asking in self.open)
        for asking in self.open:
            here = asking is self.focused
            number = f"[{asking.number}] " if many else ""
            text = one_line(asking.question.text.strip().partition("\n")[0], 100)
            if here:
                lines.append(("[SetCursorPosition]", ""))  # scrolls this line into view if there are more than fit
            lines.append(("bold" if here else "", f"{'>' if here else '?'} {number}{asking.who} asks: {text}\n"))
        if self.focused is None:
            keys = ["Tab"] if self._free() else []  # otherwise Tab completes the input line
            keys += ["Alt and its number"] if many else [] if keys else ["Alt-a"]
            how = f"{' or '.join(keys)} goes to {'one' if len(self.open) > 1 else 'it'}"
            lines.append(("class:hint", f"  {how}"))
        else:
            lines[-1] = (lines[-1][0], lines[-1][1].rstrip("\n"))
        return lines
