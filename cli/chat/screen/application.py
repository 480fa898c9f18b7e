"""Chat screen: live rows, questions, the input line with its prompts, completions.

The `ConversationHandler` controls the conversation: the screen reports the user's actions to it, and requests the live
rows. Everything happens on the asyncio loop of the screen's thread.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from prompt_toolkit.application import Application, create_app_session, in_terminal
from prompt_toolkit.application.current import get_app, set_app
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, Filter, has_focus, is_searching, vi_insert_mode
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText, to_formatted_text
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.bindings.auto_suggest import load_auto_suggest_bindings
from prompt_toolkit.key_binding.key_bindings import merge_key_bindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    DynamicContainer,
    Float,
    FloatContainer,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import AppendAutoSuggestion, HighlightIncrementalSearchProcessor
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from .field import DirectoryHistory, InputField
from .questions import ScreenQuestions
from .surface import Surface, TerminalOutput

if TYPE_CHECKING:
    from prompt_toolkit.key_binding.key_processor import KeyProcessor

    from ....protocol.control import chat

Do = Callable[[KeyPressEvent], object]

ESCAPE, MORE = 0.05, 0.3
"""Seconds to wait for the next key after Esc alone, and after other prefix keys.

Esc waits twice: the keys of Alt may arrive in two pieces, and may be prefixes themselves. Esc interrupts, so its wait
is short.
"""

RATE = 15.0
"""Pictures a second while a run works."""

LEAVES = 2.0
"""Seconds after an interrupt within which a second Ctrl-C leaves."""

TYPES = 5.0
"""Seconds after a key during which the cursor stays in the input."""

STOPS = 1.0
"""Seconds to wait for the process to stop on Ctrl-Z. It does not stop if no shell could continue it."""

_MENU_ROWS = 8
_STYLE = Style.from_dict(
    {
        "hint": "ansibrightblack",
        "auto-suggestion": "ansibrightblack",
        "completion-menu": "bg:default default",
        "completion-menu.completion": "bg:default default",
        "completion-menu.completion.current": "reverse",
        "completion-menu.meta.completion": "bg:default ansibrightblack",
        "completion-menu.meta.completion.current": "bg:default",
        "scrollbar.background": "bg:default",
        "scrollbar.button": "bg:ansibrightblack",
    }
)


class ConversationHandler(Protocol):
    """Interface of the controller behind the screen."""

    @property
    def busy(self) -> bool:
        """True while a run works."""

    def entered(self, shown: str, text: str) -> None:
        """Handle a line that the user sent; `shown` is its text on the screen, with folded pastes."""

    def interrupt(self) -> None:
        """Interrupt the current run."""

    def leave(self) -> None:
        """Leave the chat."""

    def show_thoughts(self) -> None:
        """Show or hide the model's reasoning."""

    def show_call(self) -> None:
        """Show the result of the last tool call."""

    def settled(self) -> list[str]:
        """Return lines that became final since the last call."""

    def rows(self, columns: int, room: int) -> list[str]:
        """Return the live rows."""

    def is_command(self, text: str) -> bool:
        """Return True if the text is a command of the chat."""

    async def complete(self, text: str) -> list[chat.Completion]:
        """Return completions for the end of the text."""

    async def edited(self, text: str) -> str | None:
        """Return the text after the user has edited it; the screen is cleared meanwhile."""


class ChatScreen:
    """Chat application.

    Args:
        source: key input.
        output: terminal.
        reflows, pushes: see `Surface`.
        shown: callback after the first picture.
    """

    def __init__(
        self,
        source: Input,
        output: TerminalOutput,
        *,
        reflows: bool = True,
        pushes: bool = False,
        shown: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.handler: ConversationHandler
        self.output = output
        self.left, self.right = "> ", ""
        self._source = source
        self._shown = shown
        self._clock = clock
        self._interrupted = float("-inf")
        self._wake = asyncio.Event()
        self._resumed = asyncio.Event()
        self._search = SearchToolbar(ignore_case=True)
        self.field = InputField(DirectoryHistory(None), self._complete)
        control = BufferControl(
            self.field.buffer,
            input_processors=[HighlightIncrementalSearchProcessor(), AppendAutoSuggestion()],
            search_buffer_control=self._search.control,
            preview_search=True,
        )
        self._input = Window(
            control,
            wrap_lines=True,
            dont_extend_height=True,
            height=Dimension(min=1),
            get_line_prefix=self._prefix,
        )
        self.questions = ScreenQuestions(self._input, self, lambda: self.is_free, clock, lambda: self.app.invalidate())
        self.app = self._application(_STYLE, reflows, pushes)

    def _application(self, style: Style, reflows: bool, pushes: bool) -> Application[int]:
        layout = Layout(self._layout(), focused_element=self._input)
        self.questions.layout = layout
        # Otherwise prompt_toolkit opens its own input and output of the process, a second reader of the same terminal.
        with create_app_session(input=self._source, output=self.output):
            app: Application[int] = Application(
                layout=layout,
                style=style,
                include_default_pygments_style=False,
                key_bindings=merge_key_bindings([load_auto_suggest_bindings(), bindings(self)]),
                erase_when_done=True,
                input=self._source,
                output=self.output,
                # No polling: `program` handles SIGWINCH in the main thread and calls `resized`.
                terminal_size_polling_interval=None,
            )
        app.renderer = self.surface = Surface(
            style,
            self.output,
            reflows=reflows,
            pushes=pushes,
            typing=self._typing,
            resized=self.resized,
            clock=self._clock,
        )
        # prompt_toolkit waits twice after Esc: `ttimeoutlen` for the bytes of one key, `timeoutlen` for a key sequence.
        app.ttimeoutlen = ESCAPE
        app.key_processor.before_key_press += self._pressed
        app.key_processor.after_key_press += wait_for_more
        return app

    def _layout(self) -> HSplit:
        right = Window(FormattedTextControl(lambda: ansi(self.right)), height=1, dont_extend_width=True)
        line = FloatContainer(
            self._input,
            [
                Float(
                    right=0,
                    top=0,
                    height=1,
                    hide_when_covering_content=True,
                    content=ConditionalContainer(right, Condition(lambda: bool(self.right))),
                )
            ],
        )
        head = Window(FormattedTextControl(lambda: ansi(self._head)), dont_extend_height=True)
        fenced = Window(FormattedTextControl([("class:hint", "  ::: ends the text")]), height=1)
        completing = Condition(lambda: self.field.buffer.complete_state is not None)
        menu = CompletionsMenu(max_height=_MENU_ROWS, scroll_offset=1)
        return HSplit(
            [
                DynamicContainer(self.questions.container),
                ConditionalContainer(head, Condition(lambda: bool(self._head))),
                line,
                self._search,
                ConditionalContainer(fenced, Condition(lambda: self.field.fenced)),
                ConditionalContainer(menu, completing),
            ]
        )

    # --- updates --------------------------------------------------------------------------------------------

    def configure(self, *, vi: bool, history: DirectoryHistory) -> None:
        """Apply the settings; the text in the input line is retained."""
        self.app.editing_mode = EditingMode.VI if vi else EditingMode.EMACS
        buffer = self.field.buffer
        # The file stores the text of pastes: a mark means nothing in another process.
        history.whole = self.field.pastes.whole
        buffer.history = history
        buffer.reset(buffer.document)  # the next picture loads the entries of this history
        self.app.invalidate()

    def prompts(self, left: str, right: str) -> None:
        """Set the prompts, as ANSI text."""
        if (left, right) != (self.left, self.right):
            self.left, self.right = left, right
            self.app.invalidate()

    def wake(self) -> None:
        """Request a redraw."""
        self._wake.set()

    def leave(self, code: int = 0) -> None:
        if self.app.is_running and not self.app.is_done:
            self.app.exit(result=code)

    def resized(self) -> None:
        """Handle a resize: redraw everything once the size is stable."""
        if self.app.is_running:
            # Dragging a window sends dozens of sizes; drawing in between leaves torn rows in the scrollback.
            calm = self.surface.resized()
            asyncio.get_running_loop().call_later(calm + 0.01, self._redraw)

    def _redraw(self) -> None:
        if self.app.is_running and self.surface.calm:
            self._whole()

    def _whole(self) -> None:
        if not self.app._running_in_terminal:  # noqa: SLF001 - as below
            self.surface.erase()
        self.app.invalidate()

    def continued(self) -> None:
        """Restore the terminal's modes after SIGCONT: the shell has changed them."""
        self._resumed.set()
        if self.app.is_running and not self.app._running_in_terminal:  # noqa: SLF001 - the library has no public name
            self._source.raw_mode().__enter__()  # the context manager around the application restores it
            self._whole()

    # --- lifecycle ------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Run the screen until the user leaves; return the exit code."""
        animation = asyncio.create_task(self._animate())
        animation.add_done_callback(self._animated)
        try:
            with create_app_session(input=self._source, output=self.output):
                self.app.after_render += self._first
                self.app.after_render += self._drawn
                return await self.app.run_async(handle_sigint=False, set_exception_handler=False)
        finally:
            animation.cancel()

    def _animated(self, animation: asyncio.Task[None]) -> None:
        """End the application with the exception of the animation task."""
        error = None if animation.cancelled() else animation.exception()
        if error is not None and self.app.is_running and not self.app.is_done:
            self.app.exit(exception=error)

    def _first(self, _: Application[int]) -> None:
        self.app.after_render -= self._first
        self._shown()

    def _drawn(self, _: Application[int]) -> None:
        if self.questions.drawn():
            self.wake()  # to wait until a question may take the focus

    async def _animate(self) -> None:
        while True:
            if not self.handler.busy:
                patience = self.questions.wait()
                with suppress(TimeoutError):  # a question may take the focus after that time
                    await asyncio.wait_for(self._wake.wait(), patience)
            self._wake.clear()
            self.draw()
            await asyncio.sleep(1 / RATE)

    def draw(self) -> None:
        """Update the screen."""
        if (first := self.questions.first) is not None and self.questions.wait() == 0:
            self.questions.focus(first)
            self.app.invalidate()
        columns, rows = self.output.size
        self.surface.append_final(self.handler.settled())
        self.surface.show(self.handler.rows(columns, max(rows // 4, 3)))
        if self.app.is_running and not self.app._running_in_terminal:  # noqa: SLF001 - as above
            self.surface.draw(self.app)

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Give the terminal to another program, in its usual mode, for the duration of the block."""
        # `in_terminal` acts on the current application, and this may run in a task without one.
        with set_app(self.app):
            async with in_terminal():
                self.questions.hidden()
                yield
        self.wake()

    # --- key actions ----------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Send the line, unless it is an incomplete `:::` text."""
        if self.field.fenced:
            self.field.buffer.newline()
            return
        if (mark := self.field.pastes.lost(self.field.buffer.text)) is not None:
            self.surface.append_final([f"(the text of {mark} is no longer stored: paste it again)"])
            self.draw()
            return
        shown, text = self.field.take()
        if text.strip():
            self._interrupted = float("-inf")  # the next Ctrl-C refers to this line
            self.handler.entered(shown, text)
            self.draw()

    def complete(self) -> None:
        self.field.complete()

    def accept_completion(self) -> None:
        """Accept the selected completion; without one, send the line."""
        buffer = self.field.buffer
        state = buffer.complete_state
        chosen = state is not None and state.current_completion is not None
        buffer.complete_state = None
        if not chosen:
            self.enter()

    def control_c(self) -> None:
        """Interrupt; a second Ctrl-C soon after leaves. If nothing runs, drop the line, or print how to leave."""
        now = self._clock()
        if now - self._interrupted < LEAVES:
            self.leave()
        elif self.handler.busy:
            self._interrupted = now
            self.handler.interrupt()
        elif self.questions.focused is not None:
            self.questions.leave()
        elif self.field.buffer.text:
            self.field.buffer.reset()
        else:
            self.surface.append_final(["(To leave, press Ctrl-D or type .exit)"])
            self.draw()

    def is_command(self, text: str) -> bool:
        """Return True if a text written as an answer is a command of the chat."""
        return self.handler.is_command(text)

    @property
    def is_free(self) -> bool:
        """True if the input line is empty."""
        return not self.field.buffer.text

    def begin(self, text: str) -> None:
        """Put the start of a command into the input line; a complete command is sent."""
        self.questions.lend()
        if self.is_command(text):
            self.handler.entered(text, text)
            self.draw()
        else:
            self.field.buffer.insert_text(text)

    def edit(self) -> None:
        """Open the line in the user's editor."""

        async def edited() -> None:
            async with self.aside():
                text = await self.handler.edited(self.field.pastes.whole(self.field.buffer.text))
            if text is not None:
                self.field.buffer.text = text.rstrip("\n")
                self.field.buffer.cursor_position = len(self.field.buffer.text)

        self.app.create_background_task(edited())

    def suspend(self) -> None:
        """Stop the process, as Ctrl-Z does in other programs."""

        async def stopped() -> None:
            async with self.aside():
                self._resumed.clear()
                # The whole group, as the terminal does: a shell pipeline (`callboard | tee`) must stop as one job.
                os.killpg(0, signal.SIGTSTP)
                # The signal may be delivered in another thread: this one may continue until then, and must not redraw.
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._resumed.wait(), STOPS)

        self.app.create_background_task(stopped())

    # --- internal -------------------------------------------------------------------------------------------

    @property
    def _head(self) -> str:
        """Lines of the left prompt except the last."""
        return self.left.rpartition("\n")[0]

    def _prefix(self, line: int, wrap: int) -> AnyFormattedText:
        if not line and not wrap:
            return ansi(self.left.rpartition("\n")[2])
        return "" if wrap else "  "

    def _typing(self) -> bool:
        """Return True if the cursor belongs in the input although a run works."""
        begun = bool(self.field.buffer.text) or not self.app.layout.has_focus(self._input)
        return begun and self._clock() < self.questions.last_key + TYPES

    def _pressed(self, _: object) -> None:
        self.questions.last_key = self._clock()
        if self.questions.open:
            self.wake()

    async def _complete(self, text: str) -> list[chat.Completion]:
        return await self.handler.complete(text)


def ansi(text: str) -> AnyFormattedText:
    """Convert ANSI text to prompt_toolkit's format. Cached, because prompts are drawn on each key."""
    found = _ANSI.get(text)
    if found is None:
        # Prompts with a clock differ in each picture, so the cache must not grow.
        if len(_ANSI) > 20:
            _ANSI.clear()
        found = _ANSI[text] = to_formatted_text(ANSI(text))
    return found


_ANSI: dict[str, AnyFormattedText] = {}


def wait_for_more(processor: KeyProcessor) -> None:
    """Set the timeout for the next key of a sequence."""
    alone = [press.key for press in processor.key_buffer] == [Keys.Escape]
    get_app().timeoutlen = ESCAPE if alone else MORE


def bindings(screen: ChatScreen) -> KeyBindings:
    """Return the key bindings of the chat."""
    keys = KeyBindings()
    field, questions = screen.field, screen.questions
    writing = has_focus(field.buffer) & ~is_searching
    empty = Condition(lambda: not field.buffer.text)
    answering = Condition(lambda: questions.focused is not None)
    asked = Condition(lambda: bool(questions.open))
    menu = Condition(lambda: field.buffer.complete_state is not None)
    busy = Condition(lambda: screen.handler.busy)
    leaves_mode = Condition(lambda: get_app().editing_mode == EditingMode.VI) & vi_insert_mode

    def add(*names: str, do: Do, when: Filter | bool = True) -> None:
        def pressed(event: KeyPressEvent) -> None:
            do(event)

        keys.add(*names, filter=when)(pressed)

    add("enter", when=writing & menu, do=lambda _: screen.accept_completion())
    add("enter", when=writing & ~menu, do=lambda _: screen.enter())
    add("escape", "enter", when=writing, do=lambda _: field.buffer.newline())
    # Ctrl-J; Enter is c-m.
    add("c-j", when=writing, do=lambda _: field.buffer.newline())
    add("tab", when=writing & ~empty, do=lambda _: screen.complete())
    add("tab", when=writing & empty & ~asked, do=lambda _: screen.complete())
    add("tab", when=writing & empty & asked, do=lambda _: questions.next())
    add("tab", when=answering, do=lambda _: questions.next())
    add("escape", "a", when=asked, do=lambda _: questions.next())
    for digit in "123456789":
        # Terminals send Alt-1 as Esc 1.
        add("escape", digit, when=asked, do=lambda event: questions.choose(int(event.data[-1:])))
    add("escape", when=writing & menu, do=lambda _: field.buffer.cancel_completion())
    add("escape", when=answering, do=lambda _: questions.leave())
    add("escape", when=writing & ~menu & busy & ~leaves_mode, do=lambda _: screen.handler.interrupt())
    add("c-c", do=lambda _: screen.control_c())
    add("c-d", when=writing & empty, do=lambda _: screen.handler.leave())
    add("c-d", when=answering, do=lambda _: questions.leave())
    add("c-o", when=writing, do=lambda _: screen.edit())
    add("c-z", do=lambda _: screen.suspend())
    add("c-t", do=lambda _: screen.handler.show_thoughts())
    add("f2", do=lambda _: screen.handler.show_call())
    add("escape", "o", do=lambda _: screen.handler.show_call())
    add(Keys.BracketedPaste, when=writing, do=lambda event: field.paste(event.data))
    return keys
