"""Graphs, agents and workflows for one cluster, whose effects are lines `TAG EFFECT` of one file; and their model.

steps, asks    graphs of scripts, lanes and people (`support.cluster`)
clerk          an agent that runs two commands, and has a child (`mate`) run a third in between
chain          a workflow: code that a model writes, a function that a model calls, and a person
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "runs" / "durable"))

from played_agents import Said
from support.cluster import ClusterProcesses
from support.fake_models import Reply, Request

EFFECTS = {
    "steps": ("one", "two", "left", "right", "last"),
    "asks": ("one", "last"),
    "clerk": ("first", "mate", "second"),
    "chain": ("Code", "mark"),
}
"""Of each kind of run."""

CALLED = {"first", "mate", "second", "mark"}
"""Those that a model calls for."""

PAUSE = 0.1
"""Seconds from each effect on for which it is under way."""

CHAIN = """
graph:
  id: chain
  start: [Write]
  end: [End]
  nodes:
    - {id: Write, type: agent, config: {provider: fake, name: m, role: WRITE}}
    - {id: Code, type: python, config: {}}
    - id: Mark
      type: agent
      config: {provider: fake, name: m, role: MARK, tooling: [{type: function, config: {tools: [{name: mark}]}}]}
    - {id: Boss, type: human, config: {description: "Well?"}}
    - {id: End, type: passthrough, config: {}}
  edges: [{from: Write, to: Code}, {from: Code, to: Mark}, {from: Mark, to: Boss}, {from: Boss, to: End}]
"""

DO = """
import time
with open({world!r}, "a") as file:
    file.write({line} + "\\n")
time.sleep({pause})
"""


def write(cluster_processes: ClusterProcesses) -> None:
    """The agents and the workflow, beside the graphs of every cluster test."""
    agents = cluster_processes.config / "agents"
    for name, more in (("clerk", {"can_spawn_agents": True}), ("mate", {})):
        (agents / name).mkdir()
        config = {"name": name, "instructions": f"AGENT {name}.", "global_tools": ["execute_command"], **more}
        (agents / name / "config.yaml").write_text(json.dumps(config))
    functions = agents / "chain" / "functions" / "function_calling"
    functions.mkdir(parents=True)
    (agents / "chain" / "flow.yaml").write_text(CHAIN)
    body = DO.format(world=str(cluster_processes.world), line='f"{tag} mark"', pause=PAUSE).replace("\n", "\n    ")
    (functions / "ours.py").write_text(f"def mark(tag: str) -> str:{body}\n    return 'marked'\n")


def target(cluster_processes: ClusterProcesses, kind: str) -> str:
    """What a run of this kind is of."""
    return str(cluster_processes.config / "agents" / "chain" / "flow.yaml") if kind == "chain" else kind


def say(world: Path, request: Request) -> Reply:
    """What the model says: it depends on the request alone."""
    if request.system.startswith("AGENT"):
        tag = next(each["content"] for each in request.json["messages"] if each["role"] == "user")
        return _clerk(world, Said(request), tag) if "clerk" in request.system else _mate(world, Said(request), tag)
    if request.system == "WRITE":
        code = DO.format(world=str(world), line=repr(f"{request.prompt} Code"), pause=PAUSE)
        return Reply(text=f"```python{code}print({request.prompt!r})\n```")
    if request.results:
        return Reply(text="marked")
    return Reply(calls=[("mark", {"tag": request.prompt.strip()})])


def _clerk(world: Path, said: Said, tag: str) -> Reply:
    runs, child = said.of("execute_command"), said.child(tag)
    if not runs:
        return _runs(world, tag, "first")
    if not child:
        return Reply(calls=[("agent__spawn", {"agent": "mate", "prompt": tag})])
    if said.collected(child) is None:
        return Reply(calls=[("agent__collect", {"id": child})])
    return Reply(text=f"clerk of {tag}") if len(runs) > 1 else _runs(world, tag, "second")


def _mate(world: Path, said: Said, tag: str) -> Reply:
    return Reply(text="mate") if said.calls else _runs(world, tag, "mate")


def _runs(world: Path, tag: str, effect: str) -> Reply:
    return Reply(calls=[("execute_command", {"command": f"echo {tag} {effect} >> {world}; sleep {PAUSE}"})])
