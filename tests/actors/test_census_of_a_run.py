"""A census of a whole run: what happens in it comes to its actors as mail, one message each.

The run has all there is: an agent whose model spawns another and collects it, a graph with a fan-out, a node that asks
a person, an agent node, and an MCP server that is a process. Expected is the mail of every actor, kind by kind; the
kernel counts as many messages in its mailbox. What goes around the mailbox is missing in one of the two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio
from fake_models import Reply, Request
from mcp_stage import _own_cache, mcp_json, scripted, starts  # noqa: F401 - a fixture
from person import Person
from stage import Stage

from callboard.actors.engine.driver import Decider, Driver, Tape
from callboard.protocol.effects import Effect
from callboard.protocol.events import Event
from callboard.supervisors import Root
from callboard.supervisors.census import Sent, find

GRAPH = """
start: what
nodes:
  what: {type: input, question: "What is it called?", state_updates: {name: "{{input}}"}, next: split}
  split: {type: script, script: split.sh, state_updates: {}, next: [left, right]}
  left: {type: llm, prompt: "left of {{name}}", state_updates: {left: "{{output}}"}, next: sum}
  right: {type: llm, prompt: "right of {{name}}", state_updates: {right: "{{output}}"}, next: sum}
  sum: {type: agent, agent: clerk, prompt: "add", state_updates: {sum: "{{output}}"}, next: end}
  end: {type: end, output: "{{left}}, {{right}}, {{sum}}"}
"""
BOSS = "instructions: I am the boss\ncan_spawn_agents: true\ncan_ask_user: false\nauto_continue: false"
CLERK = "instructions: I am a clerk\nmcp_servers: [srv]\nmcp_tools: direct\ncan_ask_user: false\nauto_continue: false"


class Census:
    """What each actor has received and sent, ended ones included, and what its decider was told.

    Attributes:
        told: kinds of messages that a decider was told, in order, by the path of its actor.
    """

    def __init__(self, root: Root) -> None:
        self.told: dict[str, list[str]] = {}
        self._root = root
        self._actors = {"/": root.actor}
        self._sent = _Kept(root)

    @contextmanager
    def taken(self) -> Iterator[None]:
        before, Driver.tapes = Driver.tapes, self._tape
        self._root.sent = self._sent
        try:
            with self._root.bus.listen(self._hear):
                yield
        finally:
            Driver.tapes, self._root.sent = before, None

    @property
    def received(self) -> dict[str, int]:
        """Of the actors that have received anything."""
        counted = {named(path): actor.mailbox.received for path, actor in self._actors.items()}
        return {path: count for path, count in counted.items() if count}

    @property
    def sent(self) -> dict[str, int]:
        return {named(actor.path): count for actor, count in self._sent.items()}

    def _hear(self, event: Event) -> None:
        if event.kind == "actor.spawned":
            actor = find(self._root, event.actor)
            assert actor is not None
            self._actors[event.actor] = actor

    def _tape(self, decider: Decider, afresh: Callable[[], Decider]) -> Tape:
        actor = self._root.actor_of(trio.lowlevel.current_task())
        assert actor is not None
        kinds = self.told[named(actor.path)] = []

        class Kinds:
            def wrote(self, message: Any, _: list[Effect]) -> None:
                kinds.append(type(message).__name__)

        return Kinds()


class _Kept(Sent):
    """Remembers those that have ended as well."""

    def pop(self, *_: Any) -> Any:
        return None


def named(path: str) -> str:
    """A path without what differs from run to run."""
    return re.sub(r"_[0-9a-f]{8}\b", "", re.sub(r"^/run-[0-9a-f]+", "/run", path))


def answer(request: Request) -> Reply | str:
    """All models of the run."""
    if "clerk" in request.system:
        return request.results[-1] if request.results else Reply(calls=[("srv__add", {"a": 1, "b": 2})])
    if "boss" not in request.system:
        return request.prompt
    if not request.results:
        return Reply(calls=[("agent__spawn", {"agent": "steps", "prompt": "go"})])
    last = json.loads(request.results[-1].split("\n\n")[0])
    return str(last["output"]) if "exit_status" in last else Reply(calls=[("agent__collect", {"id": last["id"]})])


STEPS = "/run/boss/children/agent_steps/steps"
HOUSEKEEPING = {"Idle", "LookedAround"}
"""What a driver tells its own decider between two requests to a model."""

DECIDED: dict[str, list[str]] = {
    "/run/boss": ["Replied", "ToolDone", "Replied", "ToolDone", "Replied"],
    STEPS: ["NodeLeft", "NodeLeft", "NodeLeft", "NodeLeft", "NodeLeft"],
    f"{STEPS}/sum/clerk": ["Replied", "ToolDone", "Replied"],
}
"""Mail that a decider was told, by the path of its actor."""

OTHER = {
    "/": 1,  # the question of the input node
    f"{STEPS}/what": 1,  # its answer
    "/run/boss/children": 1,  # the end of the child that was spawned
}
"""Messages to actors without a decider."""


async def test_every_result_question_and_answer_of_a_run_is_one_message_in_a_mailbox(stage: Stage) -> None:
    mcp_json(stage.config_dir, srv=scripted())
    stage.agent(GRAPH, name="steps", split="echo {}")
    stage.plain(BOSS, name="boss")
    stage.plain(CLERK, name="clerk")
    stage.models.answer_with(answer)
    root = stage.root.kernel
    census = Census(root)
    with census.taken(), root.questions.attach(Person(stage.root, lambda _: "Bo")):
        outcome = await stage.run("go", target="boss")
    assert outcome.output == "left of Bo, right of Bo, 3"
    assert starts(stage.config_dir, "srv") == 1
    told = {path: kinds[1:] for path, kinds in census.told.items()}  # the first is the request, no message
    assert {path: [kind for kind in kinds if kind not in HOUSEKEEPING] for path, kinds in told.items()} == DECIDED
    assert census.received == {path: len(kinds) for path, kinds in told.items()} | OTHER
    assert census.sent == {f"{STEPS}/what": 1, "/": 1}, "a question and its answer"
