"""Daily limits and the book of a cluster: real workers, gateways and a real PostgreSQL, and a scripted model server.

A limit holds for all of them together, and `usage` at any gateway says what the model server was asked; whoever is
killed, and whatever answers of the database are lost.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec
import pytest
import trio
from support.access_keys import made_key
from support.cluster import LEASE, SOON, SWEEPS, ClusterProcesses, all_over, beside, info, through, until
from support.cutting_proxy import Link
from support.daily_limits import ALICE, NOON, Clock, asked, limited, reading, spend
from support.fake_models import FakeModels, Reply
from support.postgres import Postgres

from callboard.actors.front.cluster.membership import ClusterMembership, ClusterOptions
from callboard.actors.front.cluster.shared_limits import ClusterBook, ClusterLedger
from callboard.actors.work.spending import book as books
from callboard.actors.work.spending import days as of_days
from callboard.actors.work.spending import ledger as ledgers
from callboard.actors.work.spending.accounts import Amount, Hold
from callboard.actors.work.spending.book import Away, SpendingBook, SpendingSums
from callboard.actors.work.spending.days import Days
from callboard.actors.work.spending.ledger import Batch, Others, today_of
from callboard.protocol.chat import TokenUsage
from callboard.protocol.errors import DayReached, LedgerBroken
from callboard.protocol.settings.api import ApiSettings, DailyLimits
from callboard.supervisors import Root
from callboard.supervisors.cluster import tables
from callboard.supervisors.cluster.database import connected

SCOPES = ("run:agents", "read:agents", "read:runs", "write:runs")
PRICED = {"name": "model", "input_price": 1_000.0, "output_price": 1_000.0, "max_output_tokens": 20}
TOKENS, COST = 15, 0.015
"""Of one of the model server's replies."""
MOST_TOKENS = 150
"""That a request of `thinks` may come to, or less: its bytes, and 20 tokens of output."""

T = TypeVar("T")


@dataclass
class Callers:
    """A cluster, and the key of each of its callers."""

    cluster_processes: ClusterProcesses
    keys: dict[str, str]

    def as_(self, name: str, http: httpx.Client) -> httpx.Client:
        """Who asks the same server with a key of this name."""
        return self.cluster_processes.client_at(str(http.base_url), self.keys[name])


def made(tmp_path: Path, postgres: Postgres, model: FakeModels, **daily: dict[str, float]) -> Callers:
    """A cluster in which these callers have daily limits."""
    config, keys, rows = tmp_path / "config", {}, []
    config.mkdir(parents=True)
    for name, limits in daily.items():
        keys[name], row = made_key(name, *SCOPES)
        rows.append(msgspec.to_builtins(row) | ({"daily": limits} if limits else {}))
    settings = json.loads(model.config())
    settings["clients"][0]["models"] = [PRICED]
    (config / "config.yaml").write_text(json.dumps({**settings, "api": {"auth": {"keys": rows}}}))
    return Callers(ClusterProcesses(tmp_path, postgres.database(), config), keys)


def daily(http: httpx.Client, subject: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = http.get("/v1/usage").json()["daily"]
    return next(each for each in found if each["subject"] == subject)


@pytest.mark.parametrize("runs", [16, pytest.param(400, marks=pytest.mark.soak)])
async def test_a_limit_holds_for_all_workers_and_usage_says_what_the_models_were_asked_whatever_ends(
    tmp_path: Path, own: tuple[Postgres, ClusterProcesses, Link], fake_model: FakeModels, runs: int
) -> None:
    server, _, _ = own
    fake_model.script(Reply(text="never", hold=trio.Event()))
    fake_model.answer_with(lambda _: Reply(text="ok", delay=0.01))
    limit = runs // 2 * TOKENS
    limits = {"alice": {"max_tokens": limit}, "bob": {"max_cost": limit / 1_000}, "carol": {"max_tokens": 10**6}}
    callers = made(tmp_path / "limited", server, fake_model, **limits)
    cluster_processes = callers.cluster_processes

    def plays() -> dict[str, Any]:
        one = cluster_processes.worker("one")
        http = cluster_processes.client(cluster_processes.gateway())
        of = {name: callers.as_(name, http) for name in limits}
        run = cluster_processes.start(of["carol"], "thinks")
        until(lambda: fake_model.requests)
        held = daily(http, "carol")
        assert (held["tokens"], 0 < held["held_tokens"] <= MOST_TOKENS) == (0, True)
        one.end()  # nobody knows what its request comes to
        workers = [cluster_processes.worker("two", *SWEEPS), cluster_processes.worker("three")]
        cluster_processes.expire("one")
        for _ in range(runs):
            for name in ("alice", "bob"):
                answer = of[name].post("/v1/runs", json={"target": "thinks", "prompt": "x"})
                assert answer.status_code in (201, 429), answer.text
        until(lambda: len(fake_model.requests) > runs // 2)
        server.stop(signal.SIGQUIT)
        server.start()
        stands = until(lambda: all_ended(http))
        assert {each["status"] for each in stands} == {"done", "failed"}
        assert {each["error"]["code"] for each in stands if each["status"] == "failed"} == {"daily_budget"}
        assert info(http, run)["status"] == "done"
        until(lambda: limit - MOST_TOKENS <= spent_by_metrics(http, "alice"))
        refused = of["alice"].post("/v1/runs", json={"target": "thinks", "prompt": "x"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "daily_budget")
        told: dict[str, Any] = until(lambda: usage(http, len(fake_model.requests) - 1))
        for each in workers:
            other = usage(cluster_processes.client(each), told["total"]["requests"])
            assert other is not None
            assert other["usage"] == told["usage"]
            assert [day["tokens"] for day in other["daily"]] == [day["tokens"] for day in told["daily"]]
        after = daily(http, "carol")
        assert (after["tokens"], after["held_tokens"]) == (TOKENS, held["held_tokens"])
        return {each["key"]: each for each in told["usage"]} | {each["subject"] + "'s": each for each in told["daily"]}

    told = await beside(cluster_processes, plays)
    asked_for = {name: told[name]["requests"] for name in limits}
    assert asked_for["carol"] == 1
    assert limit - MOST_TOKENS <= told["alice's"]["tokens"] == TOKENS * asked_for["alice"] <= limit + MOST_TOKENS
    assert told["bob's"]["cost"] == pytest.approx(COST * asked_for["bob"])
    assert limit - MOST_TOKENS <= 1_000 * told["bob's"]["cost"] <= limit + MOST_TOKENS


def spent_by_metrics(http: httpx.Client, subject: str) -> float:
    """Tokens that a gateway's metrics say were spent."""
    found = re.search(rf'daily_spent_tokens\{{subject="{subject}"\}} (\S+)', http.get("/metrics").text)
    assert found is not None
    return float(found[1])


def all_ended(http: httpx.Client) -> list[dict[str, Any]] | None:
    """All runs, if they are over."""
    found: list[dict[str, Any]] = http.get("/v1/runs", params={"limit": 1000}).json()["runs"]
    return found if all(each["ended"] for each in found) else None


def usage(http: httpx.Client, requests: int) -> dict[str, Any] | None:
    """What was spent by key, if it is that of so many requests and nobody but carol's dead worker holds anything."""
    answer = http.get("/v1/usage", params={"by": "key"})
    if answer.status_code != 200:
        return None
    told: dict[str, Any] = answer.json()
    held = [each["subject"] for each in told["daily"] if each["held_tokens"]]
    return told if told["total"]["requests"] == requests and held == ["carol"] else None


@pytest.mark.soak
async def test_runs_under_a_limit_wait_while_the_database_is_away_and_a_gateway_refuses(
    tmp_path: Path, own: tuple[Postgres, ClusterProcesses, Link], fake_model: FakeModels
) -> None:
    server, _, _ = own
    let_go = trio.Event()
    fake_model.answer_with(lambda _: Reply(text="ok", hold=let_go))
    callers = made(tmp_path / "limited", server, fake_model, alice={"max_tokens": 100_000})
    cluster_processes = callers.cluster_processes
    token = trio.lowlevel.current_trio_token()

    def plays() -> int:
        workers = [cluster_processes.worker(name) for name in ("one", "two")]
        http = cluster_processes.client(cluster_processes.gateway())
        of_alice = callers.as_("alice", http)
        runs = [cluster_processes.start(of_alice, "thinks") for _ in range(6)]
        until(lambda: len(fake_model.requests) == 6)
        server.stop()
        assert of_alice.post("/v1/runs", json={"target": "thinks", "prompt": "x"}).status_code in (500, 503)
        assert http.get("/v1/usage").status_code == 500
        token.run_sync_soon(let_go.set)
        until(lambda: any("can't be written" in each.said for each in workers))
        server.start()
        all_over(http, runs)
        assert {info(http, run)["status"] for run in runs} == {"done"}
        again = [cluster_processes.start(of_alice, "thinks") for _ in range(2)]
        all_over(http, again)
        assert {info(http, run)["status"] for run in again} == {"done"}
        used = until(lambda: (used := daily(http, "alice"))["held_tokens"] == 0 and used)
        assert used["tokens"] == TOKENS * len(fake_model.requests)
        requests: int = until(
            lambda: (total := http.get("/v1/usage").json()["total"]["requests"]) == len(fake_model.requests) and total
        )
        return requests

    assert await beside(cluster_processes, plays) == 8


# --- in one process, with connections that break ------------------------------------------------------------------


class InCluster:
    """Processes of a cluster as ledgers and books of their own, in this one."""

    def __init__(self, root: Root, dsn: str) -> None:
        self.root = root
        self.dsn = dsn
        self._seats = 0
        with connected(dsn, "test", LEASE) as db:
            tables.migrate(db)

    def seat(self, dsn: str = "") -> ClusterMembership:
        self._seats += 1
        return ClusterMembership(ClusterOptions(dsn=dsn or self.dsn, lease=LEASE), f"process{self._seats}")

    def days(self, settings: ApiSettings = ALICE, dsn: str = "", *, patient: bool = False) -> Days:
        return Days(self.root, ClusterLedger(self.seat(dsn)), settings, now=Clock(), patient=patient)

    def book(self, dsn: str = "") -> SpendingBook:
        return SpendingBook(self.root, ClusterBook(self.seat(dsn)), now=Clock())


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What can't be done is tried again soon."""
    for module in (books, ledgers):
        monkeypatch.setattr(module, "RETRY_EVERY", 0.1)
    monkeypatch.setattr(of_days, "LOOK_EVERY", 0.1)


async def test_without_the_database_a_request_is_refused_or_waits_as_it_was_told(
    own: tuple[Postgres, ClusterProcesses, Link], soon: None, caplog: pytest.LogCaptureFixture
) -> None:
    server, cluster_processes, _ = own
    async with Root() as root:
        cluster = InCluster(root, cluster_processes.dsn)
        days, patient, book = cluster.days(), cluster.days(patient=True), cluster.book()
        await spend(days, Amount(60))
        await days.poll()  # which writes that
        await trio.to_thread.run_sync(server.stop)
        with pytest.raises(LedgerBroken, match=r"can't be written to the database of the cluster \(.*cluster_away"):
            await asked(days)
        book.add("alice", "clerk", "a:b", TokenUsage(input_tokens=10), 0.5)
        with pytest.raises(Away):
            await book.read()
        went: list[Amount] = []

        async def waits() -> None:
            await spend(patient, Amount(30))
            went.append(reading(patient).spent)

        with trio.fail_after(SOON):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(waits)
                with trio.move_on_after(1.0):
                    await patient.check("alice")
                    raise AssertionError("it did not wait")
                assert not went
                await trio.to_thread.run_sync(server.start)
        assert went == [Amount(90)]
        await days.check("alice")
        assert [spent.requests for spent in (await book.read()).values()] == [1]
        for each in (days, patient, book):
            await each.aclose()
    assert caplog.text.count("can be written to the database of the cluster again") == 2


async def test_of_requests_at_once_in_many_processes_one_gets_what_is_left(postgres: Postgres) -> None:
    async with Root() as root:
        cluster = InCluster(root, postgres.database())
        processes = [cluster.days(limited(alice=DailyLimits(max_tokens=100))) for _ in range(6)]
        for _ in range(10):
            got: list[Hold] = []

            async def ask(days: Days, got: list[Hold]) -> None:
                with contextlib.suppress(DayReached):
                    got.append(await asked(days))

            async with trio.open_nursery() as nursery:
                for days in processes:
                    nursery.start_soon(ask, days, got)
            assert len(got) == 1
            got[0].release()
            for _ in range(2):  # what each has written, and what the others have then
                for days in processes:
                    await days.poll()
        for days in processes:
            await days.aclose()


def test_what_was_written_though_it_was_given_up_is_not_taken_for_that_of_others_nor_twice_for_ours(
    postgres: Postgres,
) -> None:
    dsn, now = postgres.database(), today_of(20_000, NOON)
    with connected(dsn, "test", LEASE) as db:
        tables.migrate(db)
    one, two = (ClusterLedger(ClusterMembership(ClusterOptions(dsn=dsn), sign)) for sign in ("one", "two"))
    first, again, other = Batch(1), Batch(2), Batch(1)
    first.sums = {(1, now.day, "alice"): Amount(8, 2.0)}
    again.sums = {**first.sums, (2, now.day, "alice"): Amount(4, 1.0)}
    other.sums = {(1, now.day, "alice"): Amount(5, 0.5)}
    for each in (first, again, other):
        each.looks = {"alice"}
    one.written(now, first)  # by a thread that nobody waits for any more
    two.written(now, other)
    assert one.written(now, again) == {"alice": Others(Amount(5, 0.5), Amount())}
    assert two.written(now, Batch(2)) == {}
    other.number, other.sums = 3, {}
    assert two.written(now, other) == {"alice": Others(Amount(12, 3.0), Amount())}
    for ledger in (one, two):
        ledger.close()


async def test_what_others_reserve_is_waited_for_by_who_is_patient(postgres: Postgres) -> None:
    async with Root() as root:
        cluster = InCluster(root, postgres.database())
        settings = limited(alice=DailyLimits(max_tokens=100))
        one, hurried, patient = cluster.days(settings), cluster.days(settings), cluster.days(settings, patient=True)
        hold = await asked(one)
        with pytest.raises(DayReached, match="try again in"):
            await asked(hurried)
        with trio.fail_after(SOON):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(spend, patient, Amount(100)))
                await trio.testing.wait_all_tasks_blocked(0.05)
                hold.spend(Amount(60))
        with trio.fail_after(SOON), pytest.raises(DayReached, match="has used 160 of its 100"):
            await asked(patient)
        for each in (one, hurried, patient):
            await each.aclose()


async def test_a_database_that_is_silent_keeps_nobody_from_ending(
    own: tuple[Postgres, ClusterProcesses, Link], soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, cluster_processes, link = own
    monkeypatch.setattr(ledgers, "WRITE_WITHIN", 0.3)
    monkeypatch.setattr(books, "WRITE_WITHIN", 0.3)
    with trio.fail_after(SOON):
        async with Root() as root:
            cluster = InCluster(root, cluster_processes.dsn)
            days, book = (
                cluster.days(dsn=through(cluster_processes, link)),
                cluster.book(through(cluster_processes, link)),
            )
            hold = await asked(days)
            link.cut()
            hold.spend(Amount(60))
            with pytest.raises(LedgerBroken, match="no answer"):
                await asked(days)
            book.add("alice", "clerk", "a:b", TokenUsage(input_tokens=10), 0.5)
            await days.aclose()
            await book.aclose()


@pytest.mark.parametrize("times", [15, pytest.param(1_000, marks=pytest.mark.soak)])
async def test_what_is_spent_while_answers_are_lost_counts_once(
    own: tuple[Postgres, ClusterProcesses, Link], soon: None, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    _, cluster_processes, link = own
    monkeypatch.setattr(ledgers, "GATHER", 0.01)
    monkeypatch.setattr(books, "GATHER", 0.01)
    rand = random.Random("answers")
    async with Root() as root:
        cluster = InCluster(root, cluster_processes.dsn)
        all_of_it = limited(alice=DailyLimits(max_tokens=10**9))
        processes = [
            (
                cluster.days(all_of_it, through(cluster_processes, link), patient=True),
                cluster.book(through(cluster_processes, link)),
            )
            for _ in range(2)
        ]

        async def lives(days: Days, book: SpendingBook) -> None:
            for _ in range(times):
                await spend(days, Amount(7, 0.25))
                book.add("alice", "clerk", "a:b", TokenUsage(input_tokens=10), 0.25)

        async def breaks() -> None:
            while True:
                await trio.sleep(rand.random() * 0.3)
                link.down = False
                await trio.sleep(rand.random() * 0.05)
                link.reset()
                link.down = True

        with trio.fail_after(SOON):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(breaks)
                async with trio.open_nursery() as work:
                    for each in processes:
                        work.start_soon(lives, *each)
                nursery.cancel_scope.cancel()
            link.heal()
            for days, book in processes:
                await days.poll()
                assert reading(days).spent.tokens >= 7 * times
                await days.aclose()
                await book.aclose()
        last, looked = cluster.book(), cluster.days(all_of_it)
        spent = SpendingSums(2 * times, 20 * times, 0, 0, 0.5 * times, 0)
        assert await last.read(by=["model"]) == {("a:b",): spent}
        await looked.poll()
        assert (reading(looked).spent, reading(looked).held) == (Amount(14 * times, 0.5 * times), Amount())
        await looked.aclose()
        await last.aclose()
