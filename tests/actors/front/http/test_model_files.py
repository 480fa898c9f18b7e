"""`model: local:/path` of callers from elsewhere: which files they may have loaded, and what they learn of others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.access_keys import made_key
from support.http_server import ApiServer, Serve
from support.messages import has_message

from callboard.actors.front.control.methods import open_hub
from callboard.protocol.control.caller import Caller
from callboard.protocol.control.method_structs import StartRun
from callboard.protocol.errors import Denied

SCOPES = ("run:agents", "read:runs", "read:models", "write:sessions", "read:sessions")
AGENT = "name: clerk\ninstructions: You answer.\n"
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "runs": ("/v1/runs", {"target": "clerk", "prompt": "x"}),
    "completions": ("/v1/completions", {"prompt": "x"}),
    "completions of an agent": ("/v1/completions", {"prompt": "x", "agent": "clerk"}),
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
    "sessions": ("/v1/sessions", {}),
}


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A directory that the settings name; in it lies what leads out of it."""
    there = tmp_path / "weights"
    there.mkdir()
    (there / "out.gguf").symlink_to("/etc/passwd")
    return there


@pytest.fixture
async def keys(serve: Serve, weights: Path) -> AsyncIterator[tuple[ApiServer, str, str]]:
    """A server, a key without `run:files` and one with it."""
    plain, entry = made_key("anna", *SCOPES)
    trusted, other = made_key("bert", *SCOPES, "run:files")
    auth = {"keys": [msgspec.to_builtins(entry), msgspec.to_builtins(other)]}
    async with serve(api={"auth": auth, "model_directories": [str(weights)]}) as api_server:
        agent = api_server.agent_runner.root.config_dir / "agents" / "clerk"
        agent.mkdir(parents=True)
        (agent / "config.yaml").write_text(AGENT)
        yield api_server, plain, trusted


async def told(api_server: ApiServer, key: str, way: str, model: str) -> tuple[int, str]:
    path, body = WAYS[way]
    headers = {"authorization": f"Bearer {key}"}
    reply = await api_server.client.post(path, json={**body, "model": model}, headers=headers)
    return reply.status_code, reply.json().get("error", {}).get("message", "")


@pytest.mark.parametrize("way", WAYS)
async def test_a_file_as_a_model_needs_a_scope_and_nothing_is_told_of_whether_it_is_there(
    keys: tuple[ApiServer, str, str], way: str
) -> None:
    api_server, plain, _ = keys
    there, missing = [await told(api_server, plain, way, f"local:{path}") for path in ("/etc/passwd", "/etc/nothing")]
    behind = await told(api_server, plain, way, "fake:model,local:/etc/passwd")
    cassette = await told(api_server, plain, way, "cassette:/etc/passwd")
    assert there == missing == behind == cassette
    assert there[0] == 403
    assert "run:files" in there[1]


@pytest.mark.parametrize("way", WAYS)
async def test_with_the_scope_it_has_to_lie_in_a_directory_of_the_settings(
    keys: tuple[ApiServer, str, str], weights: Path, way: str
) -> None:
    api_server, _, trusted = keys
    outside = (
        "/etc/passwd",
        "/etc/nothing",
        f"{weights}/../x.gguf",
        f"{weights}/out.gguf",
        f"{weights}x/a",
        "~/a.gguf",
        f"{weights}/mine.gguf,local:/etc/passwd",
    )
    answers = {await told(api_server, trusted, way, f"local:{path}") for path in outside}
    assert len(answers) == 1
    ((status, text),) = answers
    assert (status, "api.model_directories" in text) == (403, True)
    status, text = await told(api_server, trusted, way, f"local:{weights}/mine.gguf")
    assert status != 403
    assert has_message(text, "work.models.weights.located") or "llama" in text


async def test_by_the_websocket_it_is_the_same(keys: tuple[ApiServer, str, str], tmp_path: Path) -> None:
    api_server = keys[0]
    anna = Caller(subject="anna", scopes=frozenset(SCOPES))
    async with open_hub(api_server.agent_runner.root, directory=tmp_path / "runs") as hub:
        for path in ("/etc/passwd", "/etc/nothing"):
            with pytest.raises(Denied, match="run:files"):
                await hub.start(anna, StartRun(target="clerk", prompt="x", model=f"local:{path}"))


IN_A_ROLE: dict[str, tuple[str, dict[str, Any]]] = {
    "runs": ("/v1/runs", {"target": "", "prompt": "x"}),
    "completions": ("/v1/completions", {"prompt": "x"}),
    "sessions": ("/v1/sessions", {}),
}


@pytest.mark.parametrize("way", IN_A_ROLE)
async def test_the_model_of_a_role_is_checked_like_that_of_a_request(
    keys: tuple[ApiServer, str, str], way: str
) -> None:
    api_server, plain, trusted = keys
    roles = api_server.agent_runner.config_dir / "roles"
    roles.mkdir()
    path, body = IN_A_ROLE[way]

    async def denied(key: str, of_role: str, **more: Any) -> str:
        (roles / "mine.md").write_text(f"---\nmodel: {of_role}\n---\nBe brief.")
        headers = {"authorization": f"Bearer {key}"}
        reply = await api_server.client.post(path, json={**body, "role": "mine", **more}, headers=headers)
        return reply.json()["error"]["message"] if reply.status_code == 403 else ""

    there, missing = [await denied(plain, f"local:{file}") for file in ("/etc/passwd", "/etc/nothing")]
    assert there == missing == await denied(plain, "[fake:model, local:/etc/passwd]")
    assert "run:files" in there
    assert "api.model_directories" in await denied(trusted, "local:/etc/passwd")
    assert await denied(plain, "fake:model") == ""
    assert await denied(plain, "local:/etc/passwd", model="fake:model") == ""


async def test_a_session_gets_no_role_with_a_model_that_is_not_allowed_and_answers_in_none(
    keys: tuple[ApiServer, str, str],
) -> None:
    api_server, plain, _ = keys
    headers = {"authorization": f"Bearer {plain}"}
    roles = api_server.agent_runner.config_dir / "roles"
    roles.mkdir()
    (roles / "bad.md").write_text("---\nmodel: local:/etc/passwd\n---\nx")
    (roles / "later.md").write_text("Be brief.")

    async def post(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        reply = await api_server.client.post(path, json=body, headers=headers)
        return reply.status_code, reply.json()

    path = f"/v1/sessions/{(await post('/v1/sessions', {'role': 'later'}))[1]['id']}"
    assert (await post(f"{path}/role", {"name": "bad"}))[0] == 403
    run = {"target": "", "prompt": "x", "role": "bad", "session": path.rpartition("/")[2]}
    assert (await post("/v1/runs", run))[0] == 403
    assert (await api_server.client.get(path, headers=headers)).json()["role"] == "later"
    (roles / "later.md").write_text("---\nmodel: local:/etc/passwd\n---\nx")
    assert (await post(f"{path}/completions", {"prompt": "x"}))[0] == 403


@pytest.mark.parametrize("way", WAYS)
async def test_a_missing_key_of_a_provider_is_told_without_a_path_of_the_server(
    keys: tuple[ApiServer, str, str], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api_server, plain, _ = keys
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    _, body = WAYS[way]
    headers = {"authorization": f"Bearer {plain}"}
    reply = await api_server.client.post(WAYS[way][0], json={**body, "model": "claude:claude-x"}, headers=headers)
    text = reply.text
    if reply.status_code == 201 and way == "runs":
        run = reply.json()["run"]
        text = (
            await api_server.client.get(f"/v1/runs/{run}/events", headers={**headers, "accept": "text/event-stream"})
        ).text
    assert has_message(text, "work.models.catalog.ModelCatalog._vertex_access.2")
    assert str(api_server.agent_runner.root.config_dir) not in text
