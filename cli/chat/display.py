"""Display of a chat: its scrollback, and the runs below it while they work.

`ScreenOutput` collects final lines in their order. A `ChatStory` is the display of one run: lines that its events
settle, and its live rows. The answer is growing Markdown. Each finished tool call is one line. Active calls and
children are a tree of live rows, below the agent's todo list while an item of it is open. Reasoning is folded to a line
with its duration; `thoughts` and `calls` store the texts for the keys that show more.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from ...actors.views.run_view import Activity, RunView
from ...protocol import events as ev
from ...protocol.control import chat
from ...protocol.errors import FailedEnd
from ...protocol.events import TERMINAL, Event
from ..render.answer import AnswerStyle
from ..render.brief import call_in_short, detail, lanes, title
from ..render.narration import Narrator, StyledLine
from ..render.text import fitting, one_line, paint, safe, uncoloured, width_of, with_node
from ..render.wrap import diff_lines, diff_rows, wrapped
from .screen.application import ChatScreen

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_SPINNER = "|/-\\"

_THOUGHT_KEPT = 200_000
"""Characters of reasoning that are stored for display."""

_CALLS_KEPT = 100

_TODO_SHOWN = 8
"""Maximum rows of the todo list."""

_DIFF_SHOWN = 40
"""Maximum lines of a call's diff of one file."""

_ENDS = (ev.LlmResponse, ev.LlmFailed, ev.LlmRetry, ev.LlmFallback)
"""Events that end the text of a model request."""


class ScreenOutput:
    """Final lines and live runs.

    Attributes:
        display: display options of runs.
        stories: displayed runs by id.
        ended: ended runs, which are removed once their settled lines are collected.
    """

    def __init__(self, screen: ChatScreen, display: Display) -> None:
        self.display = display
        self.stories: dict[str, ChatStory] = {}
        self.ended: list[str] = []
        self._screen = screen
        self._last: ChatStory | None = None
        self._lines: list[str] = []
        self._held: dict[str, list[chat.Said]] = {}
        self._shown_calls = 0

    @property
    def at_work(self) -> bool:
        """True while a run works."""
        return any(not story.over for story in self.stories.values())

    def story(self) -> ChatStory:
        """Return a new run display that is not on the screen yet."""
        return ChatStory(self.display, lambda: self._screen.output.size[0])

    def begin(self, run: str, story: ChatStory | None = None) -> None:
        """Display a run; `story` is its display if it was read ahead."""
        self._shown_calls = 0
        story = story or self.story()
        if self._last is not None:
            story.follow(self._last)
        self._last = self.stories[run] = story

    @property
    def under_way(self) -> list[str]:
        """Runs that have not ended."""
        return [run for run, story in self.stories.items() if not story.over]

    def end(self, run: str, why: str) -> None:
        """End a run that will send no more events."""
        self.stories[run].over = True
        self.ended.append(run)
        self.print(f"{self.display.mark} {why}", "error")

    def leave(self) -> None:
        """Stop displaying runs that are still active."""
        self._collect()
        self.stories.clear()
        self._held.clear()

    def settled(self) -> list[str]:
        """Return lines that became final since the last call."""
        self._collect()
        lines, self._lines = self._lines, []
        return lines

    def _collect(self) -> None:
        """Collect settled lines of runs, so that the next output appears below them."""
        for story in self.stories.values():
            self._lines += story.settled()
        held: list[chat.Said] = []
        for run in self.ended:
            if self.stories.pop(run, None) is not None:
                self._lines.append("")
                held += self._held.pop(run, [])
        self.ended = []
        for said in held:
            self.show_output(said)

    def rows(self, columns: int, room: int) -> list[str]:
        """Return the live rows."""
        found: list[str] = []
        for story in self.stories.values():
            found += story.rows(columns, room)
        return found

    def print(self, text: str, style: str, *, wraps: bool = True) -> None:
        """Print lines of the chat itself in a style of `render.text`.

        Args:
            wraps: True wraps them at blanks; otherwise the terminal wraps them anywhere.
        """
        self._collect()
        for line in safe(text).split("\n"):
            columns = self._screen.output.size[0] if wraps else 0
            rows = wrapped(line, columns) if columns and self.display.wraps else [line]
            self._lines += [self.display.painted(row, style) for row in rows]
        self._screen.wake()

    def show(self, lines: list[str]) -> None:
        """Print lines unchanged."""
        self._collect()
        self._lines += lines
        self._screen.wake()

    def write_line(self, shown: str) -> None:
        """Print a sent line after the prompt."""
        left = self._screen.left
        first, *more = safe(shown).split("\n")
        self.show([*left.split("\n")[:-1], left.rpartition("\n")[2] + first, *(f"  {line}" for line in more)])

    def show_output(self, said: chat.Said) -> None:
        """Print output of a command, below the run that it followed, once that run is displayed completely."""
        story = None if said.after is None else self.stories.get(said.after)
        if said.after is not None and story is not None and not story.over:
            self._held.setdefault(said.after, []).append(said)
            return
        text = said.text.rstrip("\n")
        if said.kind == "markdown":
            rendered = self.display.look.renderer(self._screen.output.size[0])
            self.show(rendered.feed(text).settled + rendered.end().settled)
        elif said.kind == "diff":
            self.show(diff_lines(text, coloured=self.display.coloured))
        else:
            style = {"note": "dim", "echo": "dim", "warning": "warning", "error": "error"}.get(said.kind, "text")
            self.print(text, style, wraps=said.kind != "shell")

    def show_thoughts(self) -> None:
        """Toggle the display of reasoning; print the latest reasoning."""
        self.display.thinking_open = not self.display.thinking_open
        if self._last is None or not self._last.thoughts:
            self.print("no model has shown its reasoning yet", "dim")
        elif self._last.over or self.display.thinking_open:
            for line in safe(self._last.thoughts).strip().split("\n"):
                self.print(f"  {line}", "dim")
        self._screen.draw()

    def show_call(self) -> None:
        """Print the last tool call; repeated calls go back one call each."""
        calls = self._last.calls if self._last is not None else ()
        if not calls:
            self.print("no tool has been called yet", "dim")
        else:
            self._shown_calls = self._shown_calls % len(calls) + 1
            for line in calls[-self._shown_calls].lines():
                self.print(line, "dim", wraps=False)
        self._screen.draw()


@dataclass(frozen=True)
class FinishedCall:
    """Finished tool call, as completely as its event contains it."""

    tool: str
    arguments: str
    result: str
    error: str | None

    def lines(self) -> list[str]:
        """Return the lines for the key that shows more."""
        head = call_in_short(self.tool, self.arguments, whole=True)
        return [
            head,
            *(f"  {line}" for line in safe(uncoloured(self.error or self.result)).splitlines() or ["(empty)"]),
        ]


@dataclass
class Display:
    """Display options of runs, which settings and keys change.

    Attributes:
        look: rendering options of answers.
        streams: True draws answers while they grow.
        coloured: True colours lines.
        wraps: True wraps the chat's own lines at blanks; otherwise the terminal wraps them.
        mark, spinner: first characters of lines, in the terminal's encoding.
        thinking_open: True shows reasoning while it streams.
    """

    look: AnswerStyle
    streams: bool = True
    coloured: bool = True
    wraps: bool = True
    mark: str = "▸"
    thinking_open: bool = False

    def painted(self, text: str, style: str) -> str:
        """Colour a line in one of the styles of `render.text`."""
        return paint(text, style) if self.coloured else text

    @property
    def spinner(self) -> str:
        """Frames of the spinner."""
        return _SPINNER if self.mark == "▸" else _PLAIN_SPINNER


class TodoRows:
    """Todo list of the root agent, reconstructed from its `todo__*` calls in this run.

    Items of an earlier turn are known once the agent lists them: the user may have cleared the list in between.
    """

    def __init__(self) -> None:
        self.items: dict[int, str] = {}
        self.done: set[int] = set()
        self._under_way: dict[str, str] = {}

    def start(self, call: str, arguments: str) -> None:
        """Store the arguments of a call, which its end does not repeat."""
        self._under_way[call] = arguments

    def finish(self, call: str, data: ev.ToolFinished) -> str | None:
        """Update the list; return the line with the change, or None if the call's own line is better."""
        given, result = _json_object(self._under_way.pop(call, "")), _json_object(data.result)
        if data.tool == "todo__list" and isinstance(listed := result.get("todos"), list):
            found = [each for each in listed if isinstance(each, dict)]
            self.items = {int(each["id"]): str(each["desc"]) for each in found}
            self.done = {int(each["id"]) for each in found if each["done"]}
        if data.error is not None or result.get("status") != "ok":
            return None
        match data.tool:
            case "todo__init" | "todo__clear":
                self.items, self.done = {}, set()
                return f"todo list: {given.get('goal')}" if data.tool == "todo__init" else "todo list: cleared"
            case "todo__add" if isinstance(number := result.get("id"), int):
                self.items[number] = str(given.get("task", "")).strip()
                return f"todo {number}: {self.items[number]}"
            case "todo__done":
                number = int(text) if (text := str(given.get("id"))).isdigit() else 0
                if number in self.items:
                    self.done.add(number)
                    return f"done {number}: {self.items[number]} ({len(self.done)} of {len(self.items)})"
        return None

    def rows(self, room: int, marks: tuple[str, str]) -> list[str]:
        """Return at most `room` rows, from the last item before the first open one; empty if nothing is open."""
        numbers = list(self.items)
        opened = next((place for place, number in enumerate(numbers) if number not in self.done), None)
        if opened is None or room <= 0:
            return []
        first = max(0, min(opened - 1, len(numbers) - room))
        shown = numbers[first : first + room]
        rows = [f"  {marks[number not in self.done]} {one_line(self.items[number])}" for number in shown]
        if (left := len(numbers) - first - len(shown)) > 0:
            rows[-1] += f" (and {left} more)"
        return rows


def _json_object(text: str) -> dict[str, object]:
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:  # todo tools have short texts; other tools may have truncated ones
        return {}
    return found if isinstance(found, dict) else {}


class _Teller(Narrator):
    """Narrator of a chat: for the root agent, only events that the chat does not display itself."""

    def _timed(self, event: Event, text: str, style: str = "dim") -> StyledLine:  # noqa: ARG002 - at a prompt, the time is now
        return self._line(text, style)

    def _agent_started(self, data: ev.AgentStarted, event: Event) -> Iterator[StyledLine]:
        return super()._agent_started(data, event) if data.child else iter(())

    def _question_answered(self, _: ev.QuestionAnswered, __: Event) -> Iterator[StyledLine]:
        return iter(())  # the conversation prints questions and answers

    def _agent_ended(self, data: ev.AgentFinished, event: Event) -> Iterator[StyledLine]:
        for line in super()._agent_ended(data, event):
            if data.child or line.style == "warning":
                yield line


class ChatStory:
    """Display of one run.

    Args:
        display: display options.
        columns: returns the columns of the terminal.
        clock: monotonic seconds.

    Attributes:
        calls: finished calls, newest last.
        todos: todo list of the root agent.
        thoughts: latest reasoning.
        over: True if the run has ended.
        seq: number of the last processed event, from which a subscription can resume.
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
        self.calls: deque[FinishedCall] = deque(maxlen=_CALLS_KEPT)
        self.todos = TodoRows()
        self._read: set[str] = set()  # calls with changes that the user has read in a question
        self.over = False
        self.seq = 0

    @property
    def view(self) -> RunView:
        """State of the run."""
        return self._teller.view

    @property
    def thoughts(self) -> str:
        """Latest reasoning of the root agent."""
        return "".join(self._thought)

    def follow(self, before: ChatStory) -> None:
        """Continue the calls and reasoning of the previous run, until this run has its own."""
        self.calls = deque([*before.calls, *self.calls], maxlen=_CALLS_KEPT)
        if not self._thought:
            self._thought = list(before._thought)

    # --- what happens ---------------------------------------------------------------------------------------

    def see(self, event: Event) -> None:
        """Process the next event."""
        data, home = event.data, self._is_home(event)
        if type(data) is ev.LlmDelta:
            self._add(event)
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
        self._add(event, instead=self._todo(event))
        if isinstance(data, ev.FileChanged) and data.diff and event.actor not in self._read:
            self._settled += self._diff_of(data)

    def _is_home(self, event: Event) -> bool:
        return self.view.speaks(event)

    def _todo(self, event: Event) -> str | None:
        """Return the line for a finished todo call; None for every other event."""
        data = event.data
        if not isinstance(data, ev.ToolStarted | ev.ToolFinished) or not data.tool.startswith("todo__"):
            return None
        if not self.view.calls_itself(event):  # a child agent has its own list
            return None
        if isinstance(data, ev.ToolStarted):
            self.todos.start(event.id, data.arguments)
            return None
        return self.todos.finish(event.id, data)

    def _add(self, event: Event, instead: str | None = None) -> None:
        lines = list(self._teller.lines(event))
        if instead is not None:
            lines = [StyledLine(one_line(f"{self._display.mark} {instead}", 400), "dim")]
        for line in lines:
            if self._pieces and self._display.streams:
                self._draw_answer()
            columns = self._columns() if self._display.wraps else 0
            rows = wrapped(line.text, columns, deeper=2) if columns else [line.text]
            self._settled += [self._display.painted(row, line.style) for row in rows]

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
            self.calls.append(FinishedCall(data.tool, arguments, data.result, data.error))

    def _diff_of(self, data: ev.FileChanged) -> list[str]:
        """Return the diff of a change that the user has not already read in a question."""
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

    # --- output ---------------------------------------------------------------------------------------------

    def settled(self) -> list[str]:
        """Return final lines, each once."""
        if self._pieces and self._display.streams:
            self._draw_answer()
        lines, self._settled = self._settled, []
        return lines

    def rows(self, columns: int, room: int) -> list[str]:
        """Return the live rows: at most `room`, except for the answer, which the surface truncates."""
        if self.over:
            return []
        if self._open and columns != self._drawn_for:
            self._draw_answer()
        now = self._clock()
        answer = list(self._open)
        marks = ("✓", "○") if self._display.mark == "▸" else ("[x]", "[ ]")
        todos = [self._dim(row, columns) for row in self.todos.rows(min(_TODO_SHOWN, room // 2), marks)]
        room -= len(todos)
        tree = self._tree(now, columns, room)
        if self._thinking is not None:
            tree = [*self._thinking_rows(now, columns, room), *tree]
        elif not answer and not tree:
            model = next((each.name for each in self.view.under_way("chat")), "")
            said = "writing" if self._saying else one_line(model, 60) or self._waiting
            tree = [self._row(now, 0, said, now - self._began, "", columns)]
        return answer + todos + tree

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
        """Yield active lanes without the root agent, which is the whole tree."""
        for each in lanes(self.view.roots.values()):
            if each is self.view.home and each.kind == "agent":
                yield from lanes(each.below.values())
            else:
                yield each

    def _grow(
        self, activities: Iterator[Activity], depth: int, now: float, columns: int, room: int, rows: list[str]
    ) -> int:
        """Add rows while there is room; return the remaining room, negative if rows were omitted."""
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
        # the reason for waiting is more useful than the end of the arguments
        room = max(columns - width_of(tail), columns // 3)
        if width_of(head) > room:
            head = head[: fitting(head, room - 1)] + "…"
        return self._dim(head + tail, columns)

    def _dim(self, text: str, columns: int) -> str:
        text = text.replace("\n", " ").replace("\t", " ")
        if width_of(text) > columns:
            text = text[: fitting(text, columns - 1)] + "…"
        return self._display.painted(text, "dim")


def failure_of(outcome: dict[str, object]) -> str:
    """Return the error text of a failed run's outcome."""
    error = outcome.get("error")
    if isinstance(error, dict):
        node = error.get("node")
        text = str(error.get("message") or error.get("code") or "?")
        return safe(with_node(text, node if isinstance(node, str) else None))
    return safe(str(error)) if error else "no reason was given"
