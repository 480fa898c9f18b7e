"""A batch that is killed goes on with the tasks that were under way, and does none twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio
from support.fake_models import FakeModels, Reply
from support.starter import forked
from support.waiting import until

from callboard.actors.runs.stored_runs import interrupted
from callboard.protocol.journal import Began, Intends, MessageRow, decode
from callboard.protocol.messages import NodeDone
from callboard.supervisors.journal.reading import read_run, stored_runs
from callboard.supervisors.journal.row import State

COMMANDING = Path(__file__).with_name("commanding.py")

GRAPH = """
name: g
start: one
nodes:
  one: {type: script, script: one.sh, next: two}
  two: {type: llm, prompt: "TWO {{initial_prompt}}", state_updates: {two: "{{output}}"}, next: done}
  done: {type: end, output: "{{two}}"}
"""
TASKS = ["a", "b", "c", "d"]


class Works:
    """Where batches are begun and killed."""

    def __init__(self, home: Path, models: FakeModels) -> None:
        self.home = home
        self.models = models
        self._config = models.config_dir(home / "config")
        agent = self._config / "agents" / "g"
        agent.mkdir(parents=True)
        (agent / "graph.yaml").write_text(GRAPH)
        prompt = 'python3 -c \'import json,os; print(json.loads(os.environ["GRAPH_STATE"])["initial_prompt"])\''
        (agent / "one.sh").write_text(f"echo $({prompt}) >> {home}/world\necho '{{}}'\n")
        (home / "t.jsonl").write_text("".join(json.dumps({"id": id, "task": f"task {id}"}) + "\n" for id in TASKS))
        self.environ = {**os.environ, "XDG_STATE_HOME": str(home / "state")}

    def start(self, *, kill: Any = None) -> subprocess.Popen[bytes]:
        words = ["batch", "g", "t.jsonl", "--durable", "--config-dir", str(self._config), "--max-parallel", "2"]
        order = json.dumps({"words": words, "kill": kill})
        return subprocess.Popen(
            [*forked(COMMANDING), order],
            cwd=self.home,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    async def play(self, *, kill: Any = None) -> int:
        program = self.start(kill=kill)
        said, _ = await trio.to_thread.run_sync(program.communicate)
        assert program.returncode in (0, 1, -signal.SIGKILL), said
        return program.returncode

    @property
    def effects(self) -> Counter[str]:
        world = self.home / "world"
        return Counter(world.read_text().splitlines()) if world.exists() else Counter()

    @property
    def results(self) -> dict[str, str]:
        lines = [json.loads(line) for line in (self.home / "t.results.jsonl").read_text().splitlines()]
        assert len(lines) == len({line["id"] for line in lines})
        return {line["id"]: line["output"] for line in lines}

    def rows_under_way(self) -> list[int]:
        kept = stored_runs(self.home / "state" / "callboard" / "journal")
        return [run.rows for run in kept if run.state is State.PLAYED]

    def scripts_under_way(self) -> set[str]:
        """The tasks whose script had begun, and of whose end nothing is kept."""
        found = set()
        journals = self.home / "state" / "callboard" / "journal"
        for run in stored_runs(journals):
            past = read_run(journals, run.run)
            assert past is not None
            rows = [decode(row.data) for row in past.rows]
            begun = any(isinstance(row, Intends) for row in rows)
            ended = any(isinstance(row, MessageRow) and isinstance(row.message, NodeDone) for row in rows)
            if begun and not ended:
                assert isinstance(rows[0], Began)
                found.add(rows[0].request.prompt)
        return found

    @property
    def interrupted(self) -> list[str]:
        return [run.run for run in interrupted(self.environ)]


@pytest.fixture
def works(tmp_path: Path, fake_model: FakeModels) -> Works:
    fake_model.answer_with(lambda request: Reply(text=f"<{request.prompt}>"))
    return Works(tmp_path, fake_model)


WHOLE = {id: f"<TWO task {id}>" for id in TASKS}


async def test_tasks_under_way_go_on_and_none_is_done_twice(works: Works) -> None:
    held = trio.Event()
    works.models.script("one", Reply(hold=held), Reply(hold=held))
    program = works.start()
    await until(lambda: len(works.models.requests) == 3, 60)
    await until(lambda: works.rows_under_way() == [5, 5])
    program.kill()
    await trio.to_thread.run_sync(program.communicate)
    held.set()
    assert len(works.interrupted) == 2
    assert await works.play() == 0
    assert works.results == {**WHOLE, **{id: text for id, text in works.results.items() if text == "one"}}
    assert works.effects == dict.fromkeys((f"task {id}" for id in TASKS), 1)
    assert works.interrupted == []


async def test_a_result_that_is_written_counts_though_nobody_could_say_that_its_run_is_over(works: Works) -> None:
    assert await works.play(kill="kept") != 0
    done = len(works.results)
    assert done >= 1
    under_way = works.scripts_under_way()
    assert await works.play() == 0
    assert works.results == WHOLE
    assert set(works.effects) == {f"task {id}" for id in TASKS}
    again = {task for task, times in works.effects.items() if times > 1}
    assert again <= under_way  # of other tasks
    assert works.interrupted == []


def rows() -> list[Any]:
    often = random.Random("batch").sample(range(1, 28), 1)
    return [pytest.param(row, marks=() if row in often else pytest.mark.soak) for row in range(1, 28)]


@pytest.mark.parametrize("row", rows())
async def test_killed_at_any_row_a_batch_comes_to_the_same_results(works: Works, row: int) -> None:
    await works.play(kill=row)
    under_way = works.scripts_under_way()
    assert await works.play() == 0
    assert works.results == WHOLE
    assert works.interrupted == []
    assert set(works.effects) == {f"task {id}" for id in TASKS}
    again = {task for task, times in works.effects.items() if times > 1}
    assert again <= under_way  # a batch has nobody to ask: these are run again
    assert works.effects.total() == len(TASKS) + len(again)
