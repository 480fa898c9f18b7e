"""A name that is not there: callers who may not list what there is learn no name of it by the error."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from support.access_keys import made_key
from support.control_hub import Client
from support.fake_models import FakeModels
from support.http_server import ApiServer, Serve, serve
from trio_websocket import open_websocket_url

__all__ = ["serve"]

FEW = ("run:agents", "read:runs", "write:runs", "write:sessions")
LISTS = ("read:agents", "read:roles", "read:sessions", "read:models", "admin:sessions")
THERE, WRONG = "hidden-plan-of-bert", "hidden-plan-of-bart"
FILES = {
    "roles/{}.md": "The role's text",
    "macros/{}.yaml": "steps: [.help]\n",
    "knowledge/{}.yaml": "documents: [x.md]\n",
    "agents/{}/config.yaml": "name: hidden\ninstructions: x\n",
    "agents/talker/config.yaml": "name: talker\ninstructions: x\n",
}
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/runs", {"target": WRONG, "prompt": "x"}),
    ("/v1/runs", {"target": "", "role": WRONG, "prompt": "x"}),
    ("/v1/runs", {"target": "talker", "knowledge": [WRONG], "prompt": "x"}),
    ("/v1/sessions", {"agent": WRONG}),
    ("/v1/sessions", {"role": WRONG}),
    ("/v1/completions", {"prompt": "x", "role": WRONG}),
    ("/v1/completions", {"prompt": "x", "agent": WRONG}),
    ("/v1/chat/completions", {"model": f"agent/{WRONG}", "messages": [{"role": "user", "content": "x"}]}),
    ("/v1/chat/completions", {"role": WRONG, "messages": [{"role": "user", "content": "x"}]}),
]
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("_run/start", {"target": WRONG, "prompt": "x"}),
    ("_run/start", {"target": "", "role": WRONG, "prompt": "x"}),
    ("_run/start", {"target": "talker", "session": WRONG, "prompt": "x", "role": WRONG}),
    ("_run/start", {"target": "talker", "knowledge": [WRONG], "prompt": "x"}),
    ("_session/export", {"session": WRONG}),
    ("_chat/open", {"role": WRONG}),
    ("_chat/open", {"agent": WRONG}),
    ("_chat/open", {"rag": WRONG}),
    ("_chat/open", {"macro": WRONG}),
]
LINES = [
    *(f".{command} {WRONG}" for command in ("role", "agent", "rag", "macro", "info role", "edit role", "edit macro")),
    f".role {WRONG} hello",
    f".delete role {WRONG}",
    f".session {WRONG}",
]


@pytest.fixture
async def api_server(serve: Serve) -> AsyncIterator[tuple[ApiServer, str, str]]:
    """A server, a key with few scopes, and one that may list as well."""
    few, entry = made_key("anna", *FEW)
    more, other = made_key("anna", *FEW, *LISTS)
    async with serve(
        api={
            "auth": {"keys": [msgspec.to_builtins(each) for each in (entry, other)]},
            "limits": {"rate_limit_per_minute": 0},
        },
        repl_prelude=f"role:{WRONG}",
    ) as api_server:
        for name, text in FILES.items():
            file = api_server.agent_runner.root.config_dir / name.format(THERE)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        yield api_server, few, more


async def all_told(api_server: ApiServer, key: str) -> list[tuple[str, str]]:
    """What is asked, and all that is told, with the events of the runs that began."""
    headers = {"authorization": f"Bearer {key}"}
    told = [
        (f"{path} {body}", (await api_server.client.post(path, json=body, headers=headers)).text)
        for path, body in BODIES
    ]
    async with open_websocket_url(
        f"ws://127.0.0.1:{api_server.port}/ws", extra_headers=[(b"authorization", headers["authorization"].encode())]
    ) as websocket:
        client = Client(websocket)
        for method, params in REQUESTS:
            told.append((f"{method} {params}", str(await client.call(method, **params))))
        opened = await client.result("_chat/open")
        told.append(("_chat/open", str(opened)))
        for line in LINES:
            answer = await client.call("_chat/line", chat=opened["chat"]["chat"], line=line)
            told.append((line, str(answer)))
        runs = [info["run"] for info in (await client.result("_run/list"))["runs"]]
        told += [(run, str(await client.call("_run/events", run=run))) for run in runs]
        told.append(("notifications", str(client.told)))
    return told


async def test_who_may_not_list_learns_no_name_by_an_error(
    api_server: tuple[ApiServer, str, str], fake_model: FakeModels
) -> None:
    home, few, more = api_server
    told = await all_told(home, few)
    assert [
        (asked, text) for asked, text in told if THERE in text or str(home.agent_runner.root.config_dir) in text
    ] == []
    assert sum(WRONG in text for _, text in told) >= 16, "they are told what was wrong"
    listed = [asked for asked, text in await all_told(home, more) if THERE in text]
    assert len(listed) >= 4, "who may list is helped"
