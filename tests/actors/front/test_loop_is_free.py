"""No front end reads a file of an agent on the thread of the event loop, however it starts a run."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from http_house import House, house, serve

import callboard
from callboard.actors.runs.batch.targets import Target
from callboard.actors.runs.batch.tasks import Task
from callboard.protocol.requests import RunRequest

__all__ = ["house", "serve"]

GRAPH = "start: e\nnodes:\n  e: {type: end, output: 'said {{initial_prompt}}'}"
SAID = [{"role": "user", "content": "hi"}]

_heard: list[tuple[int, str]] | None = None


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if _heard is not None and event in ("open", "os.listdir", "os.scandir") and arguments:
        path = arguments[0]
        if isinstance(path, str | os.PathLike):
            _heard.append((threading.get_ident(), os.fspath(path)))


sys.addaudithook(_hear)


async def _python(house: House) -> Any:
    return await callboard.run("g", "hi", root=house.stage.root)


async def _batch(house: House) -> Any:
    target = Target(RunRequest(target="g"), house.stage.root)
    task = Task(id="1", prompt="hi")
    await target.check(Path("tasks.csv"), [task])
    return await target.perform(task)


AGUI: dict[str, Any] = {
    "threadId": "t",
    "runId": "r",
    "state": {},
    "messages": [{"id": "1", "role": "user", "content": "hi"}],
    "tools": [],
    "context": [],
    "forwardedProps": {},
}

FRONT_ENDS: dict[str, Callable[[House], Awaitable[Any]]] = {
    "python": _python,
    "batch": _batch,
    "http runs": lambda house: house.post("/v1/runs", {"target": "g", "prompt": "hi"}, 201),
    "a session": lambda house: house.post("/v1/runs", {"target": "g", "prompt": "hi", "session": "s"}, 201),
    "chat": lambda house: house.post("/v1/chat/completions", {"model": "graph/g", "messages": SAID}),
    "agui": lambda house: house.events("POST", "/agui?target=graph/g", AGUI),
    "list of agents": lambda house: house.get("/v1/agents"),
    "list of models": lambda house: house.get("/v1/models"),
}


@pytest.mark.parametrize("front_end", FRONT_ENDS)
async def test_files_of_agents_are_read_in_threads(house: House, front_end: str) -> None:
    global _heard
    for number in range(5):
        house.stage.agent(GRAPH, name=f"other{number}")
    home = house.stage.agent(GRAPH)
    (home / "tools.sh").write_text("# @cmd Says hello\nhello() { echo hello; }\n")
    heard: list[tuple[int, str]] = []
    _heard = heard
    try:
        await FRONT_ENDS[front_end](house)
    finally:
        _heard = None
    agents = str(house.stage.config_dir / "agents")
    read = {(thread, path) for thread, path in heard if path.startswith(agents)}
    assert any(path.endswith("g/graph.yaml") for _, path in read)
    assert [path for thread, path in read if thread == threading.get_ident()] == []
