"""The three walks of docs/architecture.md: how many files a prompt, a call of an MCP tool and a question pass.

A file counts when a function of it is called; a hop is a call that goes on in another file than the one before it.
Counted is the third time, when all that is kept between runs is kept.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.agent_runs import AgentRunner
from support.answering_person import Person
from support.fake_models import FakeModels, Reply
from support.mcp_entries import _own_cache, mcp_json, scripted  # noqa: F401 - a fixture

import callboard
from callboard.protocol.agent import Agent
from callboard.protocol.events import Event

from .import_graph import MODULES, ROOT

PAGE = ROOT / "docs" / "architecture.md"
OURS = {str(path): name for name, path in MODULES.items()}


class Walk:
    """What is called while `on`, in this thread and in those that are started after it was made."""

    def __init__(self) -> None:
        self.on = False
        self.files: dict[str, None] = {}
        self.hops = 0
        self._last = ""

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        if self.on and event == "call" and (name := OURS.get(frame.f_code.co_filename)) and name != self._last:
            self._last = name
            self.hops += 1
            self.files[name] = None

    @contextmanager
    def profiled(self) -> Iterator[None]:
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            yield
        finally:
            threading.setprofile(None)
            sys.setprofile(None)

    def between(self, first: str, last: str) -> Any:
        """What hears the events of a run, and counts from the one kind to the other."""

        def hear(event: Event) -> None:
            self.on = event.kind == first or (self.on and event.kind != last)

        return hear


def kept(walk: str) -> tuple[int, int]:
    """Files and hops that the page says a walk takes at most."""
    row = re.search(rf"^\| {walk} \|.*\| (\d+) \| (\d+) \|$", PAGE.read_text(), re.MULTILINE)
    assert row, f"docs/architecture.md does not say how long {walk} is"
    return int(row[1]), int(row[2])


def compare(walk: Walk, name: str) -> None:
    files, hops = kept(name)
    print(name, len(walk.files), walk.hops, *walk.files, sep="\n  ")
    assert 0 < len(walk.files) <= files, "a detour? if not, correct docs/architecture.md"
    assert walk.hops <= hops


@pytest.fixture
async def agent_runner(fake_model: FakeModels, tmp_path: Path) -> AsyncIterator[AgentRunner]:
    config_dir = fake_model.config_dir(tmp_path)
    async with callboard.Root(config_dir=config_dir) as root:
        yield AgentRunner(config_dir, fake_model, root)


@pytest.fixture
def walk() -> Iterator[Walk]:
    walk = Walk()
    with walk.profiled():
        yield walk


async def test_a_prompt_through_a_graph_of_one_node(agent_runner: AgentRunner, walk: Walk) -> None:
    agent_runner.agent(
        """
        start: say
        nodes:
          say: {type: llm, prompt: "{{initial_prompt}}", state_updates: {said: "{{output}}"}, next: end}
          end: {type: end, output: "{{said}}"}
        """
    )
    for path in [agent_runner.config_dir, *agent_runner.config_dir.rglob("*")]:
        os.utime(path, (0, 0))  # files that were written a moment ago are read again
    for walk.on in (False, False, True):
        outcome = await callboard.run(
            "g", "hello", root=agent_runner.root
        )  # not heard: nothing is told that nothing hears
        assert outcome.output == "ok"
    walk.on = False
    compare(walk, "a prompt")


async def test_a_call_of_an_mcp_tool(agent_runner: AgentRunner, walk: Walk) -> None:
    mcp_json(agent_runner.config_dir, srv=scripted())
    agent = Agent(name="a", instructions="Help.", mcp_servers=("srv",), mcp_tools="direct")
    call = ("srv__add", {"a": 1, "b": 2})
    agent_runner.models.script(Reply(calls=[call]), Reply(calls=[call]), "3")
    calls = 0

    def hear(event: Event) -> None:
        nonlocal calls
        calls += event.kind == "tool.call.started"
        if calls == 2:  # the first one starts the server
            counting(event)

    counting = walk.between("tool.call.started", "tool.call.finished")
    outcome = await agent_runner.run("go", target=agent, on_event=hear, yes=True)
    assert outcome.output == "3"
    compare(walk, "an MCP call")


async def test_a_question_of_a_node_and_its_answer(agent_runner: AgentRunner, walk: Walk) -> None:
    agent_runner.agent(
        """
        start: who
        nodes:
          who: {type: input, question: "Who?", state_updates: {who: "{{input}}"}, next: end}
          end: {type: end, output: "{{who}}"}
        """
    )
    kernel = agent_runner.root.kernel
    with kernel.questions.attach(Person(kernel, lambda _: "me")):
        await agent_runner.run("hello")
        outcome = await agent_runner.run("hello", on_event=walk.between("node.entered", "node.exited"))
    assert outcome.output == "me"
    compare(walk, "a question")
