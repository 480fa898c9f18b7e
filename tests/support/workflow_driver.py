"""Workflows without a run: scripted models, people and Python processes, and drivers that fire in any order.

Providers that exist only here: `stub` says `params.reply`, or by the number of the call what `params.seq` lists (the
last repeats); it fails `params.raise_times` times with `params.raise`, and else says back what it was sent. `tstub`
calls its first tool once, and then says what it was sent.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from callboard.actors.engine.workflow.edges import CODE_FAILED, Functions
from callboard.actors.engine.workflow.machine.machine import MachineResult, StateMachine, WorkflowWarning
from callboard.actors.engine.workflow.machine.perform import Firing, Said, perform, role_of
from callboard.actors.engine.workflow.machine.structure import Structure
from callboard.actors.engine.workflow.messages import Message, Queue, conversation, remembering
from callboard.actors.engine.workflow.rules import RULES
from callboard.protocol.errors import CallboardError, GraphMistake, NobodyToAsk, NodeFailed
from callboard.protocol.problems import Problem
from callboard.protocol.workflow.dialect import Known
from callboard.protocol.workflow.model import AgentConfig, HumanConfig, PythonConfig, SubgraphConfig, Workflow
from callboard.protocol.workflow.read import read_workflow
from callboard.protocol.workflow_messages import FireNode, Unit

T = TypeVar("T")
Seen = tuple[str, tuple[Message, ...]]
"""A node that was fired, and what it saw."""


class Delivered(msgspec.Struct, frozen=True):
    """A message was put into a node's queue."""

    target: str
    message: Message


class Dropped(msgspec.Struct, frozen=True):
    """Messages were taken out of a node's queue, by an edge or by its window."""

    target: str
    messages: tuple[Message, ...]


Notice = Delivered | Dropped | WorkflowWarning


class HeardQueue(Queue):
    """A queue that tells what comes and goes."""

    __slots__ = ("target", "tell")

    def __init__(self, target: str, tell: Callable[[Notice], None]) -> None:
        super().__init__()
        self.target = target
        self.tell = tell

    def add(self, message: Message) -> None:
        super().add(message)
        self.tell(Delivered(self.target, message))

    def clear(self, *, context: bool, kept: bool) -> list[Message]:
        return self._dropped(super().clear(context=context, kept=kept))

    def trim(self, window: int) -> list[Message]:
        return self._dropped(super().trim(window))

    def _dropped(self, messages: list[Message]) -> list[Message]:
        if messages:
            self.tell(Dropped(self.target, tuple(messages)))
        return messages


KNOWN = Known(tools={"city": frozenset({"get_city_num"})}, providers=None)


def read(yaml: str, compat: Any = None) -> tuple[Workflow | None, list[Problem]]:
    """A workflow and its problems; no file of a subgraph is ever there."""

    def load(path: str, _parent: str) -> tuple[str, str]:
        raise FileNotFoundError(path)

    return read_workflow(yaml, "wf.yaml", compat=compat, known=KNOWN, load=load, environ={})


def workflow(yaml: str, compat: Any = None) -> Workflow:
    """A workflow that is known to be right."""
    found, problems = read(textwrap.dedent(yaml), compat)
    assert found is not None, "\n".join(map(str, problems))
    return found


def structure(found: Workflow, functions: Functions | None = None) -> Structure:
    return Structure(found.graph, RULES[found.compat or "standard"], functions)


def now(waiting: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that has nothing to wait for."""
    try:
        waiting.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits")


def task(text: str = "TASK") -> list[Message]:
    return [Message(role="user", content=text)]


def first(_waiting: Sequence[FireNode]) -> int:
    return 0


def last(waiting: Sequence[FireNode]) -> int:
    return len(waiting) - 1


def shuffled(seed: int) -> Callable[[Sequence[FireNode]], int]:
    """Nodes take as long as they like."""
    chance = random.Random(seed)
    return lambda waiting: chance.randrange(len(waiting))


class WorkflowDriver:
    """Everything around a run that is not the engine.

    Attributes:
        inputs: who was fired, and what they saw.
        batches: how many units were handed out together, and how many of them at once.
    """

    def __init__(
        self,
        *,
        answers: Sequence[str] = (),
        pick: Callable[[Sequence[FireNode]], int] = first,
        tell: Callable[[Notice], None] | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        directory: Path | None = None,
    ) -> None:
        self.inputs: list[Seen] = []
        self.batches: list[tuple[str, int, int]] = []
        self._answers = list(answers)
        self._pick = pick
        self._tell = tell
        self._clock = clock
        self._calls: Counter[str] = Counter()
        self._boards: dict[str, list[str]] = {}
        self._directory = directory

    def run(self, found: Structure, given: Sequence[Message] | None = None) -> MachineResult:
        machine = self._heard(StateMachine(found, warn=self._tell))
        return self.play(machine, given if given is not None else task())

    def _heard(self, machine: StateMachine) -> StateMachine:
        """The machine, whose queues tell what comes and goes."""
        if self._tell is not None:
            machine._queues = [HeardQueue(place.id, self._tell) for place in machine.structure.places]
        return machine

    def play(self, machine: StateMachine, given: Sequence[Message]) -> MachineResult:
        """Run a machine to its end; `pick` says which of the nodes under way is done next."""
        waiting = self._seen(machine.begin(given))
        while waiting:
            firing = Firing(waiting.pop(self._pick(waiting)), machine.structure, self._clock())
            waiting += self._seen(machine.done(now(perform(firing, self._work(machine, firing)))))
        assert machine.finished
        return machine.result()

    def _seen(self, firings: list[FireNode]) -> list[FireNode]:
        self.inputs += [(firing.node, firing.inputs) for firing in firings]
        return firings

    def _work(self, machine: StateMachine, firing: Firing) -> Any:
        async def work(units: Sequence[Unit], limit: int) -> list[Said]:
            self.batches.append((firing.place.id, len(units), limit))
            return [self._one(machine, firing, unit) for unit in units]

        return work

    def _one(self, machine: StateMachine, firing: Firing, unit: Unit) -> Said:
        config = firing.node.config
        try:
            if isinstance(config, AgentConfig):
                return self._agent(machine, firing, config, unit)
            if isinstance(config, HumanConfig):
                return Said(outputs=(Message(role="user", content=self._human()),))
            if isinstance(config, PythonConfig):
                return Said(outputs=(Message(role="assistant", content=self._python(config, unit)),))
            assert isinstance(config, SubgraphConfig)
            within = machine.structure.within(firing.place)
            inner = self._heard(StateMachine(within, warn=self._tell, order=machine.order))
            return self.play(inner, unit.inputs).as_output()
        except CallboardError as error:
            return Said(error=error)

    # --- people and programs ------------------------------------------------------------------------------

    def _human(self) -> str:
        if not self._answers:
            raise NobodyToAsk("nobody is there to be asked")
        return self._answers.pop(0)

    def _python(self, config: PythonConfig, unit: Unit) -> str:
        text = unit.inputs[-1].text if unit.inputs else ""
        code = text.split("```")[1].partition("\n")[2] if "```" in text else text
        command = [config.interpreter or sys.executable, *config.args, "-c", textwrap.dedent(code).strip()]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=config.timeout_seconds, check=False)
        except subprocess.TimeoutExpired as error:
            tail = (error.stdout or b"").decode()
            return f"{CODE_FAILED}\nScript did not finish within {config.timeout_seconds}s\nstderr:\n{tail}"
        if ran.returncode:
            return f"{CODE_FAILED}\nScript execution failed\nexit_code={ran.returncode}\nstderr:\n{ran.stderr}"
        return ran.stdout

    # --- models -------------------------------------------------------------------------------------------

    def _agent(self, machine: StateMachine, firing: Firing, config: AgentConfig, unit: Unit) -> Said:
        id = firing.place.id
        role = role_of(unit, config.role) if config.role else None
        sent = conversation(role, unit.inputs, config.input_mode)
        sent = remembering(
            sent, [(use.name, self._read(machine, use.name, use.top_k)) for use in config.memories if use.read]
        )
        if config.provider == "tstub":
            return self._with_tool(id, config, sent)
        if config.provider != "stub":
            raise GraphMistake(f"there is no provider '{config.provider}'")
        text = self._stub(id, config, sent)
        if config.thinking is not None:
            text = self._stub(id, config, sent)
        for use in config.memories:
            if use.write and use.name in _blackboards(machine):
                self._boards.setdefault(use.name, []).append(text)
        return Said(outputs=(Message(role="assistant", content=text),))

    def _read(self, machine: StateMachine, name: str, top_k: int) -> list[str]:
        return self._boards.get(name, [])[-top_k:] if name in _blackboards(machine) else []

    def _stub(self, id: str, config: AgentConfig, sent: Sequence[Message]) -> str:
        self._calls[id] += 1
        call, params = self._calls[id], config.params
        if call <= params.get("raise_times", 0):
            raise NodeFailed(params["raise"])
        if "reply" in params:
            return str(params["reply"])
        if "seq" in params:
            return str(params["seq"][min(call, len(params["seq"])) - 1])
        return f"{id}<{_transcript(sent)}>"

    def _with_tool(self, id: str, config: AgentConfig, sent: list[Message]) -> Said:
        names = [tool.name for source in config.tooling for tool in source.config.tools]
        for name, count in Counter(names).items():
            if count > 1:
                hint = "Please use a unique 'prefix' in your tooling configuration."
                raise NodeFailed(f"Duplicate tool name '{name}' detected. {hint}")
        self._calls[id] += 1
        calling = Message(role="assistant", content=f"calling{self._calls[id]}")
        result = Message(role="tool", content=json.dumps({"city_num": 3701}, indent=2))
        self._calls[id] += 1
        after = _transcript([*sent, calling, result])
        final = Message(role="assistant", content=f"final{self._calls[id]} after {after}")
        return Said(outputs=(final,), trace=(calling, result, final))


def _blackboards(machine: StateMachine) -> set[str]:
    return {store.name for store in machine.structure.graph.memory if type(store.config).__name__ == "Blackboard"}


def _transcript(messages: Sequence[Message]) -> str:
    return " ; ".join(f"{message.role}:{message.text}" for message in messages)
