"""Input field: one line, or several inside `:::`, by Alt-Enter or pasted; with its pastes and its history.

A large paste is folded to `[pasted 1.0 MB #1]` in the input, and expanded when the line is sent. A mark is valid only
in the process that created it. The history file stores the text itself, so that a mark from another process is never
expanded.

The history of a directory is a bounded private file with one JSON string per line. Answers to questions are not stored,
and secrets from the vault are removed before a line is stored.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import History

from ....actors.io.directories import private_directory, state_dir
from ....actors.io.secret_redaction import hidden
from ....protocol.control.chat import is_open

if TYPE_CHECKING:
    from ....protocol.control import chat


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


PASTE_CHARACTERS = 4_000
PASTE_LINES = 12
"""Largest paste, in characters and in lines, that is inserted unfolded."""

PASTES_STORED = 64_000_000
"""Characters of pastes that are cached for recalled lines. The newest is cached whatever its size."""

_MARK = re.compile(r"\[pasted [0-9.]+ [kM]?B #\d+\]")


class Pastes:
    """Folded pastes of the input line and of recalled lines."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._dropped: set[str] = set()
        self._count = 0

    def folded(self, text: str) -> str:
        """Return the text to insert for a paste: the text itself, or a mark."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if len(text) <= PASTE_CHARACTERS and text.count("\n") < PASTE_LINES:
            return text
        self._count += 1
        mark = f"[pasted {_size(len(text.encode('utf-8', 'replace')))} #{self._count}]"
        self._texts[mark] = text
        return mark

    def whole(self, line: str) -> str:
        """Expand the marks in a line."""
        return _MARK.sub(lambda found: self._texts.get(found[0], found[0]), line)

    def lost(self, line: str) -> str | None:
        """Return a mark of the line with a paste that was dropped, or None."""
        return next((mark for mark in _MARK.findall(line) if mark in self._dropped), None)

    def clear(self) -> None:
        """Drop the oldest pastes above the limit after a line was sent. The rest is retained for recalled lines."""
        size = sum(map(len, self._texts.values()))
        while size > PASTES_STORED and len(self._texts) > 1:
            mark = next(iter(self._texts))
            size -= len(self._texts.pop(mark))
            self._dropped.add(mark)


def _size(count: int) -> str:
    if count >= 1_000_000:
        return f"{count / 1_000_000:.1f} MB"
    return f"{count / 1_000:.1f} kB" if count >= 1_000 else f"{count} B"


Complete: TypeAlias = "Callable[[str], Awaitable[list[chat.Completion]]]"


HISTORY_LINES = 1_000
"""Maximum number of lines."""

LONGEST_STORED = 20_000
"""Longest line that is stored, in characters."""


def history_file(environ: Mapping[str, str], directory: str) -> Path:
    """Return the path of the history for a working directory."""
    name = hashlib.sha256(os.path.realpath(directory).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return state_dir(environ) / "history" / f"{name}.jsonl"


class DirectoryHistory(History):
    """History of one directory.

    Args:
        file: None stores nothing.

    Attributes:
        whole: returns a line with its pastes expanded, as the file stores it.
    """

    def __init__(self, file: Path | None) -> None:
        super().__init__()
        self._file = file
        self._count = 0
        self.whole: Callable[[str], str] = str

    def load_history_strings(self) -> Iterable[str]:
        """Return the stored lines, newest first."""
        lines = self._read()
        self._count = len(lines)
        if len(lines) > 2 * HISTORY_LINES:
            self._rewrite(lines[-HISTORY_LINES:])
        return reversed(lines[-HISTORY_LINES:])

    def store_string(self, string: str) -> None:
        """Append a line. Write errors are ignored: the line is then lost with the process."""
        if self._file is None or string.startswith(" ") or len(string := self.whole(string)) > LONGEST_STORED:
            return
        try:
            private_directory(self._file.parent)
            handle = os.open(self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                # A process that was killed may have left an incomplete last line.
                torn = (size := os.fstat(handle).st_size) and os.pread(handle, 1, size - 1) != b"\n"
                file.write(("\n" if torn else "") + json.dumps(hidden(string)) + "\n")
        except OSError:
            return

    def _read(self) -> list[str]:
        if self._file is None:
            return []
        try:
            raw = self._file.read_text("utf-8", "replace").splitlines()
        except OSError:
            return []
        lines: list[str] = []
        for text in raw:
            try:
                line = json.loads(text)
            except ValueError:  # an incomplete line of a killed process
                continue
            if isinstance(line, str):
                lines.append(line)
        return lines

    def _rewrite(self, lines: list[str]) -> None:
        assert self._file is not None
        new = self._file.with_suffix(f".{os.getpid()}")
        try:
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
            new.replace(self._file)
        except OSError:
            new.unlink(missing_ok=True)
