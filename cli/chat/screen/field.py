"""The line that is being written: one, or several within `:::`, by Alt-Enter or pasted."""

from __future__ import annotations

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


class Field:
    """See the module.

    Args:
        history: what was sent before.
        complete: what may stand at the end of a text.
    """

    def __init__(self, history: History, complete: Complete) -> None:
        self.pastes = Pastes()
        self.buffer = Buffer(
            name="line",
            multiline=True,
            history=history,
            completer=_Completions(complete),
            complete_while_typing=Condition(self._completes),
            auto_suggest=AutoSuggestFromHistory(),
        )

    @property
    def fenced(self) -> bool:
        """Whether a text of several lines is begun with `:::` and not ended."""
        return is_open(self.buffer.text)

    def paste(self, text: str) -> None:
        """What was pasted."""
        self.buffer.insert_text(self.pastes.folded(text))

    def take(self) -> tuple[str, str]:
        """The line as it is seen, and with its pastes as a whole; the field is empty then, and history has it."""
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
    def __init__(self, complete: Complete) -> None:
        self._complete = complete

    def get_completions(self, _document: Document, _complete_event: CompleteEvent) -> Iterable[Completion]:
        return ()  # they come from the server: see below

    async def get_completions_async(
        self, document: Document, _complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        text = document.text_before_cursor
        for item in await self._complete(text):
            yield Completion(item.text, start_position=min(item.start - len(text), 0), display_meta=item.about)
