"""Checks the history of a cluster: what its database says was done, against what was done to the world.

The world is a file to which each effect appends a line `TAG EFFECT`, from outside of Callboard. A tag is a run's own.
Of each run:

    rows       they are numbered 1, 2, ... without a gap, each once, and each is as it was written
    end        it is over
    effects    each that its graph has was done, and once; once more for every time that a person was asked whether it
               was to be done again, since it may have been done, and said yes. One that a model has called for was
               done at most once: the model is told that it may have been done, and does not call for it again

A double effect that nobody was asked about is found by this: `test_faults` shows it, with the fence switched off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from callboard.actors.work.journal.pending_answers import PendingAnswer
from callboard.protocol.journal import Began, Over, decode
from callboard.protocol.kernel.questions import Question
from callboard.supervisors.cluster.database import connected
from callboard.supervisors.cluster.queue import past_of
from callboard.supervisors.journal.row import OVER, State, StoredRunRecord


def wrongs(
    dsn: str,
    world: Path,
    effects: Mapping[str, Collection[str]],
    runs: Mapping[str, str],
    called: Collection[str] = (),
    others: Collection[str] = (),
) -> list[str]:
    """What is wrong with these runs, whose tags these are; nothing, if all is well.

    Args:
        effects: those of each run.
        called: the effects that models have called for.
        others: tags of other runs that have effects there.
    """
    found: list[str] = []
    lines = world.read_text().split("\n")[:-1] if world.exists() else []
    done = Counter(lines)
    with connected(dsn, "history", 10.0) as db:
        known = {
            run: (key, state, rows, crc)
            for key, run, state, rows, crc in db.execute("select id, run, state, rows, crc from callboard.runs")
        }
        allowed: Counter[str] = Counter()
        asked = db.execute(
            "select r.run, q.data, q.answer from callboard.questions q join callboard.runs r on r.id = q.run"
        ).fetchall()
        for run, data, answer in asked:
            question = msgspec.json.decode(data, type=Question)
            given = None if answer is None else msgspec.msgpack.decode(answer, type=PendingAnswer).answer.value
            if "was running when" in question.text and given == "again":
                allowed[f"{run} {question.node}"] += 1
        for run, tag in runs.items():
            if run not in known:
                found.append(f"{run} is lost")
                continue
            key, state, count, crc = known[run]
            if state != OVER:
                found.append(f"{run} is not over")
            kept = StoredRunRecord(
                run=run, sign="", state=State.OVER, life=1, rows=count, began=0.0, ended=None, about=b""
            )
            rows = past_of(db, key, kept, crc).rows  # raises if one is not as it was written
            if [row.seq for row in rows] != list(range(1, count + 1)):
                found.append(f"{run}: its rows have the numbers {[row.seq for row in rows]}")
            meant = [decode(row.data) for row in rows]
            if sum(isinstance(row, Began) for row in meant) != 1 or not any(isinstance(row, Over) for row in meant):
                found.append(f"{run}: it does not begin once and end")
            for effect in effects[run]:
                times, most = done[f"{tag} {effect}"], 1 + allowed[f"{run} {effect}"]
                if not (effect not in called) <= times <= most:
                    found.append(f"{run}: {effect} was done {times} times, and {most} were allowed")
    strange = {line for line in done if line.partition(" ")[0] not in {*runs.values(), *others}}
    return found + [f"what is {line!r}?" for line in sorted(strange)]
