"""A program that plays a durable run, or goes on with one, and is killed when so many of its rows are on the disk."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import trio

import callboard
from callboard.actors.runs.durable import interrupted, resume
from callboard.protocol.errors import CallboardError
from callboard.protocol.kernel.questions import Question
from callboard.supervisors.journal import journal as journals
from callboard.supervisors.journal import store as stores


def kill_after_row(number: int) -> None:
    """One row is written at a time, and this process killed right after the one of this number."""
    journals.MOST_ROWS = 1
    write, left = stores.Store.write, [number]

    def counting(self: stores.Store, group: Any, *, full: bool) -> None:
        left[0] -= sum(len(part.rows) for part in group.values())
        write(self, group, full=full)
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    stores.Store.write = counting  # type: ignore[method-assign]


class Person:
    """Answers at once what is asked, and writes down what it was."""

    name = "person"

    def __init__(self, root: callboard.Root, log: str, answers: dict[str, str]) -> None:
        self._root = root
        self._log = log
        self._answers = answers

    def asked(self, question: Question) -> None:
        with Path(self._log).open("a") as log:
            log.write(f"{question.id} {question.node}\n")
        answers = {"name": "Annabel" if question.problem else "Al", "ok": "yes" if "1" in question.text else "no"}
        answers |= self._answers
        answer = "again" if question.permission else answers.get(question.node or "")
        if answer is not None:
            self._root.kernel.questions.answer(question.id, answer, by="person")

    def closed(self, question_id: str, by: str) -> None:
        pass


async def main(order: dict[str, Any]) -> None:
    os.environ["HOST"] = str(os.getpid())
    if order.get("kill"):
        kill_after_row(order["kill"])
    async with callboard.Root(config_dir=order["config"]) as root:
        person = Person(root, order["log"], order.get("answers", {}))
        with root.kernel.questions.attach(person):
            try:
                if order.get("resume"):
                    runs = await trio.to_thread.run_sync(interrupted, os.environ)
                    outcome = await resume(root, runs[0].run) if runs else None
                else:
                    outcome = await callboard.run(
                        order["target"], order["prompt"], durable=True, id="run-1", yes=True, **order.get("options", {})
                    )
            except CallboardError as error:
                print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
                return
    print(json.dumps(None if outcome is None else outcome.to_wire()))
