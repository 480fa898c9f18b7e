"""Clients that nobody here wrote against our HTTP: OpenAI's SDK, AG-UI's models, schemathesis."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from interop.environments import CONTROL, HERE, needs
from support.fake_models import Reply
from support.http_agents import ASKER, HELLO, LOOP
from support.http_server import ApiServer, Serve, api_server, serve
from support.waiting import PATIENCE

from callboard.supervisors.process import start_process

__all__ = ["api_server", "serve"]

pytestmark = needs("control")

ADD = '# @cmd Adds.\nadd() { printf 3 >> "$LLM_OUTPUT"; }\n'


async def client(api_server: ApiServer, name: str, *args: str, stdin: bytes = b"", seconds: float = PATIENCE) -> Any:
    """What a script of `clients/` prints."""
    me = api_server.agent_runner.root.kernel.actor
    process = await start_process(me, [str(CONTROL / "python"), str(HERE / "clients" / name), *args], stdin="pipe")
    assert process.stdin is not None
    assert process.stdout is not None
    said = b""
    with trio.fail_after(seconds):
        await process.stdin.send_all(stdin)
        await process.stdin.aclose()
        while piece := await process.stdout.receive_some():
            said += piece
        end = await process.wait()
    assert end.status == 0, end.stderr_tail
    return json.loads(said)


def clerk(api_server: ApiServer) -> None:
    home = api_server.agent_runner.plain(LOOP, name="clerk")
    (home / "tools.sh").write_text(ADD)
    api_server.agent_runner.models.answer_with(
        lambda request: "It is three." if request.results else Reply(text="Let me see.", calls=[("add", {})])
    )


async def test_openais_own_sdk_lists_models_and_completes_chats(api_server: ApiServer) -> None:
    clerk(api_server)
    api_server.agent_runner.agent(HELLO, name="hello")
    got = await client(api_server, "openai_sdk.py", f"{api_server.url}/v1", api_server.token)
    assert {"agent/clerk", "graph/hello", "fake:model"} <= set(got["models"])
    assert got["whole"] == ["Let me see.\nIt is three.", "stop", 30]
    assert got["streamed"] == got["whole"][0]
    assert got["pieces"] > 2
    assert got["usage"] == 30
    assert got["graph"] == "hello 1+2?"
    assert got["beside"] == "done"
    assert got["absent"] == "not_found"
    assert got["stranger"] == 401


async def test_every_event_is_one_of_ag_uis_own(api_server: ApiServer) -> None:
    clerk(api_server)
    api_server.agent_runner.agent(HELLO, name="hello")
    api_server.agent_runner.agent(ASKER, name="asker")
    lines = []
    for target in ("agent/clerk", "graph/hello", "graph/asker"):
        body = {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "hi"}]}
        events = await api_server.events("POST", "/agui", body, params={"target": target})
        lines += [json.dumps(data) for _, _, data in events]
    found = await client(api_server, "agui_events.py", stdin="\n".join(lines).encode())
    assert len(found) == len(lines)
    assert {"TEXT_MESSAGE_CONTENT", "TOOL_CALL_RESULT", "STEP_FINISHED", "CUSTOM", "RUN_FINISHED"} <= set(found)


@pytest.mark.timeout(900)
async def test_schemathesis_finds_nothing_that_the_document_does_not_say(serve: Serve) -> None:
    async with serve(api={"audit": {"sink": "off"}}) as api_server:
        api_server.agent_runner.plain(LOOP, name="clerk")
        found = await client(api_server, "fuzz.py", api_server.url, api_server.token, seconds=600.0)
    assert not found["problems"], "\n".join(found["problems"])
    assert found["operations"] > 30
