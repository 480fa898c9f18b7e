"""Plays runs of many shapes on the scripted model and writes down their events: `recorded/*.jsonl`.

    pytest tests/actors/views/record.py

Run it again when kinds of events are added; ids of runs, times and paths of this machine are replaced.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import trio
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request

from callboard.protocol.events import Event, encode

RECORDED = Path(__file__).with_name("recorded")

GRAPH = """
start: fan
initial_state: {tries: 0}
nodes:
  fan: {type: map, over: "{{items}}", as: item, branch: one, collect_into: all, output_key: o, next: broken}
  one: {type: llm, prompt: "item {{item}}", state_updates: {o: "<{{output}}>"}}
  broken: {type: script, script: broken.sh, fallback: asks}
  asks:
    type: approval
    question: "Go on?"
    options: [accept, reject]
    routes: {accept: again, reject: done}
    on_other: done
  again: {type: script, script: again.sh, fallback: done}
  part: {type: agent, agent: inner, prompt: "within", next: [left, right]}
  left: {type: script, script: left.sh, state_updates: {}, next: done}
  right: {type: script, script: left.sh, state_updates: {}, next: done}
  done: {type: end, output: "{{all}}"}
"""
INNER = """
start: s
nodes:
  s: {type: llm, prompt: "inside", next: done}
  done: {type: end, output: "in"}
"""
WORKFLOW = """
version: "1.0"
graph:
  id: pair
  start: Say
  end: Shout
  nodes:
    - {id: Say, type: literal, config: {content: hello, role: user}}
    - {id: Shout, type: passthrough, config: {}}
  edges:
    - {from: Say, to: Shout}
"""
AGAIN = """
n=$(printf %s "$GRAPH_STATE" | jq '.tries + 1')
if [ "$n" -lt 3 ]; then next=again; else next=part; fi
printf '{"tries": %s, "_next": "%s"}' "$n" "$next"
"""


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def bad() -> int:
    """Fails."""
    raise ValueError("that went wrong")


def team(request: Request) -> Reply | str:
    """A boss that spawns a child, calls tools of which one fails, and collects."""
    if request.prompt.startswith("child"):
        return "kid done"
    if not request.results:
        calls = [("agent__spawn", {"agent": "kid", "prompt": "child"}), ("add", {"a": 1, "b": 2}), ("bad", {})]
        return Reply(text="first", calls=calls)
    if len(request.results) == 3:
        return Reply(calls=[("agent__collect", {"id": json.loads(request.results[0])["id"]})])
    return Reply(text="boss done")


def write(name: str, events: list[Event], config_dir: Path) -> None:
    """One run's lines."""
    text = "".join(encode(event).decode() + "\n" for event in events)
    text = text.replace(str(config_dir), "/config").replace(events[0].run, "run-00000001")
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:1", text)
    (RECORDED / f"{name}.jsonl").write_text(text)


async def test_a_team_of_agents(agent_runner: AgentRunner) -> None:
    agent_runner.plain("instructions: boss\ncan_spawn_agents: true\ncan_ask_user: false", name="boss")
    agent_runner.plain("instructions: kid\ncan_ask_user: false", name="kid")
    agent_runner.models.answer_with(team)
    outcome = await agent_runner.run("do it", target="boss", tools=[add, bad])
    assert outcome.status == "done", outcome.error
    write("team", agent_runner.events, agent_runner.config_dir)


async def test_a_model_that_fails_first(agent_runner: AgentRunner) -> None:
    agent_runner.plain("instructions: solo\ncan_ask_user: false", name="solo")
    agent_runner.models.script(Reply(status=429, error="slow down", headers={"retry-after": "0"}), "at last")
    await agent_runner.run("do it", target="solo")
    agent_runner.models.answer_with(lambda _: Reply(status=401, error="no such key"))
    write("retried", agent_runner.events, agent_runner.config_dir)
    agent_runner.events.clear()
    await agent_runner.run("do it", target="solo")
    write("refused", agent_runner.events, agent_runner.config_dir)


async def test_a_graph_with_all_kinds_of_nodes(agent_runner: AgentRunner) -> None:
    agent_runner.agent(GRAPH, broken="exit 3", again=AGAIN, left="echo '{}'")
    agent_runner.agent(INNER, name="inner")
    for name, answer in (("graph", "accept"), ("short", "reject")):
        agent_runner.events.clear()
        await agent_runner.run("it", state={"items": [1, 2, 3]}, answers=[answer])
        write(name, agent_runner.events, agent_runner.config_dir)


async def test_a_run_that_is_interrupted(agent_runner: AgentRunner) -> None:
    agent_runner.plain("instructions: boss\ncan_spawn_agents: true\ncan_ask_user: false", name="boss")
    agent_runner.plain("instructions: kid\ncan_ask_user: false", name="kid")
    agent_runner.models.answer_with(
        lambda request: Reply(text="slow", delay=1000) if request.prompt.startswith("child") else team(request)
    )
    with trio.move_on_after(1):
        await agent_runner.run("do it", target="boss", tools=[add, bad])
    write("interrupted", agent_runner.events, agent_runner.config_dir)


async def test_a_workflow(agent_runner: AgentRunner, tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(WORKFLOW)
    outcome = await agent_runner.run("it", target=path)
    assert outcome.output, outcome.error
    write("workflow", agent_runner.events, agent_runner.config_dir)
