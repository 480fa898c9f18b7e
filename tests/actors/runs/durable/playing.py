"""A program that plays a durable run, or goes on with one, and is killed when so many of its rows are on the disk."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import trio

import callboard
from callboard.actors.io.directories import journal_dir
from callboard.actors.runs.durable import interrupted, resume
from callboard.actors.runs.loading import RunCallbacks
from callboard.actors.runs.session_run import agent_of, say
from callboard.protocol.errors import CallboardError
from callboard.protocol.journal import Answered, Asked, Intends, decode
from callboard.protocol.kernel.questions import Question
from callboard.protocol.requests import RunRequest
from callboard.supervisors.journal import journal as journals
from callboard.supervisors.journal import store as stores
from callboard.supervisors.journal.reading import read_run

FULL_FOR = 0.4
"""Seconds."""


def kill_after_row(number: int) -> None:
    """One row is written at a time, and this process killed right after the one of this number."""
    journals.MOST_ROWS = 1
    write, left = stores.SqliteStore.write, [number]

    def counting(self: stores.SqliteStore, group: Any, *, full: bool) -> None:
        left[0] -= sum(len(part.rows) for part in group.values())
        write(self, group, full=full)
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    stores.SqliteStore.write = counting  # type: ignore[method-assign]


def fill_disk_at_row(number: int, disk: Path, world: Path, told: Path) -> None:
    """One row is written at a time, and the disk full right before the one of this number, for `FULL_FOR` seconds.

    `told`, on another disk, gets how many effects were done then, and how many are in rows as about to be.
    """
    journals.MOST_ROWS = 1
    write, left, intents = stores.SqliteStore.write, [number], [0]

    def relieve() -> None:
        time.sleep(FULL_FOR)
        done = len(world.read_text().split()) if world.exists() else 0
        told.write_text(f"{done} {intents[0]}")
        (disk / "filler").unlink()

    def counting(self: stores.SqliteStore, group: Any, *, full: bool) -> None:
        rows = [decode(data) for part in group.values() for _, data in part.rows]
        left[0] -= len(rows)
        if left[0] <= 0 and number > 0 and not (disk / "filler").exists() and not told.exists():
            fill(disk / "filler")
            told.write_text("")
            threading.Thread(target=relieve, daemon=True).start()
        write(self, group, full=full)
        intents[0] += sum(isinstance(row, Intends) for row in rows)

    stores.SqliteStore.write = counting  # type: ignore[method-assign]


def fill(file: Path) -> None:
    """Not a byte is left on its disk."""
    with file.open("wb", buffering=0) as out:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    out.write(bytes(size))


class Person:
    """Answers at once what is asked, and writes down what it was.

    Args:
        together: so many questions that begin with PERSON have to be open before they are answered; those that were
            answered in an earlier life count as well.
    """

    name = "person"

    def __init__(
        self, root: callboard.Root, log: str, answers: dict[str, str] | None = None, together: int = 0
    ) -> None:
        self._root = root
        self._log = log
        self._answers = answers or {}
        self._together = together
        self._open: dict[str, Question] = {}

    def asked(self, question: Question) -> None:
        with Path(self._log).open("a") as log:
            log.write(f"{question.id} {question.node}\n")
        if question.text.startswith("PERSON"):
            self._open[question.id] = question
            if len(self._open) >= self._together:
                for id, each in list(self._open.items()):
                    self._root.kernel.questions.answer(id, f"yes {each.text.split()[-1]}", by="person")
            return
        answers = {"name": "Annabel" if question.problem else "Al", "ok": "yes" if "1" in question.text else "no"}
        answers |= self._answers
        answer = "again" if question.permission else answers.get(question.node or "")
        if answer is not None:
            self._root.kernel.questions.answer(question.id, answer, by="person")

    def closed(self, question_id: str, by: str) -> None:
        if self._open.pop(question_id, None) is not None:
            self._together -= 1


def answered() -> int:
    """How many questions that begin with PERSON are answered on disk."""
    rows = [decode(row.data) for row in read_run(journal_dir(os.environ), "run-1").rows]
    asked = {row.question.id for row in rows if isinstance(row, Asked) and row.question.text.startswith("PERSON")}
    return len(asked & {row.answer.question for row in rows if isinstance(row, Answered)})


async def in_session(root: callboard.Root, order: dict[str, Any]) -> callboard.Outcome:
    """A turn of a session of this name."""
    request = RunRequest(target=order["target"], prompt=order["prompt"], yes=True, id=order.get("id", "run-1"))
    hooks = RunCallbacks(durable=True)
    agent = agent_of(await root.loader.load(request, hooks))
    return await say(root, None, order["session"], request, hooks, agent=agent)


async def main(order: dict[str, Any]) -> None:
    os.environ["HOST"] = str(os.getpid())
    if order.get("kill"):
        kill_after_row(order["kill"])
    if order.get("full"):
        fill_disk_at_row(order["full"], *(Path(order[name]) for name in ("disk", "world", "told")))
    together = order.get("together", 0)
    if together and order.get("resume"):
        together -= answered()
    async with callboard.Root(config_dir=order["config"]) as root:
        person = Person(root, order["log"], order.get("answers", {}), together)
        with root.kernel.questions.attach(person):
            try:
                if order.get("resume"):
                    runs = await trio.to_thread.run_sync(interrupted, os.environ)
                    again = {"with_changes": order.get("with_changes", False)}
                    outcome = await resume(root, runs[0].run, **again) if runs else None
                elif order.get("session"):
                    outcome = await in_session(root, order)
                else:
                    outcome = await callboard.run(
                        order["target"], order["prompt"], durable=True, id="run-1", yes=True, **order.get("options", {})
                    )
            except CallboardError as error:
                print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
                return
    print(json.dumps(None if outcome is None else outcome.to_wire()))
