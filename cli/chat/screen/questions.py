"""Questions above the input line: several at once, answered in any order.

The text of each is written into the scrollback when it comes; here stand one line for each, and the answers of the one
that has the keys. A question gets the keys when the person gives them to it, or by itself when nothing is written in
the input line and no key was pressed for a moment: what is typed before that is text of the input line, never an
answer. One that the person has left takes them by itself no more: what is typed then is for the input line, until the
person goes to a question, or a new one comes.
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
from ...render.filter_menu import FilterMenu
from ...render.menu import Menu, Picked
from ...render.text import one_line

CALM = 0.4
"""Seconds without a key after which a question may take the keys by itself; those in which it can be read, too."""


@dataclass
class Asking:
    """A question on the screen.

    Attributes:
        number: by which it is known here.
        who: who asks.
        about: a text for each option.
        answered: called with the answer.
        since: when it was first drawn; None before that, and after another program had the terminal.
        several: whether another was open while it was: then its number is shown.
        left: whether the person has gone back to the input line while it was open: it takes no keys by itself.
        filters: whether what is typed may look for an answer in a long list of them.
        menu: its answers, where there is a list of them; `panel` is what shows them, or the field for its answer.
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


class Questions:
    """See the module.

    Args:
        input: gets the keys when no question has them.
        free: whether nothing is written there.
        clock: seconds that only grow.
        changed: called when there is another picture to draw.
    """

    def __init__(
        self, input: Window, free: Callable[[], bool], clock: Callable[[], float], changed: Callable[[], None]
    ) -> None:
        self.open: list[Asking] = []
        self.focused: Asking | None = None
        self.last_key = 0.0
        self.layout: Layout
        self._input = input
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
    ) -> Asking:
        """A question was asked."""
        self._numbers = self._numbers + 1 if self.open else 1
        asking = Asking(self._numbers, question, who, answered, about=about, filters=filters)
        self.open.append(asking)
        for each in self.open:
            each.several = each.several or len(self.open) > 1
        self._changed()
        return asking

    def remove(self, asking: Asking) -> None:
        """It is answered, or withdrawn."""
        if asking in self.open:
            self.open.remove(asking)
        if self.focused is asking:
            self._release()
        self._changed()

    def drawn(self) -> bool:
        """A picture with all open questions stands; whether it is the first one of any."""
        fresh = [asking for asking in self.open if asking.since is None]
        for asking in fresh:
            asking.since = self._clock()
        return bool(fresh)

    def hidden(self) -> None:
        """Another program has the terminal: what is typed there is no answer."""
        self._release()
        for asking in self.open:
            asking.since = None

    def container(self) -> Container:
        """What stands on the screen now."""
        if not self.open:
            return self._nothing
        if self.focused is None or self.focused.panel is None:
            return self._summary
        return HSplit([self._summary, self.focused.panel])

    @property
    def first(self) -> Asking | None:
        """The question that takes the keys by itself, when it may."""
        return next((asking for asking in self.open if not asking.left), None)

    def wait(self) -> float | None:
        """Seconds until a question may take the keys by itself; None if none will."""
        first = self.first
        if first is None or first.since is None or self.focused is not None or not self._free():
            return None
        return max(0.0, max(first.since, self.last_key) + CALM - self._clock())

    def next(self) -> None:
        """Gives the keys to the question after the one that has them, and after the last to the input line."""
        shown = [asking for asking in self.open if asking.since is not None]
        at = shown.index(self.focused) + 1 if self.focused in shown else 0
        if at < len(shown):
            self.focus(shown[at])
        else:
            self.leave()

    def choose(self, number: int) -> None:
        """Gives the keys to the question of this number."""
        for asking in self.open:
            if asking.number == number and asking.since is not None:
                self.focus(asking)

    def focus(self, asking: Asking) -> None:
        """Gives the keys to a question."""
        self.focused, asking.left = asking, False
        if asking.panel is None:
            asking.panel = self._panel(asking)
        self.layout.focus(asking.panel if asking.menu is None else asking.menu.target)
        self.layout.update_parents_relations()  # else keys find the list's bindings only after the next picture, and
        # prompt_toolkit keeps it for good that there were none

    def leave(self) -> None:
        """The person goes back to the input line, for good."""
        for asking in self.open:
            asking.left = True
        self._release()

    # --- inside ---------------------------------------------------------------------------------------------

    def _release(self) -> None:
        """Gives the keys back to the input line."""
        self.focused = None
        self.layout.focus(self._input)
        self._changed()

    def _panel(self, asking: Asking) -> Container:
        question = asking.question
        many = filter_of(question, asking.about) if asking.filters else None
        if many is not None:
            asking.menu = many
            return many.panel(lambda at: self._answer(asking, question.options[int(at)]))
        menu = asking.menu = menu_of(question, about=asking.about)
        if menu is not None:

            def picked(what: Picked) -> None:
                self._answer(asking, value_of(question, what))

            return menu.panel(picked, lambda part: self.layout.focus(part))
        processors: list[Processor] = [BeforeInput("  > ")]
        if question.secret:
            processors.insert(0, PasswordProcessor())

        def written(buffer: Buffer) -> bool:
            self._answer(asking, understood(question, buffer.text))
            return False

        buffer = Buffer(multiline=False, accept_handler=written)
        return Window(BufferControl(buffer, input_processors=processors), wrap_lines=True, dont_extend_height=True)

    def _answer(self, asking: Asking, value: Value) -> None:
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
                lines.append(("[SetCursorPosition]", ""))  # where there are more than have room, it is seen
            lines.append(("bold" if here else "", f"{'>' if here else '?'} {number}{asking.who} asks: {text}\n"))
        if self.focused is None:
            keys = ["Tab"] if self._free() else []  # else it completes what is written
            keys += ["Alt and its number"] if many else [] if keys else ["Alt-a"]
            how = f"{' or '.join(keys)} goes to {'one' if len(self.open) > 1 else 'it'}"
            lines.append(("class:hint", f"  {how}"))
        else:
            lines[-1] = (lines[-1][0], lines[-1][1].rstrip("\n"))
        return lines
