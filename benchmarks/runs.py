"""What a graph run costs that waits for a person: memory per run, and the time to start and to finish a thousand.

    python benchmarks/runs.py [count]

Every run is parked on an input node; then all are answered in random order. Memory is what the process grew by between
one parked run and `count` of them (resident, after a collection), so that imports and caches don't count. The budget
is 60 KB per run.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import trio

import callboard

COUNT = 1_000
BUDGET = 60
"""KB per parked run."""

GRAPH = """
name: asker
initial_state: {topic: "the weather", notes: [], tries: 0}
start: ask
nodes:
  ask:  {type: input, question: "What about {{initial_prompt}}?", state_updates: {said: "{{input}}"}, next: done}
  done: {type: end, output: "{{initial_prompt}}: {{said}}"}
"""


class Parked:
    """`count` runs of one agent under one root, all of them waiting for an answer."""

    name = "person"

    def __init__(self, agent: Path, root: callboard.Root) -> None:
        self.outcomes: dict[str, callboard.Outcome] = {}
        self.open: list[callboard.Question] = []
        self._agent = agent
        self._root = root
        self._awaited = 0
        self._enough = trio.Event()

    async def start(self, numbers: range, nursery: trio.Nursery) -> None:
        """Start these runs and wait until each has asked."""
        self._awaited += len(numbers)
        self._enough = trio.Event()
        for number in numbers:
            nursery.start_soon(self._one, str(number))
        await self._enough.wait()

    def answer_all(self, chance: random.Random) -> None:
        """Answer every open question, in random order, with its own number."""
        questions, self.open = self.open, []
        chance.shuffle(questions)
        for question in questions:
            number = question.text.removeprefix("What about ").removesuffix("?")
            self._root.inbox.answer(question.id, number, by=self.name)

    async def _one(self, number: str) -> None:
        self.outcomes[number] = await callboard.run(self._agent, number, root=self._root)

    def on_question(self, question: callboard.Question) -> None:
        """A run has come to its question."""
        self.open.append(question)
        if len(self.open) == self._awaited:
            self._enough.set()

    def on_question_closed(self, question_id: str, by: str) -> None:
        """Nothing to do: answers come from here alone."""


def resident() -> int:
    """Bytes of this process in memory, garbage left out."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def main(count: int) -> None:
    """Park, measure, answer, measure."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "graph.yaml").write_text(GRAPH)
        async with callboard.Root(config_dir=directory) as root:
            parked = Parked(Path(directory), root)
            with root.inbox.attach(parked):
                async with trio.open_nursery() as nursery:
                    await parked.start(range(20), nursery)  # what is paid once is paid here
                    before, began = resident(), time.process_time()
                    await parked.start(range(20, 20 + count), nursery)
                    started, after = time.process_time() - began, resident()
                    began = time.process_time()
                    parked.answer_all(random.Random(1))
                finished = time.process_time() - began
    done = sum(
        outcome.status == "done" and outcome.output == f"{number}: {number}"
        for number, outcome in parked.outcomes.items()
    )
    each = (after - before) / count / 1000
    verdict = "met" if each <= BUDGET else "NOT met"
    print(f"{count} runs parked on a question: {each:.1f} KB each (budget {BUDGET} KB: {verdict})")
    to_park, to_finish = started * 1000 / count, finished * 1000 / count
    print(f"CPU time: {to_park:.2f} ms to start and park one, {to_finish:.2f} ms to finish one")
    print(f"{done} of {count + 20} finished with their own answer")


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else COUNT)
