"""Roles over HTTP: listed, read, written, removed; prompts and sessions in a role."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.http_agents import LOOP
from support.http_server import ApiServer
from support.messages import has_message
from support.waiting import until

TEXT = "---\ntemperature: 0.25\ntop_k: 1\n---\nYou translate into __ARG1__.\n"


def sent(api_server: ApiServer) -> list[tuple[str, str]]:
    """What the last request to a model was."""
    return [(each["role"], each["content"]) for each in api_server.agent_runner.models.requests[-1].json["messages"]]


def put(api_server: ApiServer, name: str, text: str) -> Path:
    file = api_server.agent_runner.config_dir / "roles" / f"{name}.md"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


async def test_a_role_is_written_listed_read_and_removed(api_server: ApiServer) -> None:
    response = await api_server.client.put("/v1/roles/tr", json={"text": TEXT})
    assert response.status_code == 201
    assert response.headers["location"] == "/v1/roles/tr"
    made = response.json()
    assert (made["arguments"], made["kind"], made["source"], made["text"]) == (1, "system prompt", "config", TEXT)
    assert made["warnings"][0].startswith("tr.md:3:1: warning: unknown key `top_k` in a role")
    assert await api_server.get("/v1/roles/tr") == made
    assert (await api_server.client.put("/v1/roles/tr", json={"text": "Other."})).status_code == 200
    listed = {role["name"]: role for role in (await api_server.get("/v1/roles"))["roles"]}
    assert listed["tr"]["source"] == "config"
    assert listed["code"]["kind"] == "few-shot prompt"
    await api_server.ask("DELETE", "/v1/roles/tr", 204)
    await api_server.get("/v1/roles/tr", 404)
    await api_server.ask("DELETE", "/v1/roles/tr", 404)


async def test_a_built_in_role_is_hidden_and_never_removed(api_server: ApiServer) -> None:
    await api_server.client.put("/v1/roles/code", json={"text": "Mine."})
    assert (await api_server.get("/v1/roles/code"))["source"] == "config"
    await api_server.ask("DELETE", "/v1/roles/code", 204)
    assert (await api_server.get("/v1/roles/code"))["source"] == "library"
    await api_server.ask("DELETE", "/v1/roles/code", 400)


@pytest.mark.parametrize("name", ["..%2Fconfig", "%2e%2e", ".hidden", "a%23b", "a%00b", "x" * 200, "%2Fetc%2Fpasswd"])
async def test_a_name_never_leads_elsewhere(api_server: ApiServer, name: str) -> None:
    response = await api_server.client.put(f"/v1/roles/{name}", json={"text": "x"})
    assert response.status_code in (400, 404, 405)
    assert (await api_server.client.get(f"/v1/roles/{name}")).status_code in (400, 404, 405)
    assert not (api_server.agent_runner.config_dir / "roles").exists()


async def test_a_text_that_is_no_role_is_refused_and_nothing_is_written(api_server: ApiServer) -> None:
    error = (await api_server.client.put("/v1/roles/bad", json={"text": "---\n- a\n---\n"})).json()["error"]
    assert error["code"] == "invalid_file"
    assert "the front matter holds a list" in error["message"]
    for body in ({}, {"text": 1}, {"text": "x", "name": "y"}):
        assert (await api_server.client.put("/v1/roles/bad", json=body)).status_code == 400
    assert not (api_server.agent_runner.config_dir / "roles").exists()


async def test_a_broken_role_is_listed_with_its_problem(api_server: ApiServer) -> None:
    put(api_server, "broken", "---\ntop_p: x\n---\n")
    os.mkfifo(api_server.agent_runner.config_dir / "roles" / "pipe.md")
    found = {role["name"]: role for role in (await api_server.get("/v1/roles"))["roles"]}
    assert "`top_p` is the text 'x'" in found["broken"]["problem"]
    assert str(api_server.agent_runner.config_dir) not in found["broken"]["problem"]
    assert "pipe" not in found
    await api_server.get("/v1/roles/pipe", 400)
    await api_server.get("/v1/roles/broken", 400)


async def test_a_prompt_is_answered_in_a_role(api_server: ApiServer) -> None:
    put(api_server, "tr", "---\ntemperature: 0.25\nprompt: 'to __ARG1__: __INPUT__'\n---\nBe brief.")
    api_server.agent_runner.models.script("ciao")
    reply = await api_server.post("/v1/completions", {"prompt": "hello", "role": "tr#it"})
    assert reply["final_message"] == "ciao"
    assert sent(api_server) == [("system", "Be brief."), ("user", "to it: hello")]
    assert api_server.agent_runner.models.requests[-1].json["temperature"] == 0.25
    assert api_server.agent_runner.models.requests[-1].offered == []
    events = await api_server.get(f"/v1/runs/{reply['run']}/events")
    assert events["events"][0]["data"]["prompt"] == "hello"


async def test_what_a_request_says_goes_before_the_role(api_server: ApiServer) -> None:
    put(api_server, "warm", "---\nmodel: nobody:nothing\ntemperature: 0.9\n---\nx")
    api_server.agent_runner.models.script("ok")
    body = {"prompt": "hi", "role": "warm", "model": "fake:model", "temperature": 0.1}
    await api_server.post("/v1/completions", body)
    assert api_server.agent_runner.models.requests[-1].json["temperature"] == 0.1


async def test_a_session_keeps_its_role_until_it_gets_another(api_server: ApiServer) -> None:
    put(api_server, "one", "You are one.")
    made = await api_server.post("/v1/sessions", {"role": "one"}, 201)
    path = f"/v1/sessions/{made['id']}"
    assert made["role"] == "one"
    api_server.agent_runner.models.script("a", "b", "c")

    async def ask() -> list[tuple[str, str]]:
        await api_server.post(f"{path}/completions", {"prompt": "hi"})
        return sent(api_server)

    assert await ask() == [("system", "You are one."), ("user", "hi")]
    assert (await api_server.get(path))["role"] == "one"
    assert [message["role"] for message in (await api_server.get(path))["messages"]] == ["user", "assistant"]
    assert (await api_server.post(f"{path}/role", {"name": "shell"}))["role"] == "shell"
    assert (await ask())[0][1].startswith("You turn what the user wants")
    assert (await api_server.ask("DELETE", f"{path}/role"))["role"] is None
    assert [role for role, _ in await ask()] == ["user", "assistant"] * 2 + ["user"]


async def test_where_an_agent_answers_there_is_no_role(api_server: ApiServer) -> None:
    api_server.agent_runner.plain(LOOP, name="clerk")
    await api_server.post("/v1/sessions", {"role": "code", "agent": "clerk"}, 400)
    made = await api_server.post("/v1/sessions", {"agent": "clerk"}, 201)
    await api_server.post(f"/v1/sessions/{made['id']}/role", {"name": "code"}, 409)
    await api_server.post("/v1/runs", {"target": "", "prompt": "x", "session": made["id"], "role": "code"}, 400)
    await api_server.post("/v1/sessions", {"role": "nope"}, 400)


async def test_a_run_can_be_started_in_a_role(api_server: ApiServer) -> None:
    api_server.agent_runner.models.script("ls")
    body: dict[str, Any] = {"target": "", "prompt": "list files", "role": "shell"}
    run = await api_server.post("/v1/runs", body, 201)
    assert run["run"]
    await until(lambda: api_server.agent_runner.models.requests)
    assert sent(api_server)[0][1].startswith("You turn what the user wants")
    await api_server.post("/v1/runs", {**body, "role": "nope"}, 404)
    await api_server.post("/v1/runs", {**body, "role_prompt": "x"}, 400)
    await api_server.post("/v1/runs", {**body, "target": "coder"}, 400)


async def test_what_a_role_makes_of_a_prompt_has_a_bound(api_server: ApiServer) -> None:
    made = await api_server.post("/v1/sessions", {}, 201)
    body: dict[str, Any] = {"target": "", "prompt": "x" * 20_000, "role_prompt": "__INPUT__" * 1_000}
    assert has_message(
        (await api_server.post("/v1/runs", body, 400))["error"]["message"],
        "work.roles.prompt_in_role",
        places=1000,
    )
    body |= {"role_prompt": "x" * 1_000_001, "prompt": "hi", "session": made["id"]}
    assert has_message(
        (await api_server.post("/v1/runs", body, 400))["error"]["message"], "protocol.role.role_of_prompt"
    )
    api_server.agent_runner.models.script("ok")
    await api_server.post(f"/v1/sessions/{made['id']}/completions", {"prompt": "hi"})
    assert sent(api_server) == [("user", "hi")]


async def test_errors_of_roles_tell_no_directory_of_the_server(api_server: ApiServer) -> None:
    put(api_server, "broken", "---\ntop_p: x\n---\n")
    (api_server.agent_runner.config_dir / "roles" / "latin.md").write_bytes(b"\xe9")
    client = api_server.client
    replies = [
        await client.get("/v1/roles/broken"),
        await client.get("/v1/roles/latin"),
        await client.put("/v1/roles/other", json={"text": "---\ntop_p: x\n---\n"}),
        await client.post("/v1/completions", json={"prompt": "hi", "role": "broken"}),
        await client.post("/v1/sessions", json={"role": "latin"}),
    ]
    for reply in replies:
        assert reply.status_code == 400
        assert str(api_server.agent_runner.config_dir) not in reply.text
        assert ".md" in reply.text


async def test_a_name_is_bounded_in_bytes(api_server: ApiServer) -> None:
    made = await api_server.client.put(f"/v1/roles/{'語' * 66}", json={"text": "x"})
    assert made.status_code == 201
    assert (await api_server.get(made.headers["location"]))["name"] == "語" * 66
    assert (await api_server.client.put(f"/v1/roles/{'語' * 90}", json={"text": "x"})).status_code == 400
