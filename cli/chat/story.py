"""One run as the chat shows it: what its events settle in the scrollback, and the rows that are still alive.

The answer is Markdown that grows; calls of tools are a line each once they have ended; while they and children work
they are a tree of live rows. What a model thinks is folded to a line that says how long; `thoughts` and `calls` keep
it, and what calls came to, for the keys that show more.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...actors.views.activity import Activity
from ...actors.views.run_view import RunView
from ...protocol import events as ev
from ...protocol.errors import FailedEnd
from ...protocol.events import TERMINAL, Event
from ..render.answer import Look
from ..render.brief import call_in_short, detail, lanes, title
from ..render.diff import diff_rows
from ..render.lines import Line
from ..render.markdown.cells import fitting, width
from ..render.narration import Narrator
from ..render.text import one_line, paint, safe, uncoloured, with_node

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_SPINNER = "|/-\\"

_THOUGHT_KEPT = 200_000
"""Characters of what a model thinks that are kept to be shown."""

_CALLS_KEPT = 100

_DIFF_SHOWN = 40
"""Lines that are shown of what a call has changed in a file."""

_ENDS = (ev.LlmResponse, ev.LlmFailed, ev.LlmRetry, ev.LlmFallback)
"""What ends the text of a request to a model."""


@dataclass(frozen=True)
class Called:
    """A call of a tool that has ended, in full as far as its event has it."""

    tool: str
    arguments: str
    result: str
    error: str | None

    def lines(self) -> list[str]:
        """What the key for more shows."""
        head = call_in_short(self.tool, self.arguments, whole=True)
        return [
            head,
            *(f"  {line}" for line in safe(uncoloured(self.error or self.result)).splitlines() or ["(empty)"]),
        ]


@dataclass
class Display:
    """How runs are shown, which settings and keys change.

    Attributes:
        look: of answers.
        streams: whether answers are drawn while they grow.
        coloured: whether lines have colours.
        wraps: whether lines of ours are broken at blanks; else the terminal breaks them.
        mark, spinner: what lines begin with, in an alphabet that the terminal has.
        thinking_open: whether what is thought is shown while it is.
    """

    look: Look
    streams: bool = True
    coloured: bool = True
    wraps: bool = True
    mark: str = "▸"
    thinking_open: bool = False

    def painted(self, text: str, style: str) -> str:
        """A line in one of the house's styles."""
        return paint(text, style) if self.coloured else text

    @property
    def spinner(self) -> str:
        """Its pictures."""
        return _SPINNER if self.mark == "▸" else _PLAIN_SPINNER


class _Teller(Narrator):
    """The narration of a chat: of the agent that answers, only what is not seen anyway."""

    def _timed(self, event: Event, text: str, style: str = "dim") -> Line:  # noqa: ARG002 - at a prompt, the time is now
        return self._line(text, style)

    def _agent_started(self, data: ev.AgentStarted, event: Event) -> Iterator[Line]:
        return super()._agent_started(data, event) if data.child else iter(())

    def _question_answered(self, _: ev.QuestionAnswered, __: Event) -> Iterator[Line]:
        return iter(())  # the conversation shows questions, and what they came to

    def _agent_ended(self, data: ev.AgentFinished, event: Event) -> Iterator[Line]:
        for line in super()._agent_ended(data, event):
            if data.child or line.style == "warning":
                yield line


class Story:
    """See the module.

    Args:
        display: how it is shown.
        columns: of the terminal, now.
        clock: seconds that only grow.

    Attributes:
        calls: those that have ended, the newest last.
        thoughts: what was thought last.
        over: whether the run has ended.
        seq: number of the last event that was taken in, for who asks for those behind it.
    """

    def __init__(
        self, display: Display, columns: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._display = display
        self._columns = columns
        self._clock = clock
        self._teller = _Teller(prompting=True, live=True, mark=display.mark, thoughts=True)
        self._stream = display.look.renderer(columns())
        self._drawn_for = columns()
        self._saying = False
        self._pieces: list[str] = []
        self._said = False
        self._open: list[str] = []
        self._settled: list[str] = []
        self._thinking: float | None = None
        self._thought: list[str] = []
        self._thought_size = 0
        self._began = clock()
        self.calls: deque[Called] = deque(maxlen=_CALLS_KEPT)
        self._read: set[str] = set()  # calls whose changes the person has read in a question
        self.over = False
        self.seq = 0

    @property
    def view(self) -> RunView:
        """What the run looks like."""
        return self._teller.view

    @property
    def thoughts(self) -> str:
        """What was thought last."""
        return "".join(self._thought)

    def follow(self, before: Story) -> None:
        """The keys for more show what there was in the run before, until there is more."""
        self.calls = deque([*before.calls, *self.calls], maxlen=_CALLS_KEPT)
        if not self._thought:
            self._thought = list(before._thought)

    # --- what happens ---------------------------------------------------------------------------------------

    def see(self, event: Event) -> None:
        """Takes in the next event."""
        data, home = event.data, self._is_home(event)
        if type(data) is ev.LlmDelta:
            self._tell(event)
            if home:
                self._say(data.text)
            return
        if type(data) is ev.LlmReasoning and home:
            self._think(data.text)
        elif isinstance(data, ev.ToolFinished):
            self._called(data, event)
        elif isinstance(data, ev.QuestionAsked) and isinstance(data.question, dict) and data.question.get("diff"):
            self._read |= {event.actor, str(data.question.get("actor"))}
        if isinstance(data, _ENDS) and home:
            self._thinking = None
            self._end_answer()
        if event.kind in TERMINAL:
            self._end(data)
        self._tell(event)
        if isinstance(data, ev.FileChanged) and data.diff and event.actor not in self._read:
            self._settled += self._diff_of(data)

    def _is_home(self, event: Event) -> bool:
        return self.view.speaks(event)

    def _tell(self, event: Event) -> None:
        for line in self._teller.lines(event):
            if self._pieces and self._display.streams:
                self._draw_answer()
            self._settled.append(self._display.painted(line.text, line.style))

    def _say(self, text: str) -> None:
        if not self._saying:
            if not text.strip():
                return
            self._stream = self._display.look.renderer(self._columns())
            self._saying = True
            self._thinking = None
            if self._said:
                self._settled.append("")
            self._said = True
        self._pieces.append(text)

    def _draw_answer(self) -> None:
        self._drawn_for = self._columns()
        self._stream.resize(self._drawn_for)
        drawn = self._stream.feed("".join(self._pieces))
        self._pieces = []
        self._settled += drawn.settled
        self._open = drawn.open if self._display.streams else []

    def _end_answer(self) -> None:
        if self._saying:
            self._draw_answer()
            self._settled += self._stream.end().settled
            self._open, self._saying = [], False

    def _think(self, text: str) -> None:
        if self._thinking is None:
            self._thinking = self._clock()
            self._thought, self._thought_size = [], 0
        if self._thought_size < _THOUGHT_KEPT:
            self._thought.append(text)
            self._thought_size += len(text)

    def _called(self, data: ev.ToolFinished, event: Event) -> None:
        started = self.view.nearest(event.actor)
        arguments = started.data.arguments if started is not None and started.kind == "tool" else ""
        if event.id:
            self.calls.append(Called(data.tool, arguments, data.result, data.error))

    def _diff_of(self, data: ev.FileChanged) -> list[str]:
        """What was changed without the person having read it before: nobody asked them."""
        counts = "" if data.added is None else f" +{data.added} -{data.removed}"
        head = self._display.painted(f"{self._display.mark} {data.how} {one_line(data.path)}{counts}", "dim")
        lines = diff_rows(data.diff.removesuffix("\n"), self._columns(), coloured=self._display.coloured)
        left = len(lines) - _DIFF_SHOWN
        more = [self._display.painted(f"  {left} more lines; .diff shows them", "dim")] if left > 0 else []
        return [head, *lines[:_DIFF_SHOWN], *more]

    def _end(self, data: ev.EventData) -> None:
        self._end_answer()
        self.over = True
        outcome = getattr(data, "outcome", None)
        outcome = outcome if isinstance(outcome, dict) else {}
        output = outcome.get("output")
        reported = isinstance(data, ev.RunFinished) or (outcome.get("error") or {}).get("code") == FailedEnd.code
        if reported and not self._said and isinstance(output, str) and output:
            rendered = self._display.look.renderer(self._columns())
            self._settled += rendered.feed(output).settled + rendered.end().settled
        if isinstance(data, ev.RunFailed):
            self._settled.append(self._display.painted(f"{self._display.mark} failed: {failure_of(outcome)}", "error"))
        elif isinstance(data, ev.RunCancelled):
            self._settled.append(self._display.painted(f"{self._display.mark} interrupted", "warning"))

    # --- what is seen ---------------------------------------------------------------------------------------

    def settled(self) -> list[str]:
        """Lines that are final and were not taken yet."""
        if self._pieces and self._display.streams:
            self._draw_answer()
        lines, self._settled = self._settled, []
        return lines

    def rows(self, columns: int, room: int) -> list[str]:
        """The live rows: at most `room`, but for the answer, of which the surface cuts the begin."""
        if self.over:
            return []
        if self._open and columns != self._drawn_for:
            self._draw_answer()
        now = self._clock()
        answer = list(self._open)
        tree = self._tree(now, columns, room)
        if self._thinking is not None:
            tree = [*self._thinking_rows(now, columns, room), *tree]
        elif not answer and not tree:
            model = next((each.name for each in self.view.under_way("chat")), "")
            said = "writing" if self._saying else one_line(model, 60) or self._waiting
            tree = [self._row(now, 0, said, now - self._began, "", columns)]
        return answer + tree

    @property
    def _waiting(self) -> str:
        return "waits for an answer" if self.view.questions else "starting"

    def _thinking_rows(self, now: float, columns: int, room: int) -> list[str]:
        assert self._thinking is not None
        rows = [self._row(now, 0, "thinking", now - self._thinking, "", columns)]
        if self._display.thinking_open:
            thought = safe(self.thoughts[-4 * columns * room :]).splitlines()[-max(room - 2, 1) :]
            rows += [self._dim(f"  {line}", columns) for line in thought]
        return rows

    def _tree(self, now: float, columns: int, room: int) -> list[str]:
        rows: list[str] = []
        left = self._grow(self._lanes(), 0, now, columns, room, rows)
        if left < 0:
            rows.append(self._dim(f"  and {-left} more", columns))
        return rows

    def _lanes(self) -> Iterator[Activity]:
        """What is under way, without the agent that answers, which is the whole tree."""
        for each in lanes(self.view.roots.values()):
            if each is self.view.home and each.kind == "agent":
                yield from lanes(each.below.values())
            else:
                yield each

    def _grow(
        self, activities: Iterator[Activity], depth: int, now: float, columns: int, room: int, rows: list[str]
    ) -> int:
        """Adds rows as long as there is room; what is left of it, below zero when some had to stay out."""
        for lane in activities:
            room -= 1
            if room >= 0:
                rows.append(self._row(now, depth, title(lane), now - lane.at, detail(lane), columns))
            room = self._grow(lanes(lane.below.values()), depth + 1, now, columns, room, rows)
        return room

    def _row(self, now: float, depth: int, name: str, seconds: float, said: str, columns: int) -> str:
        spinner = self._display.spinner
        head = f"{'  ' * depth}{spinner[int(now * 10) % len(spinner)]} {name}"
        tail = f"  {seconds:.0f}s  {said}".rstrip()
        room = max(columns - width(tail), columns // 3)  # what it waits for says more than the end of its arguments
        if width(head) > room:
            head = head[: fitting(head, room - 1)] + "…"
        return self._dim(head + tail, columns)

    def _dim(self, text: str, columns: int) -> str:
        text = text.replace("\n", " ").replace("\t", " ")
        if width(text) > columns:
            text = text[: fitting(text, columns - 1)] + "…"
        return self._display.painted(text, "dim")


def failure_of(outcome: dict[str, object]) -> str:
    """Why a run has failed, as its outcome says it."""
    error = outcome.get("error")
    if isinstance(error, dict):
        node = error.get("node")
        text = str(error.get("message") or error.get("code") or "?")
        return safe(with_node(text, node if isinstance(node, str) else None))
    return safe(str(error)) if error else "no reason was given"
