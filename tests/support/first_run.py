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
from support.agent_runs import Stage
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


async def tools(stage: Stage) -> callboard.Outcome:
    home = stage.plain("instructions: x\nglobal_tools: [fs_ls]\nauto_continue: true", name="g")
    (home / "tools.sh").write_text("# @cmd Says hello\nhello() { echo hello; }\n")
    stage.models.script(Reply(calls=[("todo__add", {"task": "x"}), ("fs_ls", {"path": "/tmp"}), ("hello", {})]))
    return await stage.run("hi", yes=True)


async def functions(stage: Stage) -> callboard.Outcome:
    stage.models.script(Reply(calls=[("say", {"word": "y"})]))
    return await run(AGENT, "hi", root=stage.root, tools=[say])


async def spawning(stage: Stage) -> callboard.Outcome:
    stage.plain("instructions: x\ncan_spawn_agents: true", name="g")
    stage.plain("instructions: x", name="child")
    stage.models.script(Reply(calls=[("agent__spawn", {"agent": "child", "prompt": "x"})]))
    return await stage.run("hi")


async def servers(stage: Stage) -> callboard.Outcome:
    mcp_json(stage.config_dir, s=scripted())
    stage.plain("instructions: x\nmcp_servers: [s]", name="g")
    return await stage.run("hi")


async def documents(stage: Stage) -> callboard.Outcome:
    home = stage.plain("instructions: x\ndocuments: [a.md]", name="g")
    (home / "a.md").write_text("# Hello\nworld\n")
    return await stage.run("hi", yes=True)


async def graph(stage: Stage) -> callboard.Outcome:
    asks = f"{{type: llm, prompt: hi, output_schema: {SCHEMA}, next: b}}"
    script = "{type: script, script: s.sh, next: c}"
    stage.agent(f"start: a\nnodes:\n  a: {asks}\n  b: {script}\n  c: {{type: end, output: c}}", s="echo '{}'")
    stage.models.script('{"x": "y"}')
    return await stage.run("hi")


async def durable(stage: Stage) -> callboard.Outcome:
    asks = "{type: llm, prompt: hi, next: c}"
    stage.agent(f"start: a\nnodes:\n  a: {asks}\n  c: {{type: end, output: c}}")
    return await stage.run("hi", durable=True)


async def workflow(stage: Stage) -> callboard.Outcome:
    file = stage.config_dir / "w.yaml"
    file.write_text(PYTHON.replace("URL", stage.models.openai_base))
    stage.models.script("```python\nprint(1)\n```")
    return await stage.run("hi", target=file)


KINDS: dict[str, Callable[[Stage], Awaitable[callboard.Outcome]]] = {
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
            outcome = await KINDS[kind](Stage(config_dir, models, root))
            found = list(imported)
        nursery.cancel_scope.cancel()
    assert outcome.status == "done", outcome.error
    sys.stdout.write("\n".join(found))


if __name__ == "__main__":
    os.environ["XDG_STATE_HOME"] = os.environ["XDG_CACHE_HOME"] = os.environ["XDG_RUNTIME_DIR"] = sys.argv[2]
    trio.run(main, sys.argv[1], Path(sys.argv[2]))
