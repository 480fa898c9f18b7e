"""The stock AG-UI client from npm against our HTTP: it reads every event by its schemas and checks their order."""

from __future__ import annotations

import json
import shutil
from typing import Any

import trio
from interop.environments import HERE, INSTALLED, needs
from support.fake_models import Reply, Request
from support.http_agents import ASKER, LOOP
from support.http_server import ApiServer, api_server, serve
from support.waiting import PATIENCE

from callboard.supervisors.process import start_process

__all__ = ["api_server", "serve"]

pytestmark = needs("node")

COUNTER = """
initial_state: {count: 0}
start: more
nodes:
  more: {type: script, script: more.sh, state_updates: {count: "{{count}}"}, next: done}
  done: {type: end, output: "counted to {{count}}"}
"""


def answers(request: Request) -> Reply | str:
    """The model's side."""
    if "fail" in request.prompt:
        return Reply(status=400, error="no such thing")
    if "pick one" in request.prompt:
        assert "The user:\nAnn" in request.prompt
        return f"{request.results[-1]} it is" if request.results else Reply(text="Which?", calls=[("pick", {})])
    if "slowly" in request.prompt:
        return Reply(text="slowly " * 500, piece=7, gap=0.1)
    return (
        "It is three." if request.results else Reply(reasoning="Hm.", text="Let me see.", calls=[("add", {"a": "1"})])
    )


async def seen(api_server: ApiServer) -> dict[str, Any]:
    """What the client prints."""
    command = [
        shutil.which("node") or "node",
        HERE / "clients/agui_client.mjs",
        INSTALLED / "node",
        api_server.url,
        api_server.token,
    ]
    process = await start_process(
        api_server.agent_runner.root.kernel.actor, [str(part) for part in command], stdin="null"
    )
    assert process.stdout is not None
    said = b""
    with trio.fail_after(PATIENCE):
        while piece := await process.stdout.receive_some():
            said += piece
        end = await process.wait()
    assert end.status == 0, end.stderr_tail
    found: dict[str, Any] = json.loads(said)
    return found


async def test_ag_uis_own_client_reads_runs_and_finds_nothing_out_of_order(api_server: ApiServer) -> None:
    home = api_server.agent_runner.plain(LOOP, name="clerk")
    (home / "tools.sh").write_text('# @cmd Adds.\n# @option --a\nadd() { printf 3 >> "$LLM_OUTPUT"; }\n')
    for name in ("failing", "slow", "picker"):
        api_server.agent_runner.plain(LOOP, name=name)
    api_server.agent_runner.agent(COUNTER, "counter", more="echo '{\"count\": 3}'")
    api_server.agent_runner.agent(ASKER, "asker")
    api_server.agent_runner.models.answer_with(answers)
    told = await seen(api_server)
    assert told["warned"] == []  # nothing had to be removed, nothing was out of order
    assert not [name for name in told if name != "stranger" and isinstance(told[name], dict) and told[name]["failed"]]

    for turn in (told["clerk"], told["again"]):  # the second says nothing that the first is mixed up with
        assert (turn["outcome"], turn["pending"], turn["state"]) == ("success", [], {})
        assert [(said["role"], said["content"]) for said in turn["messages"]] == [
            ("reasoning", "Hm."), ("assistant", "Let me see."), ("tool", '{"output":"3"}'),
            ("assistant", "It is three."),
        ]  # fmt: skip
        assert turn["messages"][1]["calls"] == [{"name": "add", "arguments": '{"a":"1"}'}]
        assert turn["usage"][0]["totalTokens"] == 30

    offered = told["offered"]
    assert (offered["outcome"], len(offered["pending"])) == ("success", 1)  # the client knows whose turn it is
    assert offered["messages"][-1]["calls"] == [{"name": "pick", "arguments": "{}"}]
    assert told["picked"]["messages"][-1]["content"] == "red it is"

    graph = told["graph"]
    assert (graph["steps"], graph["state"]["count"], graph["outcome"]) == (["more", "done"], "3", "success")
    assert graph["messages"][0]["content"] == "counted to 3"

    assert told["asked"]["outcome"] == "interrupt"
    assert [(asked["message"], asked["reason"]) for asked in told["interrupts"]] == [("Which?", "input_required")]
    assert (told["resumed"]["outcome"], told["resumed"]["result"]["output"]) == ("success", "chose blue")

    assert (told["failing"]["error"]["code"], told["failing"]["outcome"]) == ("model", None)
    assert (told["running"], told["stopped"]["outcome"]) == (1, "cancelled")
    assert told["left"]["error"]["code"] == "abort"  # its own word for having left
    assert told["stranger"]["failed"].startswith("HTTP 401")
    with trio.fail_after(PATIENCE):
        while (await api_server.get("/v1/runs", params={"status": "running"}))["runs"]:
            await trio.sleep(0.01)
    ends = [run["status"] for run in (await api_server.get("/v1/runs"))["runs"]]
    assert (ends.count("cancelled"), ends.count("failed")) == (2, 1)  # what was stopped, and what was left
