"""Clients that were written for OpenAI's API against our server: each of their checks has to pass."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from interop.environments import CONTROL, HERE, INSTALLED, OPENAI, needs
from support.fake_models import Reply, Request
from support.http_agents import HELLO, LOOP
from support.http_server import ApiServer, Serve, serve
from support.waiting import PATIENCE

from callboard.supervisors.process import start_process

__all__ = ["serve"]

ADD = '# @cmd Adds.\nadd() { printf 3 >> "$LLM_OUTPUT"; }\n'
CALL = re.compile(r"^CALL (\w+) (\{.*\})$", re.MULTILINE)


def scripted(request: Request) -> Reply | str:
    """Do what the prompt says: `CALL name {arguments}`, `FAIL`; otherwise repeat it, or the result of the call."""
    if request.path.endswith("/embeddings"):
        rows = [[3.0, 4.0, 0.0][: request.json.get("dimensions", 3)] for _ in request.json["input"]]
        return Reply(raw=json.dumps({"data": [{"index": n, "embedding": row} for n, row in enumerate(rows)]}).encode())
    if request.results:
        return f"done: {request.results[-1]}"
    if found := CALL.search(request.prompt):
        return Reply(calls=[(found[1], json.loads(found[2]))])
    if request.prompt == "FAIL":
        return Reply(status=400, error="no such thing")
    wanted: dict[str, Any] = request.json.get("response_format") or {}
    if wanted.get("type", "text") != "text" or request.prompt == "json":
        return '{"name": "Ann", "age": 5}'
    return f"echo: {request.prompt}"


@pytest.fixture
async def api_server(serve: Serve) -> AsyncIterator[ApiServer]:
    """A server whose model is `scripted`."""
    async with serve(rag_embedding_model="fake:vectors") as served:
        (served.agent_runner.plain(LOOP, name="clerk") / "tools.sh").write_text(ADD)
        served.agent_runner.agent(HELLO, name="hello")
        served.agent_runner.models.answer_with(scripted)
        yield served


async def outcomes(api_server: ApiServer, *command: object) -> dict[str, str]:
    """The outcome of each check of a client program."""
    program = [*map(str, command), f"{api_server.url}/v1", api_server.token]
    process = await start_process(api_server.agent_runner.root.kernel.actor, program, stdin="null")
    assert process.stdout is not None
    said = b""
    with trio.fail_after(5 * PATIENCE):
        while piece := await process.stdout.receive_some():
            said += piece
        end = await process.wait()
    assert end.status == 0, end.stderr_tail
    found: dict[str, str] = json.loads(said)
    return found


def failed(found: dict[str, str]) -> dict[str, str]:
    return {name: outcome for name, outcome in found.items() if outcome != "ok"}


@needs("control")
async def test_every_check_of_the_openai_sdk_passes(api_server: ApiServer) -> None:
    found = await outcomes(api_server, CONTROL / "python", HERE / "clients/openai_checks.py")
    assert not failed(found)
    assert len(found) >= 34


@needs("openai")
@pytest.mark.full
@pytest.mark.timeout(6 * PATIENCE)
async def test_every_check_of_litellm_langchain_instructor_and_llm_passes(api_server: ApiServer) -> None:
    found = await outcomes(api_server, OPENAI / "python", HERE / "clients/openai_wrappers.py")
    assert not failed(found)
    assert len(found) >= 17


@needs("node")
@pytest.mark.timeout(6 * PATIENCE)
async def test_every_check_of_the_ai_sdk_and_openai_node_passes(api_server: ApiServer) -> None:
    node = INSTALLED / "node/node_modules/node/bin/node"
    found = await outcomes(api_server, node, HERE / "clients/ai_sdk.mjs", INSTALLED / "node")
    assert not failed(found)
    assert len(found) >= 13
