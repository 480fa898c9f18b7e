"""Base class of progress displays; `plain.choose` selects one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Self

from ...protocol.events import Event


class ProgressDisplay:
    """Display of a run on stderr; this one (`-q`) prints nothing.

    Enter it before the run and exit it after the run's end.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        return None

    def on_event(self, event: Event) -> None:
        """Process one event. Never raises: a display error must not end a run."""

    def note(self, text: str) -> None:
        """Print one line that is not an event. Never raises."""

    def aside(self) -> AbstractContextManager[None]:
        """Clear the terminal for a prompt or a menu for the duration of the `with` block."""
        return nullcontext()

    async def animate(self) -> None:
        """Update elapsed times until cancelled; returns at once if the display has none."""
