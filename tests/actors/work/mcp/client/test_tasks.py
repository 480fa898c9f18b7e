"""Tasks of servers: followed to their end, asked about on the way, cancelled with their caller."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import pytest
import trio
from support.answering_person import Person
from support.fake_models import Reply
from support.repository import Repository
from support.waiting import until

import callboard
from callboard.protocol.events import ToolProgress

SERVER = """
import json, sys, time
META = "io.modelcontextprotocol/"
log = open(sys.argv[1], "a")
tasks = {}
def task(id):
    known = tasks[id]
    told = {"taskId": id, "status": "working", "createdAt": "x", "lastUpdatedAt": "x", "ttlMs": None}
    told["pollIntervalMs"] = 60
    known["looks"] += 1
    how = known["how"]
    if how.get("ask") and not known["answers"]:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        asked = {"method": "elicitation/create",
                 "params": {"mode": "form", "message": "Your name?", "requestedSchema": schema}}
        return {**told, "status": "input_required", "inputRequests": {"name": asked}}
    if known["looks"] <= how.get("looks", 1):
        return {**told, "statusMessage": f"step {known['looks']}"}
    if how.get("fail"):
        return {**told, "status": "failed", "error": {"code": -32603, "message": "out of paper"}}
    if how.get("stop"):
        return {**told, "status": "cancelled", "statusMessage": "by the operator"}
    text = json.dumps(known["answers"]) if known["answers"] else "done"
    return {**told, "status": "completed", "result": {"content": [{"type": "text", "text": text}]}}
def answer(message):
    method, params = message["method"], message.get("params", {})
    print(method, params.get("taskId", ""), file=log, flush=True)
    if method == "server/discover":
        able = {"tools": {}, "extensions": {META + "tasks": {}}}
        return {"supportedVersions": ["2026-07-28"], "capabilities": able, "ttlMs": 0, "cacheScope": "private",
                "_meta": {META + "serverInfo": {"name": "s", "version": "1"}}}
    if method == "tools/list":
        return {"tools": [{"name": "long", "inputSchema": {"type": "object"}}], "ttlMs": 0, "cacheScope": "private"}
    if method == "tools/call":
        assert META + "tasks" in params["_meta"][META + "clientCapabilities"]["extensions"]
        how = params["arguments"]
        if how.get("odd"):
            return {"resultType": "task", "status": "strange"}
        id = f"task-{len(tasks)}"
        tasks[id] = {"how": how, "looks": 0, "answers": None}
        return {"resultType": "task", "taskId": id, "status": "working", "createdAt": "x", "lastUpdatedAt": "x",
                "ttlMs": None, "pollIntervalMs": 60}
    known = tasks.get(params.get("taskId"))
    if known is None or known["how"].get("forget"):
        raise KeyError("Task not found")
    if method == "tasks/get":
        return task(params["taskId"])
    if method == "tasks/update":
        known["answers"] = params["inputResponses"]
    return {}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "subscriptions/listen":
        meta = {META + "subscriptionId": message["id"]}
        told = {"notifications": message["params"]["notifications"], "_meta": meta}
        back = {"method": "notifications/subscriptions/acknowledged", "params": told}
        print(json.dumps({"jsonrpc": "2.0", **back}), flush=True)
        continue
    try:
        said = {"result": {"resultType": "complete", **answer(message)}}
    except KeyError as error:
        said = {"error": {"code": -32602, "message": str(error)}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
"""


class TaskServer:
    """A user with a server that works on tasks."""

    def __init__(self, repository: Repository, **entry: Any) -> None:
        self.repository = repository
        self.log = repository.home / "log"
        self.log.touch()
        script = repository.home / "server.py"
        script.write_text(SERVER)
        functions = repository.config / "functions"
        functions.mkdir()
        server = {"command": sys.executable, "args": [str(script), str(self.log)], "trust": "full", **entry}
        (functions / "mcp.json").write_text(json.dumps({"mcpServers": {"s": server}}))
        repository.settings(mcp_tools="direct")
        repository.agent("mcp_servers: [s]")

    async def long(self, **how: Any) -> str:
        """What the model is told of a call."""
        await self.repository.run(Reply(calls=[("s__long", how)]), "over")
        return self.repository.told

    @property
    def asked(self) -> list[str]:
        """The methods that the server was asked for, tasks alone."""
        return [line.split()[0] for line in self.log.read_text().splitlines() if line.startswith("tasks/")]


@pytest.fixture
def task_server(repository: Repository) -> TaskServer:
    return TaskServer(repository)


async def test_a_task_is_followed_to_its_result(task_server: TaskServer) -> None:
    assert await task_server.long(looks=3) == "done"
    assert task_server.asked == ["tasks/get"] * 4


async def test_the_time_of_a_call_is_not_that_of_its_task(repository: Repository) -> None:
    task_server = TaskServer(repository, timeout_seconds=3)
    assert await task_server.long(looks=75) == "done"


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"fail": True}, "reported a failed task: out of paper"),
        ({"stop": True}, "cancelled a task: by the operator"),
        ({"forget": True}, "Task not found"),
        ({"odd": True}, "sent an invalid task status"),
    ],
)
async def test_what_goes_wrong_is_told_to_the_model(task_server: TaskServer, how: dict[str, bool], told: str) -> None:
    assert told in await task_server.long(**how)


async def test_how_far_it_is_is_told(task_server: TaskServer) -> None:
    steps: list[str | None] = []

    def hear(event: callboard.Event) -> None:
        if isinstance(event.data, ToolProgress):
            steps.append(event.data.message)

    task_server.repository.models.script(Reply(calls=[("s__long", {"looks": 2})]), "over")
    await callboard.run("a", "go", config_dir=task_server.repository.config, on_event=hear)
    assert steps[0] == "step 1"


async def test_what_it_asks_reaches_a_person_once(task_server: TaskServer) -> None:
    async with callboard.Root(config_dir=task_server.repository.config) as root:
        person = Person(root, lambda question: "Ann")
        with root.questions.attach(person):
            run = task_server.repository.run(Reply(calls=[("s__long", {"ask": True, "looks": 2})]), "over", root=root)
            await run
    assert len(person.asked_for) == 1
    assert json.loads(task_server.repository.told)["name"]["content"] == {"name": "Ann"}
    assert task_server.asked.count("tasks/update") == 1


async def test_a_caller_that_goes_away_has_it_cancelled(task_server: TaskServer) -> None:
    async with callboard.Root(config_dir=task_server.repository.config) as root, trio.open_nursery() as nursery:
        nursery.start_soon(partial(task_server.repository.run, Reply(calls=[("s__long", {"looks": 9999})]), root=root))
        with trio.fail_after(60):
            while "tasks/get" not in task_server.asked:
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    with trio.fail_after(60):
        await until(lambda: "tasks/cancel" in task_server.asked)
