"""Key bindings of the chat, in addition to prompt_toolkit's own (emacs or vi)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prompt_toolkit.application.current import get_app
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition, Filter, has_focus, is_searching, vi_insert_mode
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

if TYPE_CHECKING:
    from prompt_toolkit.key_binding.key_processor import KeyProcessor

    from .application import ChatScreen

Do = Callable[[KeyPressEvent], object]


ESCAPE, MORE = 0.05, 0.3
"""Seconds to wait for the next key after Esc alone, and after other prefix keys.

Esc waits twice: the keys of Alt may arrive in two pieces, and may be prefixes themselves. Esc interrupts, so its wait
is short.
"""


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
    add("c-j", when=writing, do=lambda _: field.buffer.newline())
    add("tab", when=writing & ~empty, do=lambda _: screen.complete())
    add("tab", when=writing & empty & ~asked, do=lambda _: screen.complete())
    add("tab", when=writing & empty & asked, do=lambda _: questions.next())
    add("tab", when=answering, do=lambda _: questions.next())
    add("escape", "a", when=asked, do=lambda _: questions.next())
    for digit in "123456789":
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
