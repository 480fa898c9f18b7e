"""Scrollback of a chat: final lines, and the runs that are displayed below them while they work."""

from __future__ import annotations

from ...protocol.control import chat
from ..render.text import diff_lines, safe
from ..render.wrap import wrapped
from .screen.application import ChatScreen
from .story import ChatStory, Display


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
