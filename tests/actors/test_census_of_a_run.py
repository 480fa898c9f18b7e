"""A census of a whole run: what happens in it comes to its actors as mail, one message each.

The run has all there is: an agent whose model spawns another and collects it, a graph with a fan-out, a node that asks
a person, an agent node, and an MCP server that is a process. Expected is the mail of every actor, kind by kind; the
kernel counts as many messages in its mailbox. What goes around the mailbox is missing in one of the two.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio
from support.agent_runs import AgentRunner
from support.answering_person import Person
from support.fake_models import Reply, Request
from support.mcp_entries import _own_cache, mcp_json, scripted, starts  # noqa: F401 - a fixture

from callboard.actors.engine.driver import Decider, Tape, recorder
from callboard.protocol.effects import Effect
from callboard.protocol.events import Event
from callboard.supervisors import Root
from callboard.supervisors.introspection import SentCounts, find

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
BOSS = "can_spawn_agents: true"
PAL = ""
CLERK = "mcp_servers: [srv]\nmcp_tools: direct"


class Census:
    """What each actor has received and sent, ended ones included, and what its decider was told.

    Attributes:
        told: kinds of messages that a decider was told, in order, by the path of its actor.
    """

    def __init__(self, root: Root) -> None:
        self.told: dict[str, list[str]] = {}
        self._root = root
        self._actors = [root.actor]
        self._sent = _Kept(root)

    @contextmanager
    def taken(self) -> Iterator[None]:
        before, self._root.sent = recorder.set(self._tape), self._sent
        try:
            with self._root.bus.listen(self._hear):
                yield
        finally:
            recorder.reset(before)
            self._root.sent = None

    @property
    def received(self) -> Counter[str]:
        """Messages by actor; those of actors of one name, one after another, together."""
        counted: Counter[str] = Counter()
        for actor in self._actors:
            counted[named(actor.path)] += actor.mailbox.received
        return +counted

    @property
    def sent(self) -> Counter[str]:
        return +Counter({named(actor.path): count for actor, count in self._sent.items()})

    def _hear(self, event: Event) -> None:
        if event.kind == "actor.spawned":
            actor = find(self._root, event.actor)
            assert actor is not None
            self._actors.append(actor)

    def _tape(self, decider: Decider, afresh: Callable[[], Decider]) -> Tape:
        actor = self._root.tasks.get(trio.lowlevel.current_task())
        assert actor is not None
        kinds = self.told[named(actor.path)] = []

        class Kinds:
            def wrote(self, message: Any, _: list[Effect]) -> None:
                kinds.append(type(message).__name__)

        return Kinds()


class _Kept(SentCounts):
    """Remembers those that have ended as well."""

    def pop(self, *_: Any) -> Any:
        return None


def named(path: str) -> str:
    """A path without what differs from run to run."""
    return re.sub(r"_[0-9a-f]{8}\b|#\d+$", "", re.sub(r"^/run-[0-9a-f]+", "/run", path))


def answer(request: Request) -> Reply | str:
    """All models of the run."""
    if "I am the clerk" in request.system:
        return request.results[-1] if request.results else Reply(calls=[("srv__add", {"a": 1, "b": 2})])
    if "I am the pal" in request.system:
        hello = ("agent__send_message", {"id": "parent", "message": "hello"})
        return "sent" if request.results else Reply(calls=[hello])
    return boss(request) if "I am the boss" in request.system else request.prompt


def boss(request: Request) -> Reply | str:
    """Spawns both of its children, collects them one after another, then reads its letters."""
    results = [json.loads(text.split("\n\n")[0]) for text in request.results]
    if not results:
        return Reply(calls=[("agent__spawn", {"agent": name, "prompt": "go"}) for name in ("steps", "pal")])
    collected = {result["id"]: result["output"] for result in results if "exit_status" in result}
    if "messages" in results[-1]:
        return f"{results[-1]['messages'][0]['payload']['content']}; {'; '.join(collected.values())}"
    waiting = [result["id"] for result in results[:2] if result["id"] not in collected]
    return Reply(calls=[("agent__collect", {"id": waiting[0]}) if waiting else ("agent__check_inbox", {})])


STEPS = "/run/boss/children/agent_steps/steps"
HOUSEKEEPING = {"Idle", "ToolsChecked"}
"""What a driver tells its own decider between two requests to a model."""


def decided(kinds: Counter[str]) -> dict[str, int]:
    return {kind: count for kind, count in kinds.items() if kind not in HOUSEKEEPING}


async def test_every_result_letter_question_and_answer_of_a_run_is_one_message_in_a_mailbox(
    agent_runner: AgentRunner,
) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    agent_runner.agent(GRAPH, name="steps", split="echo {}")
    for name, config in {"boss": BOSS, "pal": PAL, "clerk": CLERK}.items():
        agent_runner.plain(
            f"instructions: I am the {name}\nauto_continue: false\ncan_ask_user: false\n{config}", name=name
        )
    agent_runner.models.answer_with(answer)
    root = agent_runner.root.kernel
    census = Census(root)
    with census.taken(), root.questions.attach(Person(agent_runner.root, lambda _: "Bo")):
        outcome = await agent_runner.run("go", target="boss")
    assert set(outcome.output.split("; ")) == {"hello", "left of Bo, right of Bo, 3", "sent"}
    assert starts(agent_runner.config_dir, "srv") == 1
    requests = [request for request in agent_runner.models.requests if "I am the boss" in request.system]
    replies, calls = len(requests), len(requests[-1].results)

    told = {path: Counter(kinds[1:]) for path, kinds in census.told.items()}  # the first is the request, no message
    assert {
        path: {kind: count for kind, count in kinds.items() if kind not in HOUSEKEEPING} for path, kinds in told.items()
    } == {
        "/run/boss": {
            "Replied": replies,
            "FamilyCalled": calls,
            "ToolDone": calls,
            "ChildEnded": 2,
            "TeamMessage": 1,
            "EscalationNoted": 1,
            "EscalationClosed": 1,
        },
        "/run/boss/children/agent_pal/pal": {"Replied": 2, "ToolDone": 1},
        STEPS: {"NodeDone": 5},
        f"{STEPS}/sum/clerk": {"Replied": 2, "ToolDone": 1},
    }
    by_call = {path: count for path, count in census.received.items() if path.startswith("/run/boss/agent__")}
    assert sum(by_call.values()) == calls, "each call that the decider answers is told its result"
    other = {"/": 1, f"{STEPS}/what": 1}  # the question and its answer
    other["/limiters/1-fake:model"] = 2 * len(
        agent_runner.models.requests
    )  # that it goes out, and that it was answered
    told["/run/boss"]["Admitted"] = 1  # the very first request has asked whether it may
    assert census.received == {path: kinds.total() for path, kinds in told.items()} | by_call | other
    assert census.sent[f"{STEPS}/what"] == 1
    assert census.sent["/run/boss/children/agent_pal/pal/agent__send_message"] == 1
