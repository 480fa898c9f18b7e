"""What callers see of daily limits: statuses, errors, reloads; and that they hold for every way in."""

from __future__ import annotations

import json
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import trio
from support.access_keys import made_key
from support.fake_models import FakeModels, Reply, Request
from support.http_server import ApiServer, Serve
from support.messages import has_message
from support.waiting import PATIENCE
from trio_websocket import open_websocket_url

from callboard.actors.work.spending.book import BookFile, SpendingBook
from callboard.actors.work.spending.days import DayReading, Days
from callboard.actors.work.spending.ledger import LedgerStore
from callboard.protocol.control.errors import RUN_FAILED
from callboard.protocol.settings.api import ApiSettings
from callboard.supervisors import Root

SCOPES = (
    "run:agents",
    "read:agents",
    "read:runs",
    "write:runs",
    "read:models",
    "read:sessions",
    "write:sessions",
    "admin:mcp",
)
AGENT = "name: clerk\ninstructions: help\n"
PRICED = {"name": "model", "input_price": 1_000.0, "output_price": 1_000.0, "max_output_tokens": 100}
VECTORS = {"name": "vectors", "type": "embedding", "input_price": 1_000.0}
CHAT = "/v1/chat/completions"
COST = 0.015
"""USD of one of the fake model's replies: 10 tokens and 5."""


class Callers:
    """A server with the keys of alice and bob."""

    def __init__(self, serve: Serve, model: FakeModels) -> None:
        self._serve = serve
        self._model = model
        (self.alice, alice), (self.bob, bob) = made_key("alice", *SCOPES), made_key("bob", *SCOPES)
        self._keys: list[dict[str, Any]] = [msgspec.to_builtins(key) for key in (alice, bob)]
        self.api_server: ApiServer

    def settings(self, alices: dict[str, float] | None = None, **limits: Any) -> dict[str, Any]:
        """Settings in which alice has these daily limits, and the server those."""
        alice, bob = self._keys
        priced = json.loads(self._model.config())["clients"][0] | {"models": [PRICED, VECTORS, {"name": "other"}]}
        of_alice = alice | {"daily": alices} if alices else alice
        return {"clients": [priced], "api": {"auth": {"keys": [of_alice, bob]}, "limits": limits}}

    def serve(self, alices: dict[str, float] | None = None, **limits: Any) -> Any:
        return self._serve(**self.settings(alices, **limits))

    async def ask(self, api_server: ApiServer, key: str, path: str = CHAT, **body: Any) -> httpx.Response:
        if path == CHAT:
            body = {"model": "agent/clerk", "messages": [{"role": "user", "content": "x"}]} | body
        agent = api_server.agent_runner.config_dir / "agents" / "clerk"
        agent.mkdir(parents=True, exist_ok=True)
        (agent / "config.yaml").write_text(AGENT)
        return await api_server.client.post(path, json=body, headers={"authorization": f"Bearer {key}"})


@pytest.fixture(autouse=True)
def noon(monkeypatch: pytest.MonkeyPatch) -> datetime:
    """Days begin to count at noon, so no test is about two of them, whatever the hour."""
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    ahead = noon.timestamp() - time.time()
    made = Days.__init__

    def at_noon(self: Days, root: Root, store: LedgerStore, settings: ApiSettings, **more: Any) -> None:
        now = more.pop("now")
        made(self, root, store, settings, now=lambda: now() + ahead, **more)

    monkeypatch.setattr(Days, "__init__", at_noon)
    return noon


@pytest.fixture
def callers(serve: Serve, fake_model: FakeModels) -> Callers:
    return Callers(serve, fake_model)


def reading(api_server: ApiServer, subject: str = "alice") -> DayReading:
    days = api_server.agent_runner.root.days
    assert days is not None
    (found,) = (each for each in days.readings() if each.subject == subject)
    return found


async def test_a_key_whose_day_is_spent_gets_429_and_when_to_come_again(callers: Callers) -> None:
    async with callers.serve({"max_cost": COST / 2}) as api_server:
        first = await callers.ask(api_server, callers.alice)
        assert first.status_code == 200, first.text
        for path, more in ((CHAT, {}), ("/v1/runs", {"target": "clerk", "prompt": "x"})):
            refused = await callers.ask(api_server, callers.alice, path, **more)
            assert refused.status_code == 429, refused.text
            assert 0 < int(refused.headers["retry-after"]) <= 86_400
            error = refused.json()["error"]
            assert error["code"] == "daily_budget"
            assert has_message(
                error["message"],
                "work.spending.accounts.Account._check_spent.3",
                name="…'alice'…",
                cost="0.0150",
                max_cost="0.0075",
            )
        stream = await callers.ask(api_server, callers.alice, stream=True)
        assert stream.status_code == 429
        assert (await callers.ask(api_server, callers.bob)).status_code == 200, "bob has no limit"
        assert reading(api_server).spent.cost == pytest.approx(COST)


async def test_turns_of_a_session_and_streams_of_events_are_refused_as_runs_are(callers: Callers) -> None:
    async with callers.serve({"max_cost": COST}) as api_server:
        headers = {"authorization": f"Bearer {callers.alice}"}
        path = f"/v1/sessions/{(await api_server.post('/v1/sessions', {}, 201, headers=headers))['id']}/completions"
        assert (await callers.ask(api_server, callers.alice, path, prompt="x")).status_code == 200
        said = [{"id": "1", "role": "user", "content": "x"}]
        agui = {"threadId": "t", "runId": "r", "messages": said, "tools": [], "context": [], "state": {}}
        agui["forwardedProps"] = {"target": "agent/clerk"}
        for there, body in ((path, {"prompt": "x"}), ("/agui", agui)):
            refused = await callers.ask(api_server, callers.alice, there, **body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "daily_budget"), refused.text
            assert int(refused.headers["retry-after"]) > 0


async def test_a_websocket_is_told_the_same(callers: Callers) -> None:
    async with callers.serve({"max_tokens": 15}) as api_server:
        assert (await callers.ask(api_server, callers.alice)).status_code == 200
        headers = [(b"authorization", f"Bearer {callers.alice}".encode())]
        async with open_websocket_url(f"ws://127.0.0.1:{api_server.port}/ws", extra_headers=headers) as socket:
            start = {"jsonrpc": "2.0", "id": 1, "method": "_run/start", "params": {"target": "clerk", "prompt": "x"}}
            await socket.send_message(json.dumps(start))
            with trio.fail_after(60):
                while "error" not in (answer := json.loads(await socket.get_message())):
                    assert "result" not in answer
        assert answer["error"]["code"] == RUN_FAILED
        assert answer["error"]["data"]["code"] == "daily_budget"
        assert 0 < answer["error"]["data"]["retry_after"] <= 86_400


async def test_how_far_it_is_used_is_told_to_its_subject_and_to_operators(callers: Callers, noon: datetime) -> None:
    async with callers.serve({"max_cost": 1, "max_tokens": 1000}, per_subject_daily={"max_tokens": 50}) as api_server:
        assert (await callers.ask(api_server, callers.alice)).status_code == 200
        told = {}
        for name, key in (("alice", callers.alice), ("bob", callers.bob), ("local", api_server.token)):
            report = await api_server.get("/v1/usage?by=key", headers={"authorization": f"Bearer {key}"})
            told[name] = {each["subject"]: each for each in report["daily"]}
        today = noon.date().isoformat()
        of_alice = told["alice"]["alice"]
        assert of_alice.pop("cost") == pytest.approx(COST)
        assert of_alice == {
            "subject": "alice",
            "day": today,
            "max_cost": 1.0,
            "max_tokens": 1000,
            "tokens": 15,
            "held_cost": 0.0,
            "held_tokens": 0,
            "key": "api.auth.keys[0].daily",
        }
        assert {name: sorted(each) for name, each in told.items()} == {
            "alice": ["alice"],
            "bob": ["bob"],
            "local": ["alice", "bob"],
        }
        assert (told["bob"]["bob"]["max_tokens"], told["bob"]["bob"]["tokens"]) == (50, 0)
        text = (await api_server.client.get("/metrics")).text
        assert 'daily_limit_cost_usd{subject="alice"} 1.0' in text
        assert 'daily_spent_tokens{subject="alice"} 15.0' in text
        assert 'daily_reserved_tokens{subject="alice"} 0.0' in text
        assert 'daily_limit_tokens{subject="bob"} 50.0' in text
        assert 'daily_limit_cost_usd{subject="bob"}' not in text
        assert 'subject="*"' not in text
    async with callers.serve(daily={"max_cost": 2}) as api_server:
        assert 'daily_limit_cost_usd{subject="*"} 2.0' in (await api_server.client.get("/metrics")).text
        (of_all,) = (await api_server.get("/v1/usage"))["daily"]
        assert (of_all["subject"], of_all["key"]) == ("", "api.limits.daily")
        mine = await api_server.get("/v1/usage", headers={"authorization": f"Bearer {callers.bob}"})
        assert mine["daily"] == [], "what all have spent is not bob's to know"


async def test_a_run_under_way_ends_by_the_limit(callers: Callers, fake_model: FakeModels) -> None:
    fake_model.script(Reply(calls=[("todo__list", {})]))
    async with callers.serve({"max_cost": COST}) as api_server:
        ended = await callers.ask(api_server, callers.alice)
        assert ended.status_code == 429, ended.text
        assert ended.json()["error"]["code"] == "daily_budget"
        assert 0 < int(ended.headers["retry-after"]) <= 86_400
        assert len(fake_model.requests) == 1


async def test_the_limit_of_all_holds_for_the_user_of_the_server_too(callers: Callers) -> None:
    async with callers.serve({"max_cost": 5}, daily={"max_cost": COST * 1.5}) as api_server:
        assert (await callers.ask(api_server, callers.alice)).status_code == 200
        assert (await callers.ask(api_server, api_server.token)).status_code == 200
        refused = await callers.ask(api_server, callers.alice)
        assert refused.status_code == 429
        assert has_message(
            refused.text, "work.spending.accounts.Account._check_spent.3", cost="0.0300", max_cost="0.0225"
        )
        assert (await callers.ask(api_server, api_server.token)).status_code == 429


async def test_new_limits_hold_after_a_reload_and_close_no_connection(
    callers: Callers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd = trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    await systemd.bind(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))

    async def ready() -> None:
        with trio.fail_after(PATIENCE):
            while await systemd.recv(100) != b"READY=1":
                pass

    async with callers.serve({"max_cost": COST}) as api_server:
        await ready()
        file = api_server.agent_runner.config_dir / "config.yaml"

        async def reload(**settings: Any) -> None:
            file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
            api_server.server.hang_up()
            await ready()

        headers = [(b"authorization", f"Bearer {callers.alice}".encode())]
        async with open_websocket_url(f"ws://127.0.0.1:{api_server.port}/ws", extra_headers=headers) as connection:
            assert (await callers.ask(api_server, callers.alice)).status_code == 200
            assert (await callers.ask(api_server, callers.alice)).status_code == 429
            await reload(**callers.settings({"max_cost": 1}))
            assert (await callers.ask(api_server, callers.alice)).status_code == 200
            await reload(**callers.settings(per_subject_daily={"max_tokens": 20}))
            assert reading(api_server).spent.tokens == 30
            refused = await callers.ask(api_server, callers.alice)
            assert refused.status_code == 429
            assert has_message(
                refused.text,
                "work.spending.accounts.Account._check_spent.2",
                tokens=30,
                max_tokens=20,
                _key="`api.limits.per_subject_daily.max_tokens`",
            )
            await reload(**callers.settings({"max_costs": 1}))
            assert (await callers.ask(api_server, callers.alice)).status_code == 429, (
                "a file with errors changes nothing"
            )
            await connection.ping()
    systemd.close()


async def test_what_was_spent_is_there_after_a_restart(callers: Callers) -> None:
    async with callers.serve({"max_cost": COST}) as api_server:
        assert (await callers.ask(api_server, callers.alice)).status_code == 200
    async with callers.serve({"max_cost": COST}) as api_server:
        assert reading(api_server).spent.cost == pytest.approx(COST), "it is looked at when the server starts"
        assert (await callers.ask(api_server, callers.alice)).status_code == 429


async def test_a_model_without_a_price_is_refused_whatever_the_run_allows(callers: Callers) -> None:
    async with callers.serve({"max_cost": 5}) as api_server:
        body = {"target": "clerk", "prompt": "x", "model": "fake:other", "allow_unpriced": True}
        refused = await callers.ask(api_server, callers.alice, "/v1/runs", **body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unpriced")
        assert has_message(refused.text, "protocol.errors.Unpriced.of_day")
        assert has_message(refused.text, "protocol.errors.Unpriced.of_day", file="config.yaml")
        assert (await callers.ask(api_server, callers.bob, "/v1/runs", **body)).status_code == 201


async def test_a_file_that_can_not_be_written_refuses_the_runs_of_limited_keys_alone(
    callers: Callers, tmp_path: Path, fake_model: FakeModels
) -> None:
    (tmp_path / "state" / "callboard" / "usage.db").mkdir(parents=True)
    async with callers.serve({"max_cost": 5}) as api_server:
        refused = await callers.ask(api_server, callers.alice)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "ledger")
        assert "usage.db" in refused.text
        assert str(tmp_path) not in refused.text, "remote callers are not told paths of this machine"
        assert fake_model.requests == []
        assert (await callers.ask(api_server, callers.bob)).status_code == 200


async def test_a_session_is_summed_up_and_named_on_the_account_of_its_owner(callers: Callers, tmp_path: Path) -> None:
    async with callers.serve({"max_cost": 5}) as api_server:
        headers = {"authorization": f"Bearer {callers.alice}"}
        path = f"/v1/sessions/{(await api_server.post('/v1/sessions', {}, 201, headers=headers))['id']}"
        for _ in range(2):
            await api_server.post(f"{path}/completions", {"prompt": "tell me"}, headers=headers)
        before = reading(api_server).spent.cost
        root = api_server.agent_runner.root
        root.book = SpendingBook(root.kernel, BookFile(tmp_path / "usage.db"), now=time.time)
        assert (await api_server.post(f"{path}/compress", headers=headers))["compressed"] is True
        assert reading(api_server).spent.cost == pytest.approx(before + COST)
        (row,) = (await api_server.get("/v1/usage?by=key,agent", headers=headers))["usage"]
        assert (row["key"], row["agent"], row["requests"]) == ("alice", "ask", 1)
        assert row["cost"] == pytest.approx(COST), "which the book has, too"


async def test_knowledge_that_a_caller_has_built_anew_is_on_its_account_and_in_the_book(
    callers: Callers, fake_model: FakeModels, tmp_path: Path
) -> None:
    def answer(request: Request) -> Reply:
        rows = [
            {"index": number, "embedding": [3.0, 4.0 * len(text)]} for number, text in enumerate(request.json["input"])
        ]
        return Reply(raw=json.dumps({"data": rows, "usage": {"prompt_tokens": 15, "total_tokens": 15}}).encode())

    fake_model.answer_with(answer)
    async with callers.serve({"max_cost": COST}, daily={"max_cost": 1}) as api_server:
        folder = api_server.agent_runner.config_dir / "knowledge"
        folder.mkdir()
        (folder / "facts.yaml").write_text(f"embedding_model: fake:vectors\ndocuments: [{folder}/facts.txt]\n")
        (folder / "facts.txt").write_text("the sky is green")
        root = api_server.agent_runner.root
        root.book = SpendingBook(root.kernel, BookFile(tmp_path / "usage.db"), now=time.time)
        headers = {"authorization": f"Bearer {callers.alice}"}
        await api_server.post("/v1/rags/facts/rebuild", headers=headers)
        assert reading(api_server).spent.cost == pytest.approx(COST)
        assert reading(api_server, "").spent.cost == pytest.approx(COST)
        (row,) = (await api_server.get("/v1/usage?by=key,model", headers=headers))["usage"]
        assert (row["key"], row["model"], row["requests"], row["input_tokens"]) == ("alice", "fake:vectors", 1, 15)
        assert row["cost"] == pytest.approx(COST)
        (folder / "facts.txt").write_text("the sky is blue")
        refused = await api_server.post("/v1/rags/facts/rebuild", status=429, headers=headers)
        assert refused["error"]["code"] == "daily_budget"
        assert len(fake_model.requests) == 1, "nothing is asked for on a day that is spent"
        await api_server.post("/v1/rags/facts/rebuild")
        assert reading(api_server).spent.cost == pytest.approx(COST), "which is the local user's"
        assert reading(api_server, "").spent.cost == pytest.approx(2 * COST)
