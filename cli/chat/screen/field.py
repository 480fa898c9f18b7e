"""Input field: one line, or several inside `:::`, by Alt-Enter or pasted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import History

from ....protocol.words import is_open
from .paste import Pastes

if TYPE_CHECKING:
    from ....protocol.control import chat

Complete: TypeAlias = "Callable[[str], Awaitable[list[chat.Completion]]]"


class InputField:
    """Input buffer with pastes, history and completion.

    Args:
        history: lines sent before.
        complete: returns completions for the end of a text.
    """

    def __init__(self, history: History, complete: Complete) -> None:
        self.pastes = Pastes()
        self._completions = _Completions(complete, self._loaded)
        self._waiting_tab: str | None = None
        self.buffer = Buffer(
            name="line",
            multiline=True,
            history=history,
            completer=self._completions,
            complete_while_typing=Condition(self._completes),
            auto_suggest=AutoSuggestFromHistory(),
        )

    @property
    def fenced(self) -> bool:
        """True if a text of several lines has begun with `:::` and not ended."""
        return is_open(self.buffer.text)

    def complete(self) -> None:
        """Complete the line, or select the next completion in the menu.

        While completions are loading, which typing starts, prompt_toolkit drops the key: it runs one completion at a
        time. Such a Tab takes effect when they have arrived, if the text is still the same.
        """
        if self.buffer.complete_state is not None and not self._completions.loading:
            self.buffer.complete_next()
            return
        self._waiting_tab = self.buffer.document.text_before_cursor
        self.buffer.start_completion(insert_common_part=True)

    def _loaded(self, requested: bool) -> bool:
        """Start the completion that a Tab has waited for; return True if it starts."""
        text, self._waiting_tab = self._waiting_tab, None
        if requested or text != self.buffer.document.text_before_cursor:
            return False
        self.buffer.complete_state = None
        self.buffer.start_completion(insert_common_part=True)
        return True

    def paste(self, text: str) -> None:
        """Insert a pasted text, folded if it is large."""
        self.buffer.insert_text(self.pastes.folded(text))

    def take(self) -> tuple[str, str]:
        """Clear the field and add it to the history; return its visible text, and the text with pastes expanded."""
        shown = self.buffer.text
        self.buffer.append_to_history()
        self.buffer.reset()
        whole = self.pastes.whole(shown.strip())
        self.pastes.clear()
        return shown, whole

    def _completes(self) -> bool:
        text = self.buffer.document.text_before_cursor
        return text.startswith((".", "/")) or text[-200:].rpartition(" ")[2].startswith("@")


class _Completions(Completer):
    """Completions from the server.

    Attributes:
        loading: True while a list is being fetched.
    """

    def __init__(self, complete: Complete, loaded: Callable[[bool], bool]) -> None:
        self.loading = False
        self._complete = complete
        self._loaded = loaded
        self._last: tuple[str, list[chat.Completion]] = ("", [])

    def get_completions(self, _document: Document, _complete_event: CompleteEvent) -> Iterable[Completion]:
        return ()  # asynchronous only: see below

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        text = document.text_before_cursor
        (before, items), self._last = self._last, ("", [])
        if not (complete_event.completion_requested and items and before == text):
            self.loading = True
            try:
                items = await self._complete(text)
            finally:
                self.loading = False
                # It runs after prompt_toolkit has processed the list: nothing else suspends until then.
                asyncio.get_running_loop().call_soon(self._after, complete_event.completion_requested)
            self._last = text, items
        for item in items:
            yield Completion(item.text, start_position=min(item.start - len(text), 0), display_meta=item.about)

    def _after(self, requested: bool) -> None:
        # If the text has grown meanwhile, a list for the new text is already loading.
        if not self.loading and not self._loaded(requested):
            self._last = "", []
