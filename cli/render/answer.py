"""Display of an agent's answer: Markdown that is drawn while the model streams it.

`AnswerDisplay` wraps the progress display of a run and draws the root agent's text on stdout. While text streams, the
tree is off the screen, its lines wait, and other stderr lines appear above the growing block. A question ends the
drawing until it is answered. `AnswerResult` writes at the end the text that was not drawn: the result of a graph, or a
whole answer (`--no-stream`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

import msgspec
import trio

from ...protocol import events as ev
from ...protocol.errors import ConfigError
from ...protocol.events import TERMINAL, Event
from ...protocol.outcome import Outcome
from .progress import ProgressDisplay
from .result import TextResult
from .text import redrawable

if TYPE_CHECKING:
    from .markdown.stream import MarkdownStream
    from .markdown.terminal import LiveText
    from .markdown.theme import Theme

_ENDS = (ev.LlmResponse, ev.LlmFailed, ev.LlmRetry, ev.LlmFallback)
"""Events that end the text of a model request."""


class AnswerStyle(msgspec.Struct, frozen=True):
    """Rendering options of answers, from the settings `highlight`, `wrap`, `wrap_code`, `theme` and `light_theme`.

    Attributes:
        theme: None prints the text as it was written.
        wrap: column at which text is broken (see `MarkdownStream`).
    """

    theme: Theme | None = None
    wrap: int | None = 0
    wrap_code: bool = False

    def renderer(self, columns: int) -> MarkdownStream:
        """Return a renderer for one answer."""
        from .markdown.stream import MarkdownStream  # imported lazily: a run that writes to a file needs no renderer

        plain = self.theme is None
        return MarkdownStream(columns, self.theme, wrap=self.wrap, wrap_code=self.wrap_code, colour=not plain)


def style_of(settings: Mapping[str, Any], directory: Path, stream: TextIO, environ: Mapping[str, str]) -> AnswerStyle:
    """Return the rendering options for this stream.

    Raises:
        ConfigError: a setting has an invalid value.
    """
    wrap = _wrap(settings.get("wrap"))
    encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "")
    if settings.get("highlight") is False or environ.get("NO_COLOR") or not redrawable(stream) or encoding[:3] != "utf":
        return AnswerStyle(None, wrap)
    from .markdown.theme import chosen

    return AnswerStyle(chosen(settings, directory, environ), wrap, bool(settings.get("wrap_code")))


def _wrap(said: object) -> int | None:
    text = str("auto" if said is None else said).strip().lower()
    if text in ("no", "false", "none"):
        return None
    if text in ("auto", "yes", "true", ""):
        return 0
    if text.isdecimal() and int(text[:6]) > 0:
        return int(text[:6])
    raise ConfigError(f"`wrap: {said}` can't be used\n    expected: no, auto, or the maximum number of columns")


class AnswerDisplay(ProgressDisplay):
    """Display that draws the root agent's text and passes everything else to another display.

    Args:
        inner: progress display.
        stream: terminal for the answer.
        streams: True draws the answer while it grows.
    """

    def __init__(self, inner: ProgressDisplay, stream: TextIO, *, streams: bool) -> None:
        self._inner = inner
        self._stream = stream
        self._streams = streams
        self._stderr = sys.stderr
        self._live: LiveText | None = None
        self._stage = ExitStack()
        self._begun = trio.Event()
        self._is_agent = False
        self._home: str | None = None
        self._said: list[str] = []
        self.look = AnswerStyle()

    def begin(self, look: AnswerStyle) -> None:
        """Forget the previous run and set the rendering options of the next one; call it before its first event."""
        self.look = look
        self._is_agent, self._home, self._said = False, None, []
        if self._streams:
            from .markdown.terminal import LiveText

            redraws = redrawable(self._stream)
            self._live = LiveText(self._stream, look.renderer, os.environ, redraws=redraws)

    def was_drawn(self, output: str) -> bool:
        """Return True if the output was already drawn: it is all of the agent's text, or its last part.

        False if a part could not be written. The caller then writes the output again, and a persistent error is raised
        there.
        """
        if self._live is not None and self._live.broken:
            return False
        # Whitespace differs between the drawn pieces and the result, so compare words.
        words = output.split()
        return bool(self._said) and words in (" ".join(self._said).split(), self._said[-1].split())

    # --- the display that this one stands before --------------------------------------------------------

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._finish()
        self._inner.__exit__(*exc)

    def on_event(self, event: Event) -> None:
        """Draw the event and pass it to the inner display.

        For the first piece of an answer the inner display comes first: its line on the reasoning time must precede the
        answer.
        """
        begins = type(event.data) is ev.LlmDelta and self._live is not None and not self._live.under_way
        if begins:
            self._inner.on_event(event)
        if self._live is not None:
            self._hear(event, self._live)
        if not begins:
            self._inner.on_event(event)

    def note(self, text: str) -> None:
        self._inner.note(text)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Remove the open block and the inner display from the screen."""
        if self._live is None:
            with self._inner.aside():
                yield
            return
        with redirect_stderr(self._stderr), self._inner.aside(), self._live.aside():
            yield

    async def animate(self) -> None:
        """Draw new text at `RATE` pictures a second at most, and animate the inner display, until cancelled."""
        from .markdown.terminal import RATE

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._inner.animate)
            while True:
                await self._begun.wait()
                live = self._live
                while live is not None and live.under_way:
                    if live.wants_drawing:
                        live.draw()
                    await trio.sleep(1 / RATE)
                self._begun = trio.Event()

    # --- text of the agent ------------------------------------------------------------------------------

    def _hear(self, event: Event, live: LiveText) -> None:
        data = event.data
        if type(data) is ev.LlmDelta:
            if event.actor == self._home and (live.under_way or data.text.strip()):
                if not live.under_way:
                    self._start(live)
                live.add(data.text)
                self._said[-1] += data.text
        elif isinstance(data, ev.RunStarted):
            self._is_agent = data.dialect == "agent"
        elif isinstance(data, ev.AgentStarted):
            if self._is_agent and self._home is None and not data.depth and data.child is None:
                self._home = event.actor
        elif event.kind in TERMINAL or (isinstance(data, _ENDS) and event.actor == self._home):
            if live.under_way and isinstance(data, ev.LlmRetry | ev.LlmFallback):
                self._said.pop()  # the next attempt streams the text again
            self._finish()

    def _start(self, live: LiveText) -> None:
        self._said.append("")
        self._stderr = sys.stderr
        self._stage.enter_context(self._inner.aside())
        from .markdown.terminal import stderr_above

        self._stage.enter_context(stderr_above(live))
        self._begun.set()

    def _finish(self) -> None:
        if self._live is not None and self._live.under_way:
            try:
                self._live.end()
            finally:
                self._stage.close()


class AnswerResult(TextResult):
    """Result of `-o text` at a terminal: the part that was not drawn while it grew."""

    def __init__(self, stream: TextIO, answer: AnswerDisplay) -> None:
        super().__init__(stream)
        self._answer = answer

    def finish(self, outcome: Outcome) -> None:
        """Write the output as Markdown; unchanged if it is JSON or no theme applies; not at all if it was drawn."""
        if not outcome.output or self._answer.was_drawn(outcome.output):
            return
        look = self._answer.look
        if look.theme is None or _is_json(outcome.output):
            super().finish(outcome)
            return
        from .markdown.terminal import TerminalWriter, size_of

        rendered = look.renderer(size_of(self._stream)[0])
        lines = rendered.feed(outcome.output).settled + rendered.end().settled
        writer = TerminalWriter(self._stream)
        writer.write("".join(line + "\n" for line in lines))
        if writer.error is not None:
            raise writer.error


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
