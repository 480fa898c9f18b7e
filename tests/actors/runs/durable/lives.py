"""A durable run in several roots of one process: each is stopped in its midst, which leaves the run as a kill does."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from support.fake_models import FakeModels

import callboard
from callboard.actors.runs.durable import interrupted, resume
from callboard.protocol.events import Event
from callboard.protocol.journal import AnyRow, Spoilt, decode
from callboard.protocol.kernel.questions import Question
from callboard.supervisors.journal.reading import read_run, stored_runs

When = Callable[[Event], bool]


class Person:
    """Answers what it has an answer for, by who asks, and remembers what it was asked."""

    name = "person"

    def __init__(self, root: callboard.Root, answers: dict[str, str]) -> None:
        self.asked_by: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self._root = root
        self._answers = answers

    def asked(self, question: Question) -> None:
        self.asked_by.append((question.id, question.node or ""))
        self.texts.append(question.text)
        if (answer := self._answers.get(question.node or "")) is not None:
            self._root.kernel.questions.answer(question.id, answer, by="person")

    def closed(self, question_id: str, by: str) -> None:
        pass


class Lives:
    """See the module.

    Attributes:
        home: a directory for workflows and what they need.
        events: of the last life.
        questions: ids and nodes of what a person was asked in the last life; texts: what that was.
    """

    def __init__(self, home: Path, models: FakeModels, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = home / "flows"
        self.home.mkdir()
        self.events: list[Event] = []
        self.questions: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.config = models.config_dir(home / "config")
        self.state = home / "state"
        monkeypatch.setenv("XDG_STATE_HOME", str(self.state))
        monkeypatch.chdir(self.home)

    def put(self, text: str, name: str = "flow.yaml") -> Path:
        """Write a file."""
        file = self.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return file

    async def begin(
        self, target: str | Path = "flow.yaml", *, until: When | None = None, answers: Any = None, **options: Any
    ) -> callboard.Outcome:
        """The first life: to its end, or until this event."""

        async def playing(root: callboard.Root, heard: Callable[[Event], None]) -> callboard.Outcome:
            more = {"durable": True, "id": "run-1", "root": root, "on_event": heard, **options}
            return await callboard.run(str(target), "TASK", **more)

        return await self.live(playing, until, answers)

    async def go_on(self, *, until: When | None = None, answers: Any = None, **options: Any) -> callboard.Outcome:
        """The next life."""

        async def playing(root: callboard.Root, heard: Callable[[Event], None]) -> callboard.Outcome:
            (run,) = await trio.to_thread.run_sync(interrupted, os.environ)
            return await resume(root, run.run, on_event=heard, **options)

        return await self.live(playing, until, answers)

    async def live(self, playing: Any, until: When | None, answers: Any) -> callboard.Outcome:
        """One life: `playing` in a root of its own, with a person who has these answers; None for nobody."""
        self.events = []
        async with callboard.Root(config_dir=self.config) as root:

            def heard(event: Event) -> None:
                self.events.append(event)
                if until is not None and until(event):
                    root.begin_stop()

            person = Person(root, answers or {})
            self.questions, self.texts = person.asked_by, person.texts
            if answers is None:
                return await playing(root, heard)
            with root.kernel.questions.attach(person):
                return await playing(root, heard)

    def rows(self) -> list[tuple[str, AnyRow]]:
        """What is on disk of the run."""
        past = read_run(self.state / "callboard" / "journal", "run-1")
        return [] if past is None else [(row.actor, decode(row.data)) for row in past.rows]

    @property
    def spoilt(self) -> list[str]:
        """Why it can't go on."""
        return [row.why for _, row in self.rows() if isinstance(row, Spoilt)]

    @property
    def states(self) -> list[str]:
        """What lists say of all runs."""
        return [run.state.value for run in stored_runs(self.state / "callboard" / "journal")]

    def beside(self) -> list[Path]:
        """Files that runs have beside their rows."""
        place = self.state / "callboard" / "durable"
        return [path for path in place.rglob("*") if path.is_file()]


def entered(node: str, visit: int = 1, item: int | None = None) -> When:
    """A node begins."""
    return lambda event: (
        event.kind == "node.entered" and (event.data.node, event.data.visit, event.data.item) == (node, visit, item)  # type: ignore[union-attr]
    )


def exited(node: str, item: int | None = None) -> When:
    """A node, or a unit of it, is done."""
    return lambda event: (
        event.kind == "node.exited" and (event.data.node, event.data.item) == (node, item)  # type: ignore[union-attr]
    )
