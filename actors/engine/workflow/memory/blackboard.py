"""A blackboard: what nodes have said, in order; a look-up returns the latest, whatever the query."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .notebook import Note, Notebook
from .stores import Experience, Question

if TYPE_CHECKING:
    from .....supervisors import Actor

LONGEST = 100_000
"""Characters of a text that are kept."""


class Blackboard:
    """See the module.

    Args:
        path: where it is kept; None for as long as the run.
        most: texts that are kept.
    """

    def __init__(self, name: str, path: Path | None, most: int) -> None:
        self._notes = Notebook(path, most=most, name=name)

    async def recall(self, me: Actor, question: Question) -> list[str]:  # noqa: ARG002 - a `Store`
        """See `Store.recall`."""
        return [note.text for note in await self._notes.latest(question.top_k)]

    async def remember(self, me: Actor, experience: Experience) -> None:  # noqa: ARG002 - a `Store`
        """See `Store.remember`."""
        if experience.said.strip():
            await self._notes.add(Note(text=experience.said[:LONGEST]))

    async def aclose(self) -> None:
        """See `Store.aclose`."""
        self._notes.close()
