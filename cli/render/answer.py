"""The answer of a run at a terminal: Markdown that is drawn while the model says it.

`Answer` stands between a run and its progress display. What the run's own agent says is drawn on stdout; meanwhile the
tree of the display is off the screen, its lines wait, and other lines for stderr appear above the block that is still
growing. Before a question the answer gives way. `AnswerResult` writes at the end what was not drawn: the result of a
graph, or a whole answer (`--no-stream`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TextIO

import trio

from ...protocol import events as ev
from ...protocol.errors import ConfigError
from ...protocol.events import TERMINAL, Event
from ...protocol.outcome import Outcome
from .markdown.stream import MarkdownStream
from .markdown.terminal import RATE, LiveText, size_of, stderr_above
from .markdown.theme import Theme, chosen
from .markdown.writer import TerminalWriter
from .progress import Progress
from .result import TextResult
from .text import redrawable

_ENDS = (ev.LlmResponse, ev.LlmFailed, ev.LlmRetry, ev.LlmFallback)
"""What ends the text of a request to a model."""


@dataclass(frozen=True)
class Look:
    """How answers look: what `highlight`, `wrap`, `wrap_code`, `theme` and `light_theme` of the settings say.

    Attributes:
        theme: None for text as it was written.
        wrap: where it is broken (see `MarkdownStream`).
    """

    theme: Theme | None = None
    wrap: int | None = 0
    wrap_code: bool = False

    def renderer(self, columns: int) -> MarkdownStream:
        """A renderer for one answer."""
        plain = self.theme is None
        return MarkdownStream(columns, self.theme, wrap=self.wrap, wrap_code=self.wrap_code, colour=not plain)


def look_of(settings: Mapping[str, Any], directory: Path, stream: TextIO, environ: Mapping[str, str]) -> Look:
    """What the settings mean for answers on this stream.

    Raises:
        ConfigError: a setting is not what it should be.
    """
    wrap = _wrap(settings.get("wrap"))
    encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "")
    if settings.get("highlight") is False or environ.get("NO_COLOR") or not redrawable(stream) or encoding[:3] != "utf":
        return Look(None, wrap)
    return Look(chosen(settings, directory, environ), wrap, bool(settings.get("wrap_code")))


def _wrap(said: object) -> int | None:
    text = str("auto" if said is None else said).strip().lower()
    if text in ("no", "false", "none"):
        return None
    if text in ("auto", "yes", "true", ""):
        return 0
    if text.isdecimal() and int(text[:6]) > 0:
        return int(text[:6])
    raise ConfigError(f"`wrap: {said}` can't be used\n    expected: no, auto, or the most columns that a line may take")


class Answer(Progress):
    """Draws what the run's own agent says, and leaves the rest to another display.

    Args:
        inner: shows the progress.
        stream: the terminal for the answer.
        streams: whether the answer is drawn while it grows.
    """

    def __init__(self, inner: Progress, stream: TextIO, *, streams: bool) -> None:
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
        self.look = Look()

    def begin(self, look: Look) -> None:
        """The settings are known now; a run begins."""
        self.look = look
        self._is_agent, self._home, self._said = False, None, []
        if self._streams:
            redraws = redrawable(self._stream)
            self._live = LiveText(self._stream, look.renderer, os.environ, redraws=redraws)

    def shown(self, output: str) -> bool:
        """Whether this is what was drawn: all that the agent has said, or the last of it. Not if a part of
        it could not be written: then it is written again, or the error is raised there."""
        if self._live is not None and self._live.broken:
            return False
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
        """What the other display says of an answer's first piece (how long was thought) stands before the answer."""
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
        """Takes the open block and what the other display shows off the screen."""
        if self._live is None:
            with self._inner.aside():
                yield
            return
        with redirect_stderr(self._stderr), self._inner.aside(), self._live.aside():
            yield

    async def animate(self) -> None:
        """Draws what has come, so often that it looks even."""
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

    # --- what the agent says ----------------------------------------------------------------------------

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
                self._said.pop()  # is said anew
            self._finish()

    def _start(self, live: LiveText) -> None:
        self._said.append("")
        self._stderr = sys.stderr
        self._stage.enter_context(self._inner.aside())
        self._stage.enter_context(stderr_above(live))
        self._begun.set()

    def _finish(self) -> None:
        if self._live is not None and self._live.under_way:
            try:
                self._live.end()
            finally:
                self._stage.close()


class AnswerResult(TextResult):
    """`-o text` at a terminal: what was not drawn while it grew."""

    def __init__(self, stream: TextIO, answer: Answer) -> None:
        super().__init__(stream)
        self._answer = answer

    def finish(self, outcome: Outcome) -> None:
        """Writes the output as Markdown, unless it was drawn, or is JSON."""
        if not outcome.output or self._answer.shown(outcome.output):
            return
        look = self._answer.look
        if look.theme is None or _is_json(outcome.output):
            super().finish(outcome)
            return
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
