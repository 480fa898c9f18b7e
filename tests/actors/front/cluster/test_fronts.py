"""What is begun at a gateway in other ways than by a run's name: what any worker can play one plays, and what only the
gateway has (a chat's memory, tools of the client) stays there.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio
from support.cluster import ClusterProcesses, beside, over, until
from support.control_hub import Client
from support.fake_models import FakeModels, Reply, Request
from support.postgres import Postgres
from support.starter import CALLBOARD
from trio_websocket import open_websocket_url

from callboard.actors.io.secret_redaction import PUT

KEY = "sk-that-nobody-may-read"
"""Of the model's provider, as one test has it."""

AGENT = "name: clerk\ninstructions: CLERK\n"

BOTH = """
name: both
start: first
nodes:
  first: {type: script, script: nothing.sh, next: [ask, slow]}
  ask: {type: agent, agent: clerk, prompt: confirm, state_updates: {}, next: end}
  slow: {type: script, script: slow.sh, state_updates: {}, next: end}
  end: {type: end, output: "both of {{initial_prompt}}"}
"""


def say(asked: Request) -> Reply:
    """How many prompts the model was shown, or a call of the client's tool."""
    if any(tool["function"]["name"] == "of_the_client" for tool in asked.json.get("tools", ())):
        return Reply(calls=[("of_the_client", {"place": "here"})])
    if asked.prompt == "aloud" and not asked.results:
        return Reply(text=f"I think of {KEY}.", piece=4, calls=[("todo__list", {})])
    if asked.prompt == "confirm" and not asked.results:
        return Reply(calls=[("user__confirm", {"question": "Go on?"})])
    if asked.prompt.startswith("write") and not asked.results:
        return Reply(calls=[("fs_write", {"path": f"{asked.prompt.split()[-1]}.txt", "contents": "hello"})])
    return Reply(text=f"{sum(each['role'] == 'user' for each in asked.json['messages'])} so far")


@pytest.fixture
def cluster_processes(tmp_path: Path, postgres: Postgres, fake_model: FakeModels) -> ClusterProcesses:
    fake_model.answer_with(say)
    made = ClusterProcesses(tmp_path, postgres.database(), fake_model.config_dir(tmp_path / "config"))
    (tmp_path / "config" / "agents" / "clerk").mkdir()
    (tmp_path / "config" / "agents" / "clerk" / "config.yaml").write_text(AGENT)
    return made


def played(cluster_processes: ClusterProcesses) -> int:
    """How many runs of the cluster are over."""
    return int(cluster_processes.sql("select count(*) from callboard.runs where state = 1")[0][0])


async def test_a_conversation_that_a_client_sends_along_is_played_by_a_worker(
    cluster_processes: ClusterProcesses,
) -> None:
    messages = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "1 so far"},
        {"role": "user", "content": "two"},
    ]

    def does() -> None:
        cluster_processes.worker("one")
        http = cluster_processes.client(cluster_processes.gateway())
        for number, said in enumerate((messages[:1], messages), 1):
            for streams in (False, True):
                body = {"model": "agent/clerk", "messages": said, "stream": streams}
                answer = http.post("/v1/chat/completions", json=body)
                assert answer.status_code == 200, answer.text
                if not streams:
                    assert answer.json()["choices"][0]["message"]["content"] == f"{len(said) // 2 + 1} so far"
                else:
                    assert answer.text.endswith("data: [DONE]\n\n")
            assert until(lambda count=2 * number: played(cluster_processes) == count)
        ag_ui = {
            "threadId": "t",
            "runId": "r",
            "messages": [{"id": str(at), **each} for at, each in enumerate(messages)],
        }
        told = http.post(
            "/agui?target=agent/clerk", json={"state": {}, "tools": [], "context": [], "forwardedProps": {}, **ag_ui}
        )
        assert told.status_code == 200, told.text
        assert "2 so far" in told.text
        assert until(lambda: played(cluster_processes) == 5)

    await beside(cluster_processes, does)


async def test_what_an_agent_has_said_is_told_to_who_comes_when_it_is_over_without_secrets(
    cluster_processes: ClusterProcesses,
) -> None:
    settings = cluster_processes.config / "config.yaml"
    settings.write_text(settings.read_text().replace("sk-test", KEY))

    def does() -> None:
        cluster_processes.worker("one")
        http = cluster_processes.client(cluster_processes.gateway())
        run = http.post("/v1/runs", json={"target": "clerk", "prompt": "one"}).json()["run"]
        over(http, run)
        told = http.get(f"/agui/{run}").text  # the pieces of its text have gone by
        assert told.count("TEXT_MESSAGE_CONTENT") == 1
        assert '"delta":"1 so far"' in told
        run = http.post("/v1/runs", json={"target": "clerk", "prompt": "aloud"}).json()["run"]
        over(http, run)
        events = http.get(f"/v1/runs/{run}/events").json()["events"]
        assert [each["seq"] for each in events] == sorted({each["seq"] for each in events})
        texts = [each["data"]["text"] for each in events if each["kind"] == "llm.delta"]
        assert texts == [f"I think of {PUT}.", "1 so far"]
        for _ in range(5):  # whether its pieces are heard is a matter of luck
            body = {"prompt": "one", "agent": "clerk", "stream": True}
            answer = http.post("/v1/completions", json=body).text
            pieces = [json.loads(line[6:])["text"] for line in answer.splitlines() if line.startswith('data: {"text"')]
            assert "".join(pieces) == "1 so far"

    await beside(cluster_processes, does)


async def test_tools_of_the_client_are_called_so_the_gateway_plays_it(cluster_processes: ClusterProcesses) -> None:
    tool = {"type": "function", "function": {"name": "of_the_client", "parameters": {"type": "object"}}}

    def does() -> None:
        cluster_processes.worker("one")
        http = cluster_processes.client(cluster_processes.gateway())
        body = {"model": "agent/clerk", "messages": [{"role": "user", "content": "one"}], "tools": [tool]}
        answer = http.post("/v1/chat/completions", json=body).json()
        (call,) = answer["choices"][0]["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"place": "here"}
        assert played(cluster_processes) == 0

    await beside(cluster_processes, does)


async def test_permissions_that_tools_ask_for_are_given_at_a_gateway_run_by_run(
    cluster_processes: ClusterProcesses,
) -> None:
    writer = cluster_processes.config / "agents" / "writer"
    writer.mkdir()
    (writer / "config.yaml").write_text("name: writer\ninstructions: WRITE\nglobal_tools: [fs_write]\n")

    def does() -> None:
        workers = cluster_processes.worker("one", "--room", "1"), cluster_processes.worker("two", "--room", "1")
        http = cluster_processes.client(cluster_processes.gateway())
        runs = {
            http.post("/v1/runs", json={"target": "writer", "prompt": f"write {cluster_processes.home / word}"}).json()[
                "run"
            ]: word
            for word in ("yes", "no")
        }

        def asked() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = http.get("/v1/questions").json()["questions"]
            return found

        questions = until(lambda: len(found := asked()) == 2 and found)  # of two workers, which both begin to count
        assert {each["permission"] for each in questions} == {"fs_write"}
        for each in questions:
            answer = http.post(f"/v1/questions/{each['id']}/answer", json={"value": runs[each["run"]]})
            assert answer.status_code == 200, answer.text
        for run in runs:
            assert over(http, run)["status"] == "done"
        assert not asked()
        assert all(each.process.poll() is None for each in workers)
        told = {word: http.get(f"/v1/runs/{run}/events").text for run, word in runs.items()}
        assert "the user refused" in told["no"]
        assert "the user refused" not in told["yes"]

    await beside(cluster_processes, does)


async def test_a_request_whose_run_can_not_begin_fails_as_on_one_machine(cluster_processes: ClusterProcesses) -> None:
    none = {"prompt": "", "agent": "clerk"}
    unknown = {
        "model": "agent/clerk",
        "messages": [{"role": "user", "content": "one"}],
        "callboard": {"variables": {"no": "such"}},
    }
    ag_ui = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {}}

    def does() -> None:
        cluster_processes.worker("one")
        http = cluster_processes.client(cluster_processes.gateway())
        for path, body in (("/v1/completions", none), ("/v1/chat/completions", unknown)):
            for streams in (False, True):
                answer = http.post(path, json={**body, "stream": streams})
                assert (answer.status_code, answer.json()["error"]["code"]) == (400, "usage"), answer.text
        asked = [{"id": "1", "role": "user", "content": ""}]
        answer = http.post("/agui?target=agent/clerk", json={**ag_ui, "messages": asked})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "usage"), answer.text

    await beside(cluster_processes, does)


async def test_an_ag_ui_client_is_interrupted_when_nothing_else_in_its_run_goes_on(
    cluster_processes: ClusterProcesses,
) -> None:
    both = cluster_processes.config / "agents" / "both"
    both.mkdir()
    (both / "graph.yaml").write_text(BOTH)
    (both / "nothing.sh").write_text("echo '{}'\n")
    (both / "slow.sh").write_text("sleep 2\necho '{}'\n")
    body = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {}}

    def does() -> None:
        cluster_processes.worker("one")
        http = cluster_processes.client(cluster_processes.gateway())
        asked = [{"id": "1", "role": "user", "content": "one"}]
        told = http.post("/agui?target=graph/both", json={**body, "messages": asked})
        events = [json.loads(line[6:]) for line in told.text.splitlines() if line.startswith("data: ")]
        ended = [each["stepName"] for each in events if each["type"] == "STEP_FINISHED"]
        assert "slow" in ended
        (interrupt,) = events[-1]["outcome"]["interrupts"]
        answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": "yes"}
        told = http.post("/agui?target=graph/both", json={**body, "messages": [], "resume": [answer]})
        assert '"output":"both of one"' in told.text

    await beside(cluster_processes, does)


async def test_what_is_kept_of_a_run_is_shown_at_a_gateway_when_it_is_over(
    cluster_processes: ClusterProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(cluster_processes.home)  # where the worker works
    shown: dict[str, Any] = {}
    refused: dict[str, int] = {}
    settings, wrote = cluster_processes.config / "config.yaml", cluster_processes.home / "written.txt"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "keep_requests": True}))
    (cluster_processes.config / "agents" / "clerk" / "config.yaml").write_text(AGENT + "global_tools: [fs_write]\n")

    async def looks(url: str, token: str, run: str, other: str) -> None:
        async with open_websocket_url(
            f"{url}/ws".replace("http", "ws", 1), extra_headers=[("authorization", token)]
        ) as ws:
            client = Client(ws)
            await client.result("initialize", protocolVersion=1)
            for method in ("_actor/tree", "_run/steps", "_run/graph", "_run/get"):
                shown[method] = await client.result(method, run=run)
            for method, more in (
                ("_actor/inspect", {"path": f"/{run}/nothing"}),
                ("_run/calls", {"run": "run-none"}),
            ):
                refused[method] = (await client.call(method, **more))["error"]["code"]
            for method in ("_run/calls", "_run/changes", "_run/restore"):
                shown[method] = await client.result(method, run=other)

    def does() -> None:
        cluster_processes.worker("one")
        http = cluster_processes.client(cluster_processes.gateway())
        run = cluster_processes.start(http, "nothing")
        over(http, run)
        wanted = {"target": "clerk", "prompt": "write written", "yes": True}
        other = http.post("/v1/runs", json=wanted).json()["run"]
        assert over(http, other)["worker"] == "one"
        assert wrote.read_text() == "hello"
        trio.from_thread.run(looks, str(http.base_url), http.headers["authorization"], run, other)
        assert shown["_actor/tree"]["actors"] == []
        assert shown["_run/steps"]["steps"][0]["what"] == "begun"
        assert [each["id"] for each in shown["_run/graph"]["nodes"]] == ["end"]
        assert shown["_run/get"]["run"]["target"] == "nothing"  # and no path of a worker's
        assert refused == {"_actor/inspect": -32004, "_run/calls": -32004}
        assert len(shown["_run/calls"]["calls"]) == 2
        assert wrote.name in str(shown["_run/changes"])
        assert not wrote.exists(), shown["_run/restore"]

    await beside(cluster_processes, does)


async def test_run_on_a_cluster_says_why_it_could_not_begin(cluster_processes: ClusterProcesses) -> None:
    def does() -> None:
        cluster_processes.worker("one")
        http = cluster_processes.client(cluster_processes.gateway())
        token = http.headers["authorization"].split()[1]
        environ = {"PATH": os.environ["PATH"], "HOME": str(cluster_processes.home), "CALLBOARD_TOKEN": token}
        for words, why in (([""], "needs a prompt"), (["hi", "--var", "colour=red"], "'colour'")):
            argv = [*CALLBOARD, "run", "clerk", *words, "--on", str(http.base_url)]
            done = subprocess.run(argv, env=environ, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            assert (done.returncode, done.stdout) == (2, "")
            assert why in done.stderr
        assert (
            len(cluster_processes.sql("select 1 from callboard.runs")) == 1
        )  # the first was refused before it was one

    await beside(cluster_processes, does)


async def test_a_chat_at_a_gateway_remembers_what_was_said(cluster_processes: ClusterProcesses) -> None:
    said: list[dict[str, Any]] = []

    async def chats(url: str, token: str) -> None:
        async with open_websocket_url(
            f"{url}/ws".replace("http", "ws", 1), extra_headers=[("authorization", token)]
        ) as ws:
            client = Client(ws)
            await client.result("initialize", protocolVersion=1)
            chat = (await client.result("_chat/open"))["chat"]["chat"]
            for line in ("one", "two"):
                done = await client.result("_chat/line", chat=chat, line=line)
                said.append((await client.result("_run/get", run=done["run"]))["run"])

    def does() -> None:
        cluster_processes.worker("one")
        http = cluster_processes.client(cluster_processes.gateway())
        trio.from_thread.run(chats, str(http.base_url), http.headers["authorization"])
        assert [each["output"] for each in said] == ["1 so far", "2 so far"]

    await beside(cluster_processes, does)


async def test_a_role_without_an_agent_is_played_by_a_worker(cluster_processes: ClusterProcesses) -> None:
    def does() -> None:
        cluster_processes.worker("one")
        http = cluster_processes.client(cluster_processes.gateway())
        answer = http.post("/v1/completions", json={"prompt": "one", "model": "fake:model"}).json()
        assert answer["final_message"] == "1 so far"
        assert until(lambda: played(cluster_processes) == 1)
        run = http.post("/v1/runs", json={"target": "", "prompt": "one", "role_prompt": "You are kind."}).json()["run"]
        assert over(http, run)["output"] == "1 so far"
        assert played(cluster_processes) == 2

    await beside(cluster_processes, does)
