"""A graph with all that can go on after a kill, a model for it, and a world in which its effects are counted."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import trio
from forking import FORKS
from support.fake_models import FakeModels, Reply, Request

from callboard.actors.work.journal.run_journal import REPLY
from callboard.protocol.journal import AnyRow, MessageRow, Noted, decode
from callboard.protocol.messages import Replied
from callboard.supervisors.journal.reading import read_run, stored_runs

GRAPH = """
name: g
start: first
global_tools: [execute_command, get_current_time]
initial_state: {items: [1, 2, 3], round: 0}
nodes:
  first: {type: script, script: first.sh, next: each}
  each:
    type: map
    over: "{{items}}"
    as: it
    branch: item
    collect_into: all
    output_key: done_item
    next: tool
  item: {type: llm, prompt: "ITEM {{it}}", state_updates: {answer: "{{output}}"}, next: item_script}
  item_script: {type: script, script: item.sh}
  tool:
    type: llm
    prompt: TOOL
    tools: [execute_command, get_current_time]
    state_updates: {tooled: "{{output}}"}
    next: shape
  shape:
    type: llm
    prompt: SHAPE
    output_schema: {type: object, properties: {x: {type: integer}}, required: [x]}
    next: name
  name:
    type: input
    question: "Your name?"
    validation: "len(input) > 3"
    state_updates: {who: "{{input}}"}
    next: fan
  fan: {type: llm, prompt: FAN, next: [helper, beside]}
  helper: {type: agent, agent: helper, prompt: "HELP {{who}}", state_updates: {helped: "{{output}}"}, next: loop}
  beside: {type: llm, prompt: BESIDE, state_updates: {beside: "{{output}}"}, next: loop}
  loop: {type: script, script: loop.sh, join: all, next: ok}
  ok:
    type: approval
    question: "Again? {{round}}"
    options: ["yes", "no"]
    routes: {"yes": turn, "no": turn}
    on_other: turn
    state_updates: {chosen: "{{choice}}"}
  turn: {type: script, script: turn.sh, routes: [loop, done]}
  done: {type: end, output: "{{first}} {{all}} {{tooled}} {{x}} {{who}} {{helped}} {{beside}} {{round}}"}
"""

HELPER = """
name: helper
instructions: HELPER
auto_continue: true
global_tools: [execute_command]
"""

DO = """echo {name} >> {world}
if [ "$(cat {world}.kill 2>/dev/null)" = {name} ]; then rm {world}.kill; kill -9 $HOST; sleep 10; fi
"""
"""An effect, which kills the program in the midst of it if it is told so."""

EFFECTS = ["first", "item-1", "item-2", "item-3", "tool", "helper", "loop-0", "loop-1"]
CALLS = {"tool", "helper"}
"""Effects that a model has called for."""


def answer(world: Path) -> Any:
    """The model: what it says depends on the request alone."""

    def run(name: str) -> tuple[str, dict[str, str]]:
        return "execute_command", {"command": DO.format(name=name, world=world)}

    def say(request: Request) -> Reply:
        prompt, results = request.prompt, len(request.results)
        if request.system.startswith("You turn text into data"):
            return Reply(text='{"x": 7}' if "repaired" in prompt or "not JSON" in prompt else "no json either")
        if "HELPER" in request.system:
            calls = [[("todo__init", {"goal": "g"}), ("todo__add", {"task": "t"})], [], [run("helper")]]
            if results == 0:
                return Reply(calls=calls[0])
            if results == 2:
                return Reply(calls=calls[2]) if "open items" in prompt else Reply(text="I think")
            return Reply(calls=[("todo__done", {"id": 1})]) if results == 3 else Reply(text="helped")
        if prompt.startswith("TOOL"):
            return Reply(calls=[run("tool"), ("get_current_time", {})]) if not results else Reply(text="tooled")
        if prompt.startswith("SHAPE"):
            return Reply(text="this is no JSON")
        return Reply(text=f"<{prompt.split('{')[0].strip()}>")

    return say


class KilledRun:
    """Where it is played: directories, a model, and programs that are killed."""

    def __init__(self, home: Path, models: FakeModels) -> None:
        self.world = home / "world"
        self.log = home / "asked"
        self._state = home / "state"
        self._models = models
        self.config = models.config_dir(home / "config")
        self.write(self.config)

    def write(self, config: Path) -> None:
        """The agents, and their model."""
        models, agent = self._models, config / "agents" / "g"
        agent.mkdir(parents=True)
        (agent / "graph.yaml").write_text(GRAPH)
        do = {name: DO.format(name=name, world=self.world) for name in ("first", "item-$n", "loop-$r")}
        (agent / "first.sh").write_text(do["first"] + 'echo \'{"first": "began"}\'\n')
        code = 'import json, os; print(json.loads(os.environ["GRAPH_STATE"])["%s"])'
        key = f"{sys.executable} -ISc '{code}'"
        (agent / "item.sh").write_text(
            f'n=$({key % "it"})\n{do["item-$n"]}a=$({key % "answer"})\necho "{{\\"done_item\\": \\"$a $n\\"}}"\n'
        )
        (agent / "loop.sh").write_text(f'r=$({key % "round"})\n{do["loop-$r"]}echo "{{\\"round\\": $((r+1))}}"\n')
        (agent / "turn.sh").write_text(
            f"c=$({key % 'chosen'})\n"
            'if [ $c = yes ]; then echo "{\\"_next\\": \\"loop\\"}"; else echo "{\\"_next\\": \\"done\\"}"; fi\n'
        )
        helper = config / "agents" / "helper"
        helper.mkdir(parents=True)
        (helper / "config.yaml").write_text(HELPER)
        models.answer_with(answer(self.world))

    @property
    def journal(self) -> Path:
        """Where the journals are."""
        return self._state / "callboard" / "journal"

    async def play(self, **order: Any) -> dict[str, Any] | None:
        """Have a program play it, or go on with it: what it said at its end, None if it was killed."""
        told = {"config": str(self.config), "log": str(self.log), "target": "g", "prompt": "hello", **order}
        temporary = self._state / "tmp"  # a killed program cannot remove its temporary files
        temporary.mkdir(parents=True, exist_ok=True)
        environ = {
            **os.environ,
            "XDG_STATE_HOME": str(self._state),
            "XDG_CACHE_HOME": str(self._state / "cache"),
            "TMPDIR": str(temporary),
        }
        out = self.log.with_name("out")
        status = await trio.to_thread.run_sync(FORKS.play, told, environ, out)
        if status == -signal.SIGKILL:
            return None
        assert status == 0, status
        said: dict[str, Any] = json.loads(out.read_text())
        return said

    def kill_in(self, effect: str) -> None:
        """The program is killed amid this effect."""
        Path(f"{self.world}.kill").write_text(effect)

    @property
    def effects(self) -> Counter[str]:
        """What was done to the world."""
        return Counter(self.world.read_text().split()) if self.world.exists() else Counter()

    @property
    def asked(self) -> list[list[str]]:
        """The ids of questions that a person was shown, and the nodes that asked."""
        return [line.split() for line in self.log.read_text().splitlines()] if self.log.exists() else []

    @property
    def requests(self) -> int:
        """How often the model was asked so far."""
        return len(self._models.requests)

    def rows(self) -> list[tuple[str, AnyRow]]:
        """What is on disk of the run."""
        if not stored_runs(self.journal):
            return []
        past = read_run(self.journal, "run-1")
        return [] if past is None else [(row.actor, decode(row.data)) for row in past.rows]

    def replies(self) -> int:
        """How many replies of the model are on disk."""
        return sum(
            (isinstance(row, MessageRow) and isinstance(row.message, Replied))
            or (isinstance(row, Noted) and row.name == REPLY)
            for _, row in self.rows()
        )
