"""What all displays of a run's progress have in common.

`choose` picks the way: a live tree on a terminal that can be redrawn, lines elsewhere, nothing with `-q`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Self, TextIO

from ...protocol.events import Event
from .style import redrawable


class Progress:
    """Shows a run on stderr; this one (`-q`) shows nothing. Entered before the run starts, left when it has ended."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        return None

    def on_event(self, event: Event) -> None:
        """Takes in one event. Never raises: showing progress must not end a run."""

    def note(self, text: str) -> None:
        """Shows one line that is no event. Never raises."""

    def aside(self) -> AbstractContextManager[None]:
        """Leaves the terminal to a prompt or a menu for the length of the `with` block."""
        return nullcontext()

    async def animate(self) -> None:
        """Keeps elapsed times moving until cancelled; returns at once where nothing moves."""


def choose(
    stream: TextIO,
    *,
    quiet: bool,
    verbose: bool,
    prompting: bool = False,
    shared: bool = False,
    by_hand: bool = False,
) -> Progress:
    """The way to show progress that fits the stream and the flags; `prompting` and `by_hand` as for `Narrator`.

    `shared` says that others write to the same screen meanwhile, which a tree that is redrawn would wipe away.
    """
    if quiet:
        return Progress()
    if redrawable(stream) and not shared:
        from .tree import LiveTree

        return LiveTree(stream, verbose=verbose, prompting=prompting, by_hand=by_hand)
    from .plain import PlainLines

    return PlainLines(stream, verbose=verbose, prompting=prompting, by_hand=by_hand)
