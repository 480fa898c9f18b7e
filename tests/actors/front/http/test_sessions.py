"""Sessions over HTTP: made, talked to, changed, removed; and kept whatever the client does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from support.fake_models import Reply
from support.http_agents import LOOP
from support.http_server import ApiServer
from support.tiny_weights import WORDS, put_weights
from support.waiting import until

from callboard.actors.runs.sessions.store import SessionStore


async def session(api_server: ApiServer, **more: Any) -> str:
    made = await api_server.post("/v1/sessions", more, 201)
    return str(made["id"])


async def said(api_server: ApiServer, id: str) -> list[tuple[str, str]]:
    found = await api_server.get(f"/v1/sessions/{id}")
    return [(message["role"], message["content"]) for message in found["messages"]]


async def test_a_session_is_made_listed_read_and_removed(api_server: ApiServer) -> None:
    response = await api_server.client.post("/v1/sessions", json={"alias": "my-project", "model": "fake:model"})
    assert response.status_code == 201
    made = response.json()
    assert response.headers["location"] == f"/v1/sessions/{made['id']}"
    assert made["alias"] == "my-project"
    assert made["owner"] == "local"
    assert made["created_at"]
    assert [each["id"] for each in (await api_server.get("/v1/sessions"))["sessions"]] == [made["id"]]
    assert (await api_server.get(f"/v1/sessions/{made['id']}"))["messages"] == []
    assert (await api_server.post("/v1/sessions", {"alias": "my-project"}, 409))["error"]["code"] == "conflict"
    await api_server.ask("DELETE", f"/v1/sessions/{made['id']}", 204)
    await api_server.get(f"/v1/sessions/{made['id']}", 404)


async def test_what_is_said_is_kept_and_read_by_the_model_next_time(api_server: ApiServer) -> None:
    api_server.agent_runner.plain(LOOP, name="clerk")
    id = await session(api_server, agent="clerk")
    api_server.agent_runner.models.script("hello", "again")
    reply = await api_server.post(f"/v1/sessions/{id}/completions", {"prompt": "hi"})
    assert reply["session_id"] == id
    assert await said(api_server, id) == [("user", "hi"), ("assistant", "hello")]
    await api_server.post(f"/v1/sessions/{id}/completions", {"prompt": "and?"})
    sent = [message["content"] for message in api_server.agent_runner.models.requests[-1].json["messages"]]
    assert sent[1:] == ["hi", "hello", "and?"]


async def test_a_session_of_nobody_is_one_with_the_model_itself(api_server: ApiServer) -> None:
    id = await session(api_server)
    api_server.agent_runner.models.script("hello")
    events = await api_server.events("POST", f"/v1/sessions/{id}/completions", {"prompt": "hi", "stream": True})
    assert events[0][2]["session_id"] == id
    assert events[-1][1] == "finished"
    assert len(await said(api_server, id)) == 2


async def test_ten_prompts_at_once_are_all_kept_one_after_the_other(api_server: ApiServer) -> None:
    api_server.agent_runner.models.answer_with(lambda request: "re " + request.prompt)
    id = await session(api_server)

    async def ask(number: int) -> None:
        reply = await api_server.post(f"/v1/sessions/{id}/completions", {"prompt": f"p{number}"})
        assert reply["final_message"] == f"re p{number}"

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(ask, number)
    kept = await said(api_server, id)
    pairs = list(zip(kept[::2], kept[1::2], strict=True))
    assert all(answer == ("assistant", "re " + prompt[1]) for prompt, answer in pairs)
    assert sorted(prompt[1] for prompt, _ in pairs) == [f"p{number}" for number in range(10)]


async def test_case_106_a_session_keeps_what_was_said_when_its_client_left(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIDS", str(tmp_path))
    home = api_server.agent_runner.plain(LOOP, name="clerk")
    (home / "tools.sh").write_text('# @cmd Sleeps.\nnap() { echo $$ > "$PIDS/nap"; sleep 60; }\n')
    id = await session(api_server, agent="clerk")
    api_server.agent_runner.models.script(Reply(text="I sleep first.", calls=[("nap", {})]))
    path = f"/v1/sessions/{id}/completions"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(api_server.events, "POST", path, {"prompt": "sleep", "stream": True})
        await until(lambda: (tmp_path / "nap").exists())
        nursery.cancel_scope.cancel()
    with trio.fail_after(60):
        while not await said(api_server, id):
            await trio.sleep(0.01)
    kept = await said(api_server, id)
    assert kept[0] == ("user", "sleep")
    api_server.agent_runner.models.script("awake")
    reply = await api_server.post(path, {"prompt": "still there?"})
    assert reply["final_message"] == "awake"


async def test_what_was_said_is_forgotten_and_the_session_stays(api_server: ApiServer) -> None:
    id = await session(api_server, alias="a")
    api_server.agent_runner.models.script("hello")
    await api_server.post(f"/v1/sessions/{id}/completions", {"prompt": "hi"})
    assert (await api_server.post(f"/v1/sessions/{id}/empty"))["messages"] == []
    assert await said(api_server, id) == []


async def test_a_session_is_shortened_by_a_summary(api_server: ApiServer) -> None:
    id = await session(api_server)
    api_server.agent_runner.models.answer_with(lambda request: "ok")
    for _ in range(3):
        await api_server.post(f"/v1/sessions/{id}/completions", {"prompt": "tell me"})
    assert (await api_server.post(f"/v1/sessions/{id}/compress"))["compressed"] is True
    assert len((await api_server.get(f"/v1/sessions/{id}"))["compressed_messages"]) >= 6


async def test_an_agent_and_knowledge_are_attached_and_taken_away(api_server: ApiServer) -> None:
    api_server.agent_runner.plain(LOOP, name="clerk")
    folder = api_server.agent_runner.config_dir / "knowledge"
    folder.mkdir()
    (folder / "facts.yaml").write_text("documents: [facts.txt]\n")
    (folder / "facts.txt").write_text("the sky is green")
    id = await session(api_server)
    path = f"/v1/sessions/{id}"
    assert (await api_server.post(f"{path}/agent", {"name": "clerk"}))["agent"] == "clerk"
    assert (await api_server.ask("DELETE", f"{path}/agent"))["agent"] is None
    await api_server.post(f"{path}/agent", {"name": "nobody"}, 400)
    await api_server.post(f"{path}/rag", {"name": "nothing"}, 400)
    api_server.agent_runner.models.script("hello")
    await api_server.post(f"{path}/completions", {"prompt": "hi"})
    await api_server.post(f"{path}/agent", {"name": "clerk"}, 409)
    await api_server.post(f"{path}/role", {"name": "explain"}, 400)


@pytest.mark.parametrize("body", [{"alias": "../up"}, {"alias": ""}, {"agent": "../../etc"}, {"rag": "no"}, {"x": 1}])
async def test_names_that_lead_elsewhere_are_refused(api_server: ApiServer, body: dict[str, Any]) -> None:
    assert (await api_server.post("/v1/sessions", body, 400))["error"]["code"] == "usage"


async def test_a_knowledge_base_is_built_anew_and_a_session_looks_things_up_in_it(
    api_server: ApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put_weights(monkeypatch, tmp_path / "cache", WORDS)
    folder = api_server.agent_runner.config_dir / "knowledge"
    folder.mkdir()
    (folder / "facts.yaml").write_text(f"embedding_model: local:static\ndocuments: [{folder}/facts.txt]\n")
    (folder / "facts.txt").write_text("the sky is green")
    assert [rag["name"] for rag in (await api_server.get("/v1/rags"))["rags"]] == ["facts"]
    report = await api_server.post("/v1/rags/facts/rebuild")
    assert report["chunks"] == 1
    id = await session(api_server, rag="facts")
    assert (await api_server.get(f"/v1/sessions/{id}"))["rag"] == "facts"
    api_server.agent_runner.models.script("green")
    await api_server.post(f"/v1/sessions/{id}/completions", {"prompt": "what is the sky?"})
    assert "the sky is green" in api_server.agent_runner.models.requests[-1].body.decode()
    assert (await api_server.ask("DELETE", f"/v1/sessions/{id}/rag"))["rag"] is None


async def test_a_prompt_into_a_session_may_wish_for_more_than_the_agents_file_says(api_server: ApiServer) -> None:
    api_server.agent_runner.plain(LOOP, name="clerk")
    id = await session(api_server, agent="clerk")
    api_server.agent_runner.models.script("ok")
    path = f"/v1/sessions/{id}/completions"
    await api_server.post(path, {"prompt": "x", "temperature": 0.3, "auto_continue": True})
    request = api_server.agent_runner.models.requests[-1]
    assert request.json["temperature"] == 0.3
    assert "todo__add" in request.offered
    api_server.agent_runner.models.script("ok")
    await api_server.post(path, {"prompt": "y"})
    assert "todo__add" not in api_server.agent_runner.models.requests[-1].offered


async def test_twenty_sessions_side_by_side_keep_to_themselves(api_server: ApiServer) -> None:
    api_server.agent_runner.models.answer_with(lambda request: "re " + request.prompt)

    async def talk(number: int) -> None:
        id = await session(api_server)
        for turn in range(3):
            await api_server.post(f"/v1/sessions/{id}/completions", {"prompt": f"{number}.{turn}"})
        kept = [text for role, text in await said(api_server, id) if role == "user"]
        assert kept == [f"{number}.{turn}" for turn in range(3)]

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(talk, number)


async def test_a_session_without_a_name_gets_one_from_a_model_which_is_told(api_server: ApiServer) -> None:
    id = await session(api_server)
    state = SessionStore(api_server.agent_runner.config_dir).path(id)
    state.write_text("save_session: true\n" + state.read_text())
    api_server.agent_runner.models.script("Arches.", "What holds arches up?")
    reply = await api_server.post(f"/v1/sessions/{id}/completions", {"prompt": "tell me"})
    assert reply["autonamed"].endswith("-what-holds-arches-up")
    assert (await api_server.get(f"/v1/sessions/{id}"))["alias"] == reply["autonamed"]


async def test_an_answer_that_can_not_be_kept_comes_with_a_warning(api_server: ApiServer) -> None:
    id = await session(api_server)
    state = SessionStore(api_server.agent_runner.config_dir).path(id)

    def vanish(_: object) -> str:
        state.unlink()
        return "forty-two"

    api_server.agent_runner.models.answer_with(vanish)
    assert (await api_server.post(f"/v1/sessions/{id}/completions", {"prompt": "tell me"}))[
        "final_message"
    ] == "forty-two"
