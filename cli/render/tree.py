"""Live progress on a terminal: the narration scrolls above, current activities are a tree below.

One task does all drawing (`animate`, ten times a second, and `on_event` when a line is printed), so no locks are
needed. rich's own refresh thread is off: it would read the run's state while events change it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Self, TextIO

import trio
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

from ...actors.views.run_view import Activity
from ...protocol.events import Event, RunStarted
from .brief import detail, lanes, title
from .narration import Narrator, StyledLine
from .progress import ProgressDisplay
from .text import colours

_TICK = 0.1
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_STYLES = {"dim": "dim", "warning": "yellow", "error": "red", "question": "bold", "title": "bold", "text": ""}


class LiveTree(ProgressDisplay):
    """Progress display with a live tree of current activities and their elapsed times."""

    def __init__(
        self, stream: TextIO, *, verbose: bool = False, prompting: bool = False, by_hand: bool = False
    ) -> None:
        self._console = Console(file=stream, no_color=not colours(stream), markup=False, emoji=False, highlight=False)
        self._narrator = Narrator(verbose=verbose, prompting=prompting, by_hand=by_hand, live=True, thoughts=True)
        self._began = time.monotonic()
        self._live = self._new_live()
        self._aside = 0
        self._held: list[StyledLine] = []
        self._open = False
        self._broken = False

    def __enter__(self) -> Self:
        self._open = True
        self._start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._open = False
        self._stop()

    def on_event(self, event: Event) -> None:
        if isinstance(event.data, RunStarted):
            self._began = time.monotonic()
        self._print(self._narrator.lines(event))

    def note(self, text: str) -> None:
        self._print([self._narrator.note(text)])

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Remove the tree from the screen; lines that arrive meanwhile are printed afterwards."""
        self._aside += 1
        self._stop()
        try:
            yield
        finally:
            self._aside -= 1
            if not self._aside:
                held, self._held = self._held, []
                if self._open:
                    self._start()
                self._print(held)

    async def animate(self) -> None:
        """Redraw ten times a second until cancelled."""
        while True:
            await trio.sleep(_TICK)
            if self._live.is_started:
                self._quietly(self._redraw)

    # --- drawing ----------------------------------------------------------------------------------------

    def _print(self, lines: list[StyledLine]) -> None:
        if self._aside:
            self._held += lines
            return
        for line in lines:
            text = Text(line.text, style=_STYLES[line.style])
            self._quietly(partial(self._console.print, text))

    def _redraw(self) -> None:
        self._live.update(self._picture(), refresh=True)

    def _new_live(self) -> Live:
        return Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=True,
            vertical_overflow="crop",
        )

    def _start(self) -> None:
        self._live = self._new_live()
        self._quietly(self._live.start)

    def _stop(self) -> None:
        if self._live.is_started:
            self._live.update(Text(""))
            self._quietly(self._live.stop)

    def _picture(self) -> RenderableType:
        view = self._narrator.view
        if not any(lanes(view.roots.values())):
            return Text("")
        now = time.monotonic()
        # Half of the screen stays free for the narration above the tree.
        room = max(3, self._console.size.height // 2)
        tree = Tree("", hide_root=True, guide_style="dim")
        left = _grow(tree, view.roots.values(), now, room)
        foot = [f"{now - self._began:.1f}s in all"] if view.started is not None else []
        if left < 0:
            foot.append(f"{-left} more running")
        if view.questions:
            foot.append(f"{len(view.questions)} open question(s)")
        if not foot:
            return tree
        return Group(tree, Text(" " + " · ".join(foot), style="dim", overflow="ellipsis", no_wrap=True))

    def _quietly(self, draw: Callable[[], None]) -> None:
        if self._broken:
            return
        try:
            draw()
        except OSError:
            self._broken = True  # the terminal is gone: the run continues without a display


def _grow(tree: Tree, activities: Iterable[Activity], now: float, room: int) -> int:
    """Add lanes to the tree while there is room. Return the remaining room; negative if lanes were omitted."""
    for lane in lanes(activities):
        room -= 1
        branch = tree.add(_label(lane, now)) if room >= 0 else tree
        room = _grow(branch, lane.below.values(), now, room)
    return room


def _label(lane: Activity, now: float) -> Text:
    spinner = _SPINNER[int(now * 10) % len(_SPINNER)]
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{spinner} ", style="cyan")
    text.append(title(lane), style="bold")
    text.append(f"  {now - lane.at:.1f}s", style="dim")
    if said := detail(lane):
        text.append(f"  {said}", style="dim")
    return text
