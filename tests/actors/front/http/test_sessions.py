"""Sessions over HTTP: made, talked to, changed, removed; and kept whatever the client does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from support.fake_models import Reply
from support.http_agents import LOOP
from support.http_server import House
from support.tiny_weights import WORDS, put_weights
from support.waiting import until

from callboard.actors.runs.sessions.store import SessionStore


async def session(house: House, **more: Any) -> str:
    made = await house.post("/v1/sessions", more, 201)
    return str(made["id"])


async def said(house: House, id: str) -> list[tuple[str, str]]:
    found = await house.get(f"/v1/sessions/{id}")
    return [(message["role"], message["content"]) for message in found["messages"]]


async def test_a_session_is_made_listed_read_and_removed(house: House) -> None:
    response = await house.client.post("/v1/sessions", json={"alias": "my-project", "model": "fake:model"})
    assert response.status_code == 201
    made = response.json()
    assert response.headers["location"] == f"/v1/sessions/{made['id']}"
    assert made["alias"] == "my-project"
    assert made["owner"] == "local"
    assert made["created_at"]
    assert [each["id"] for each in (await house.get("/v1/sessions"))["sessions"]] == [made["id"]]
    assert (await house.get(f"/v1/sessions/{made['id']}"))["messages"] == []
    assert (await house.post("/v1/sessions", {"alias": "my-project"}, 409))["error"]["code"] == "conflict"
    await house.ask("DELETE", f"/v1/sessions/{made['id']}", 204)
    await house.get(f"/v1/sessions/{made['id']}", 404)


async def test_what_is_said_is_kept_and_read_by_the_model_next_time(house: House) -> None:
    house.stage.plain(LOOP, name="clerk")
    id = await session(house, agent="clerk")
    house.stage.models.script("hello", "again")
    reply = await house.post(f"/v1/sessions/{id}/completions", {"prompt": "hi"})
    assert reply["session_id"] == id
    assert await said(house, id) == [("user", "hi"), ("assistant", "hello")]
    await house.post(f"/v1/sessions/{id}/completions", {"prompt": "and?"})
    sent = [message["content"] for message in house.stage.models.requests[-1].json["messages"]]
    assert sent[1:] == ["hi", "hello", "and?"]


async def test_a_session_of_nobody_is_one_with_the_model_itself(house: House) -> None:
    id = await session(house)
    house.stage.models.script("hello")
    events = await house.events("POST", f"/v1/sessions/{id}/completions", {"prompt": "hi", "stream": True})
    assert events[0][2]["session_id"] == id
    assert events[-1][1] == "finished"
    assert len(await said(house, id)) == 2


async def test_ten_prompts_at_once_are_all_kept_one_after_the_other(house: House) -> None:
    house.stage.models.answer_with(lambda request: "re " + request.prompt)
    id = await session(house)

    async def ask(number: int) -> None:
        reply = await house.post(f"/v1/sessions/{id}/completions", {"prompt": f"p{number}"})
        assert reply["final_message"] == f"re p{number}"

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(ask, number)
    kept = await said(house, id)
    pairs = list(zip(kept[::2], kept[1::2], strict=True))
    assert all(answer == ("assistant", "re " + prompt[1]) for prompt, answer in pairs)
    assert sorted(prompt[1] for prompt, _ in pairs) == [f"p{number}" for number in range(10)]


async def test_case_106_a_session_keeps_what_was_said_when_its_client_left(
    house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIDS", str(tmp_path))
    home = house.stage.plain(LOOP, name="clerk")
    (home / "tools.sh").write_text('# @cmd Sleeps.\nnap() { echo $$ > "$PIDS/nap"; sleep 60; }\n')
    id = await session(house, agent="clerk")
    house.stage.models.script(Reply(text="I sleep first.", calls=[("nap", {})]))
    path = f"/v1/sessions/{id}/completions"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(house.events, "POST", path, {"prompt": "sleep", "stream": True})
        await until(lambda: (tmp_path / "nap").exists())
        nursery.cancel_scope.cancel()
    with trio.fail_after(60):
        while not await said(house, id):
            await trio.sleep(0.01)
    kept = await said(house, id)
    assert kept[0] == ("user", "sleep")
    house.stage.models.script("awake")
    reply = await house.post(path, {"prompt": "still there?"})
    assert reply["final_message"] == "awake"


async def test_what_was_said_is_forgotten_and_the_session_stays(house: House) -> None:
    id = await session(house, alias="a")
    house.stage.models.script("hello")
    await house.post(f"/v1/sessions/{id}/completions", {"prompt": "hi"})
    assert (await house.post(f"/v1/sessions/{id}/empty"))["messages"] == []
    assert await said(house, id) == []


async def test_a_session_is_shortened_by_a_summary(house: House) -> None:
    id = await session(house)
    house.stage.models.answer_with(lambda request: "ok")
    for _ in range(3):
        await house.post(f"/v1/sessions/{id}/completions", {"prompt": "tell me"})
    assert (await house.post(f"/v1/sessions/{id}/compress"))["compressed"] is True
    assert len((await house.get(f"/v1/sessions/{id}"))["compressed_messages"]) >= 6


async def test_an_agent_and_knowledge_are_attached_and_taken_away(house: House) -> None:
    house.stage.plain(LOOP, name="clerk")
    folder = house.stage.config_dir / "knowledge"
    folder.mkdir()
    (folder / "facts.yaml").write_text("documents: [facts.txt]\n")
    (folder / "facts.txt").write_text("the sky is green")
    id = await session(house)
    path = f"/v1/sessions/{id}"
    assert (await house.post(f"{path}/agent", {"name": "clerk"}))["agent"] == "clerk"
    assert (await house.ask("DELETE", f"{path}/agent"))["agent"] is None
    await house.post(f"{path}/agent", {"name": "nobody"}, 400)
    await house.post(f"{path}/rag", {"name": "nothing"}, 400)
    house.stage.models.script("hello")
    await house.post(f"{path}/completions", {"prompt": "hi"})
    await house.post(f"{path}/agent", {"name": "clerk"}, 409)
    await house.post(f"{path}/role", {"name": "explain"}, 400)


@pytest.mark.parametrize("body", [{"alias": "../up"}, {"alias": ""}, {"agent": "../../etc"}, {"rag": "no"}, {"x": 1}])
async def test_names_that_lead_elsewhere_are_refused(house: House, body: dict[str, Any]) -> None:
    assert (await house.post("/v1/sessions", body, 400))["error"]["code"] == "usage"


async def test_a_knowledge_base_is_built_anew_and_a_session_looks_things_up_in_it(
    house: House, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put_weights(monkeypatch, tmp_path / "cache", WORDS)
    folder = house.stage.config_dir / "knowledge"
    folder.mkdir()
    (folder / "facts.yaml").write_text(f"embedding_model: local:static\ndocuments: [{folder}/facts.txt]\n")
    (folder / "facts.txt").write_text("the sky is green")
    assert [rag["name"] for rag in (await house.get("/v1/rags"))["rags"]] == ["facts"]
    report = await house.post("/v1/rags/facts/rebuild")
    assert report["chunks"] == 1
    id = await session(house, rag="facts")
    assert (await house.get(f"/v1/sessions/{id}"))["rag"] == "facts"
    house.stage.models.script("green")
    await house.post(f"/v1/sessions/{id}/completions", {"prompt": "what is the sky?"})
    assert "the sky is green" in house.stage.models.requests[-1].body.decode()
    assert (await house.ask("DELETE", f"/v1/sessions/{id}/rag"))["rag"] is None


async def test_a_prompt_into_a_session_may_wish_for_more_than_the_agents_file_says(house: House) -> None:
    house.stage.plain(LOOP, name="clerk")
    id = await session(house, agent="clerk")
    house.stage.models.script("ok")
    path = f"/v1/sessions/{id}/completions"
    await house.post(path, {"prompt": "x", "temperature": 0.3, "auto_continue": True})
    request = house.stage.models.requests[-1]
    assert request.json["temperature"] == 0.3
    assert "todo__add" in request.offered
    house.stage.models.script("ok")
    await house.post(path, {"prompt": "y"})
    assert "todo__add" not in house.stage.models.requests[-1].offered


async def test_twenty_sessions_side_by_side_keep_to_themselves(house: House) -> None:
    house.stage.models.answer_with(lambda request: "re " + request.prompt)

    async def talk(number: int) -> None:
        id = await session(house)
        for turn in range(3):
            await house.post(f"/v1/sessions/{id}/completions", {"prompt": f"{number}.{turn}"})
        kept = [text for role, text in await said(house, id) if role == "user"]
        assert kept == [f"{number}.{turn}" for turn in range(3)]

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(talk, number)


async def test_a_session_without_a_name_gets_one_from_a_model_which_is_told(house: House) -> None:
    id = await session(house)
    state = SessionStore(house.stage.config_dir).path(id)
    state.write_text("save_session: true\n" + state.read_text())
    house.stage.models.script("Arches.", "What holds arches up?")
    reply = await house.post(f"/v1/sessions/{id}/completions", {"prompt": "tell me"})
    assert reply["autonamed"].endswith("-what-holds-arches-up")
    assert (await house.get(f"/v1/sessions/{id}"))["alias"] == reply["autonamed"]


async def test_an_answer_that_can_not_be_kept_comes_with_a_warning(house: House) -> None:
    id = await session(house)
    state = SessionStore(house.stage.config_dir).path(id)

    def vanish(_: object) -> str:
        state.unlink()
        return "forty-two"

    house.stage.models.answer_with(vanish)
    assert (await house.post(f"/v1/sessions/{id}/completions", {"prompt": "tell me"}))["final_message"] == "forty-two"
