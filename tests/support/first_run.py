"""A process of its own that plays its first run of a kind, and tells what the thread of its event loop has imported.

    python tests/support/first_run.py KIND DIRECTORY

The process is a test's; the modules that are imported while the root opens do not count.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import trio

import callboard
from support.agent_runs import AgentRunner
from support.fake_models import FakeModels, Reply, listening
from support.mcp_entries import mcp_json, scripted

run = callboard.run  # imports what is imported at the first use of the name
AGENT = callboard.Agent(name="g", instructions="x")
SCHEMA = "{type: object, properties: {x: {type: string}}}"
PYTHON = """
version: 0.4.0
graph:
  id: w
  start: [a]
  end: [b]
  nodes:
    - {id: a, type: agent, config: {provider: openai, name: m, base_url: URL, api_key: x, role: hi}}
    - {id: b, type: python, config: {timeout_seconds: 60}}
  edges: [{from: a, to: b}]
"""


def say(word: str) -> str:
    """Says it."""
    return word


async def tools(agent_runner: AgentRunner) -> callboard.Outcome:
    home = agent_runner.plain("instructions: x\nglobal_tools: [fs_ls]\nauto_continue: true", name="g")
    (home / "tools.sh").write_text("# @cmd Says hello\nhello() { echo hello; }\n")
    agent_runner.models.script(Reply(calls=[("todo__add", {"task": "x"}), ("fs_ls", {"path": "/tmp"}), ("hello", {})]))
    return await agent_runner.run("hi", yes=True)


async def functions(agent_runner: AgentRunner) -> callboard.Outcome:
    agent_runner.models.script(Reply(calls=[("say", {"word": "y"})]))
    return await run(AGENT, "hi", root=agent_runner.root, tools=[say])


async def spawning(agent_runner: AgentRunner) -> callboard.Outcome:
    agent_runner.plain("instructions: x\ncan_spawn_agents: true", name="g")
    agent_runner.plain("instructions: x", name="child")
    agent_runner.models.script(Reply(calls=[("agent__spawn", {"agent": "child", "prompt": "x"})]))
    return await agent_runner.run("hi")


async def servers(agent_runner: AgentRunner) -> callboard.Outcome:
    mcp_json(agent_runner.config_dir, s=scripted())
    agent_runner.plain("instructions: x\nmcp_servers: [s]", name="g")
    return await agent_runner.run("hi")


async def documents(agent_runner: AgentRunner) -> callboard.Outcome:
    home = agent_runner.plain("instructions: x\ndocuments: [a.md]", name="g")
    (home / "a.md").write_text("# Hello\nworld\n")
    return await agent_runner.run("hi", yes=True)


async def graph(agent_runner: AgentRunner) -> callboard.Outcome:
    asks = f"{{type: llm, prompt: hi, output_schema: {SCHEMA}, next: b}}"
    script = "{type: script, script: s.sh, next: c}"
    agent_runner.agent(f"start: a\nnodes:\n  a: {asks}\n  b: {script}\n  c: {{type: end, output: c}}", s="echo '{}'")
    agent_runner.models.script('{"x": "y"}')
    return await agent_runner.run("hi")


async def durable(agent_runner: AgentRunner) -> callboard.Outcome:
    asks = "{type: llm, prompt: hi, next: c}"
    agent_runner.agent(f"start: a\nnodes:\n  a: {asks}\n  c: {{type: end, output: c}}")
    return await agent_runner.run("hi", durable=True)


async def workflow(agent_runner: AgentRunner) -> callboard.Outcome:
    file = agent_runner.config_dir / "w.yaml"
    file.write_text(PYTHON.replace("URL", agent_runner.models.openai_base))
    agent_runner.models.script("```python\nprint(1)\n```")
    return await agent_runner.run("hi", target=file)


KINDS: dict[str, Callable[[AgentRunner], Awaitable[callboard.Outcome]]] = {
    each.__name__: each for each in (tools, functions, spawning, servers, documents, graph, durable, workflow)
}


async def main(kind: str, directory: Path) -> None:
    """Prints the modules, a line each."""
    imported: list[str] = []
    listener, port = listening()
    models = FakeModels(port)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(models.serve, listener)
        config_dir = models.config_dir(directory / "config")
        async with callboard.Root(config_dir=config_dir) as root:
            loop = threading.get_ident()

            def heard(event: str, arguments: tuple[Any, ...]) -> None:
                if event == "import" and threading.get_ident() == loop:
                    imported.append(arguments[0])

            sys.addaudithook(heard)
            outcome = await KINDS[kind](AgentRunner(config_dir, models, root))
            found = list(imported)
        nursery.cancel_scope.cancel()
    assert outcome.status == "done", outcome.error
    sys.stdout.write("\n".join(found))


if __name__ == "__main__":
    os.environ["XDG_STATE_HOME"] = os.environ["XDG_CACHE_HOME"] = os.environ["XDG_RUNTIME_DIR"] = sys.argv[2]
    trio.run(main, sys.argv[1], Path(sys.argv[2]))
