"""What is seen of a chat: lines that are final, and the runs that are shown below them as they go on."""

from __future__ import annotations

from ...protocol.control import chat
from ..render.diff import diff_lines
from ..render.text import safe
from ..render.wrap import wrapped
from .screen.application import ChatScreen
from .story import Display, Story


class Seen:
    """See the module.

    Attributes:
        display: how runs are shown.
        stories: the runs that are shown, by id.
        ended: those of them that go when what they have settled is taken.
    """

    def __init__(self, screen: ChatScreen, display: Display) -> None:
        self.display = display
        self.stories: dict[str, Story] = {}
        self.ended: list[str] = []
        self._screen = screen
        self._last: Story | None = None
        self._lines: list[str] = []
        self._shown_calls = 0

    @property
    def at_work(self) -> bool:
        """Whether a run goes on."""
        return any(not story.over for story in self.stories.values())

    def story(self) -> Story:
        """What a run looks like, for one that is not shown yet."""
        return Story(self.display, lambda: self._screen.output.size[0])

    def begin(self, run: str, story: Story | None = None) -> None:
        """A run is shown from now on; `story` is what was read of it already."""
        self._shown_calls = 0
        story = story or self.story()
        if self._last is not None:
            story.follow(self._last)
        self._last = self.stories[run] = story

    @property
    def under_way(self) -> list[str]:
        """The runs that have not ended yet."""
        return [run for run, story in self.stories.items() if not story.over]

    def end(self, run: str, why: str) -> None:
        """A run will not be heard of any more."""
        self.stories[run].over = True
        self.ended.append(run)
        self.print(f"{self.display.mark} {why}", "error")

    def leave(self) -> None:
        """Runs that go on are shown no more."""
        self._collect()
        self.stories.clear()

    def settled(self) -> list[str]:
        """Lines that are final since the last time."""
        self._collect()
        lines, self._lines = self._lines, []
        return lines

    def _collect(self) -> None:
        """Takes what runs have settled, so that what is written now stands below it."""
        for story in self.stories.values():
            self._lines += story.settled()
        for run in self.ended:
            if self.stories.pop(run, None) is not None:
                self._lines.append("")
        self.ended = []

    def rows(self, columns: int, room: int) -> list[str]:
        """The live rows."""
        found: list[str] = []
        for story in self.stories.values():
            found += story.rows(columns, room)
        return found

    def print(self, text: str, style: str, *, wraps: bool = True) -> None:
        """Lines of the chat itself, in the house's style.

        Args:
            wraps: whether they are broken at blanks, where the terminal would break them anywhere.
        """
        self._collect()
        for line in safe(text).split("\n"):
            columns = self._screen.output.size[0] if wraps else 0
            rows = wrapped(line, columns) if columns and self.display.wraps else [line]
            self._lines += [self.display.painted(row, style) for row in rows]
        self._screen.wake()

    def show(self, lines: list[str]) -> None:
        """Lines as they are."""
        self._collect()
        self._lines += lines
        self._screen.wake()

    def write_line(self, shown: str) -> None:
        """A line that was sent, behind the prompt."""
        left = self._screen.left
        first, *more = safe(shown).split("\n")
        self.show([*left.split("\n")[:-1], left.rpartition("\n")[2] + first, *(f"  {line}" for line in more)])

    def said(self, said: chat.Said) -> None:
        """What a command says."""
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
        """Opens and folds what is thought; shows what was thought last."""
        self.display.thinking_open = not self.display.thinking_open
        if self._last is None or not self._last.thoughts:
            self.print("no model has shown what it thinks yet", "dim")
        elif self._last.over or self.display.thinking_open:
            for line in safe(self._last.thoughts).strip().split("\n"):
                self.print(f"  {line}", "dim")
        self._screen.draw()

    def show_call(self) -> None:
        """The last call of a tool, asked again the one before."""
        calls = self._last.calls if self._last is not None else ()
        if not calls:
            self.print("no tool was called yet", "dim")
        else:
            self._shown_calls = self._shown_calls % len(calls) + 1
            for line in calls[-self._shown_calls].lines():
                self.print(line, "dim", wraps=False)
        self._screen.draw()
