"""The chat's screen: live rows, questions, the input line with its prompts, completions.

The `Handler` leads the conversation: the screen tells it what the person does, and asks it for the live
rows. All of it happens on one asyncio loop, that of the screen's thread.
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
from prompt_toolkit.application.current import set_app
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, AnyFormattedText, to_formatted_text
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding.bindings.auto_suggest import load_auto_suggest_bindings
from prompt_toolkit.key_binding.key_bindings import merge_key_bindings
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

from .field import Field
from .history import DirectoryHistory
from .keys import ESCAPE, bindings, wait_for_more
from .output import TerminalOutput
from .questions import Questions
from .surface import Surface

if TYPE_CHECKING:
    from ....protocol.control import chat

RATE = 15.0
"""Pictures a second while a run works."""

LEAVES = 2.0
"""Seconds after an interrupt within which a second Ctrl-C leaves."""

TYPES = 5.0
"""Seconds after a key for which the cursor stays where keys go."""

STOPS = 1.0
"""Seconds within which the process has stopped on Ctrl-Z. It does not where no shell could have it go on."""

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


class Handler(Protocol):
    """Who leads the conversation."""

    @property
    def busy(self) -> bool:
        """Whether a run works."""

    def entered(self, shown: str, text: str) -> None:
        """The person has sent a line, which looked like `shown`."""

    def interrupt(self) -> None:
        """The person wants the run to stop."""

    def leave(self) -> None:
        """The person wants to go."""

    def show_thoughts(self) -> None:
        """The person wants to see what the model has thought."""

    def show_call(self) -> None:
        """The person wants to see what the last call came to."""

    def settled(self) -> list[str]:
        """Lines that are final since the last picture."""

    def rows(self, columns: int, room: int) -> list[str]:
        """The live rows."""

    async def complete(self, text: str) -> list[chat.Completion]:
        """What may stand at the end of the text."""

    async def edited(self, text: str) -> str | None:
        """The text as the person's editor leaves it; the screen is aside meanwhile."""


class ChatScreen:
    """See the module.

    Args:
        source: where keys come from.
        output: the terminal.
        reflows, pushes: see `Surface`.
        shown: called once the first picture stands.
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
        self.handler: Handler
        self.output = output
        self.left, self.right = "> ", ""
        self._source = source
        self._shown = shown
        self._clock = clock
        self._interrupted = float("-inf")
        self._wake = asyncio.Event()
        self._resumed = asyncio.Event()
        self._search = SearchToolbar(ignore_case=True)
        self.field = Field(DirectoryHistory(None), self._complete)
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
        self.questions = Questions(
            self._input, lambda: not self.field.buffer.text, clock, lambda: self.app.invalidate()
        )
        self.app = self._application(_STYLE, reflows, pushes)

    def _application(self, style: Style, reflows: bool, pushes: bool) -> Application[int]:
        layout = Layout(self._layout(), focused_element=self._input)
        self.questions.layout = layout
        with create_app_session(input=self._source, output=self.output):
            app: Application[int] = Application(
                layout=layout,
                style=style,
                include_default_pygments_style=False,
                key_bindings=merge_key_bindings([load_auto_suggest_bindings(), bindings(self)]),
                erase_when_done=True,
                input=self._source,
                output=self.output,
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

    # --- what others tell it --------------------------------------------------------------------------------

    def configure(self, *, vi: bool, history: DirectoryHistory) -> None:
        """What the settings say; the text that is being written stays."""
        self.app.editing_mode = EditingMode.VI if vi else EditingMode.EMACS
        buffer = self.field.buffer
        history.whole = self.field.pastes.whole
        buffer.history = history
        buffer.reset(buffer.document)  # the next picture loads what this history has
        self.app.invalidate()

    def prompts(self, left: str, right: str) -> None:
        """The prompts are these now, as ANSI text."""
        if (left, right) != (self.left, self.right):
            self.left, self.right = left, right
            self.app.invalidate()

    def wake(self) -> None:
        """Something has changed that is to be seen."""
        self._wake.set()

    def leave(self, code: int = 0) -> None:
        """Ends the application."""
        if self.app.is_running and not self.app.is_done:
            self.app.exit(result=code)

    def resized(self) -> None:
        """The terminal has another size: all is drawn anew, once it keeps that."""
        if self.app.is_running:
            calm = self.surface.resized()
            asyncio.get_running_loop().call_later(calm + 0.01, self._anew)

    def _anew(self) -> None:
        if self.app.is_running and self.surface.calm:
            self._whole()

    def _whole(self) -> None:
        if not self.app._running_in_terminal:  # noqa: SLF001 - as below
            self.surface.erase()
        self.app.invalidate()

    def continued(self) -> None:
        """The process was stopped and goes on: the terminal's modes are the shell's."""
        self._resumed.set()
        if self.app.is_running and not self.app._running_in_terminal:  # noqa: SLF001 - the library has no other word for it
            self._source.raw_mode().__enter__()  # left by the one that is around the application
            self._whole()

    # --- its life -------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Shows it until the person leaves; the exit code."""
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
        """Ends the application with what the pictures have failed with."""
        error = None if animation.cancelled() else animation.exception()
        if error is not None and self.app.is_running and not self.app.is_done:
            self.app.exit(exception=error)

    def _first(self, _: Application[int]) -> None:
        self.app.after_render -= self._first
        self._shown()

    def _drawn(self, _: Application[int]) -> None:
        if self.questions.drawn():
            self.wake()  # to wait until it may take the keys

    async def _animate(self) -> None:
        while True:
            if not self.handler.busy:
                patience = self.questions.wait()
                with suppress(TimeoutError):  # a question may take the keys then
                    await asyncio.wait_for(self._wake.wait(), patience)
            self._wake.clear()
            self.draw()
            await asyncio.sleep(1 / RATE)

    def draw(self) -> None:
        """Brings the screen up to date."""
        if (first := self.questions.first) is not None and self.questions.wait() == 0:
            self.questions.focus(first)
            self.app.invalidate()
        columns, rows = self.output.size
        self.surface.settle(self.handler.settled())
        self.surface.show(self.handler.rows(columns, max(rows // 4, 3)))
        if self.app.is_running and not self.app._running_in_terminal:  # noqa: SLF001 - as above
            self.surface.draw(self.app)

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Leaves the terminal to others, in its usual mode, for the length of the block."""
        with set_app(self.app):
            async with in_terminal():
                self.questions.hidden()
                yield
        self.wake()

    # --- what keys do ---------------------------------------------------------------------------------------

    def enter(self) -> None:
        """The line is to be sent, unless it is not complete."""
        if self.field.fenced:
            self.field.buffer.newline()
            return
        if (mark := self.field.pastes.lost(self.field.buffer.text)) is not None:
            self.surface.settle([f"(the text of {mark} is not kept any more: paste it again)"])
            self.draw()
            return
        shown, text = self.field.take()
        if text.strip():
            self._interrupted = float("-inf")  # the next Ctrl-C is for this line
            self.handler.entered(shown, text)
            self.draw()

    def complete(self) -> None:
        """Begins to complete, or goes to the next completion."""
        self.field.complete()

    def accept_completion(self) -> None:
        """Takes the completion that was gone to; without one, sends the line."""
        buffer = self.field.buffer
        state = buffer.complete_state
        chosen = state is not None and state.current_completion is not None
        buffer.complete_state = None
        if not chosen:
            self.enter()

    def control_c(self) -> None:
        """Interrupts; a second one soon after leaves. Where nothing runs, drops the line, or says how to leave."""
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
            self.surface.settle(["(To leave, press Ctrl-D or type .exit)"])
            self.draw()

    def edit(self) -> None:
        """Opens the line in the person's editor."""

        async def edited() -> None:
            async with self.aside():
                text = await self.handler.edited(self.field.pastes.whole(self.field.buffer.text))
            if text is not None:
                self.field.buffer.text = text.rstrip("\n")
                self.field.buffer.cursor_position = len(self.field.buffer.text)

        self.app.create_background_task(edited())

    def suspend(self) -> None:
        """Stops the process, as Ctrl-Z does elsewhere."""

        async def stopped() -> None:
            async with self.aside():
                self._resumed.clear()
                os.killpg(0, signal.SIGTSTP)
                # until another thread has taken the signal this one may go on, and must not draw all again
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._resumed.wait(), STOPS)

        self.app.create_background_task(stopped())

    # --- inside ---------------------------------------------------------------------------------------------

    @property
    def _head(self) -> str:
        """The lines of the left prompt before its last one."""
        return self.left.rpartition("\n")[0]

    def _prefix(self, line: int, wrap: int) -> AnyFormattedText:
        if not line and not wrap:
            return ansi(self.left.rpartition("\n")[2])
        return "" if wrap else "  "

    def _typing(self) -> bool:
        """Whether the cursor belongs where keys go, while a run works."""
        begun = bool(self.field.buffer.text) or not self.app.layout.has_focus(self._input)
        return begun and self._clock() < self.questions.last_key + TYPES

    def _pressed(self, _: object) -> None:
        self.questions.last_key = self._clock()
        if self.questions.open:
            self.wake()

    async def _complete(self, text: str) -> list[chat.Completion]:
        return await self.handler.complete(text)


def ansi(text: str) -> AnyFormattedText:
    """ANSI text as prompt_toolkit has it; kept, since prompts are shown with each key."""
    found = _ANSI.get(text)
    if found is None:
        if len(_ANSI) > 20:
            _ANSI.clear()
        found = _ANSI[text] = to_formatted_text(ANSI(text))
    return found


_ANSI: dict[str, AnyFormattedText] = {}
