"""What all displays of a run's progress have in common; `plain.choose` picks one."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Self

from ...protocol.events import Event


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
