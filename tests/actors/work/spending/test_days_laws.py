"""Random lives of servers on one ledger, beside a model of it: what may go out, what is counted, and on which day.
The ledger is that of a file, and that of a cluster.

Several processes ask for alice and bob, end requests, are killed and start again, and days go by. The model knows what
each request may come to and what it came to. Whatever happens, the ledger has at least that, and no limit is passed by
more than one request may come to.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn
from unittest import mock

import hypothesis.strategies as st
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from support.postgres import Postgres, running

from callboard.actors.front.cluster.membership import ClusterMembership, ClusterOptions
from callboard.actors.front.cluster.shared_limits import ClusterLedger
from callboard.actors.work.spending import days as module
from callboard.actors.work.spending import ledger
from callboard.actors.work.spending.accounts import Account, Amount, Hold, reserve
from callboard.actors.work.spending.days import ALL, Days
from callboard.actors.work.spending.ledger import DAY, LedgerFile, LedgerStore, date_of
from callboard.protocol.errors import DayReached
from callboard.protocol.requests import Limits
from callboard.protocol.settings.api import ApiKey, ApiLimits, ApiSettings, Auth, DailyLimits
from callboard.supervisors import Root
from callboard.supervisors.cluster import tables

CAPS = {ALL: 700, "alice": 500, "bob": 300}
KEYS = tuple(
    ApiKey(subject=name, key_hash="x", scopes=(), daily=DailyLimits(max_tokens=CAPS[name])) for name in ("alice", "bob")
)
SETTINGS = ApiSettings(auth=Auth(keys=KEYS), limits=ApiLimits(daily=DailyLimits(max_tokens=CAPS[ALL])))
MOST = 200

PROCESS, SUBJECT, TOKENS = st.integers(0, 1), st.sampled_from(["alice", "bob"]), st.integers(1, MOST)
OPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), PROCESS, SUBJECT, TOKENS, st.booleans()),
        st.tuples(st.just("ask_while_the_clock_is_back"), PROCESS, SUBJECT, TOKENS, st.floats(0.01, 0.99)),
        st.tuples(st.just("end"), st.integers(0, 20), st.floats(0, 1)),
        st.tuples(st.just("write"), PROCESS),
        st.tuples(st.just("kill"), PROCESS),
        st.tuples(st.just("midnight")),
    ),
    max_size=60,
)


class WouldWait(Exception):
    pass


def would_wait() -> NoReturn:
    raise WouldWait


@dataclass(eq=False)
class Asked:
    """A request that went out; `tokens` is what it came to."""

    process: int
    subject: str
    most: int
    hold: Hold
    tokens: int = 0


class Model:
    """What the ledger has to say.

    Attributes:
        charged: by the provider, for requests that ended, by day and key.
        left: what counts beyond that for requests whose process was killed.
        open: requests under way.
        pending: those that ended, and whose process has not written that.
    """

    def __init__(self) -> None:
        self.day = 20_000
        self.charged: Counter[tuple[int, str]] = Counter()
        self.left: Counter[tuple[int, str]] = Counter()
        self.open: list[Asked] = []
        self.pending: list[Asked] = []

    def total(self, key: str, *, seen_by: int | None = None) -> int:
        """What counts today; a process knows what its own requests came to before it is written."""
        held = [each.most for each in self.open if key in (ALL, each.subject)]
        late = [each.most - each.tokens for each in self._late(key) if each.process != seen_by]
        return self.charged[self.day, key] + self.left[self.day, key] + sum(held) + sum(late)

    def has_room(self, subject: str, process: int) -> bool:
        return all(self.total(key, seen_by=process) < CAPS[key] for key in (ALL, subject))

    def end(self, asked: Asked, tokens: int) -> None:
        self.open.remove(asked)
        asked.tokens = tokens
        self.pending.append(asked)
        for key in (ALL, asked.subject):
            self.charged[self.day, key] += tokens

    def kill(self, process: int) -> None:
        for asked in [each for each in (*self.open, *self.pending) if each.process == process]:
            for key in (ALL, asked.subject):
                self.left[self.day, key] += asked.most - asked.tokens
        self.open = [each for each in self.open if each.process != process]
        self.written(process)

    def written(self, process: int) -> None:
        self.pending = [each for each in self.pending if each.process != process]

    def _late(self, key: str) -> list[Asked]:
        return [each for each in self.pending if key in (ALL, each.subject)]


class Kept:
    """A ledger in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def store(self) -> LedgerStore:
        """For one process."""
        return LedgerFile(self.path)

    def rows(self) -> Iterable[tuple[str, str, int]]:
        """What both tables together have: days, keys and tokens."""
        with contextlib.closing(sqlite3.connect(self.path)) as db:
            found: list[tuple[str, str, int]] = db.execute(BOTH.format("")).fetchall()
        return found


class InCluster(Kept):
    """A ledger in PostgreSQL, empty."""

    def __init__(self, dsn: str) -> None:
        from callboard.supervisors.cluster.database import connected

        self.dsn = dsn
        self.numbers = count()
        self.db = connected(dsn, "test", 10.0)
        tables.migrate(self.db)
        self.db.execute("truncate callboard.ledger, callboard.held, callboard.spenders")

    def store(self) -> LedgerStore:
        return ClusterLedger(ClusterMembership(ClusterOptions(dsn=self.dsn), f"process-{next(self.numbers)}"))

    def rows(self) -> Iterable[tuple[str, str, int]]:
        return self.db.execute(BOTH.format("callboard.")).fetchall()


BOTH = "SELECT day, key, tokens FROM {0}ledger UNION ALL SELECT day, key, tokens FROM {0}held"


class LedgerProcesses:
    """The processes, as `Days` on one ledger; killed ones lose what they have not written."""

    def __init__(self, root: Root, kept: Kept) -> None:
        self.root = root
        self.kept = kept
        self.now = 20_000 * DAY + DAY / 2
        self.model = Model()
        self.processes = [self.born(), self.born()]

    def born(self) -> Days:
        return Days(self.root, self.kept.store(), SETTINGS, now=lambda: self.now)

    async def ask(self, process: int, subject: str, most: int, knows: bool) -> None:
        """`knows`: the process has just looked at what the other has."""
        await self.write(process, *([ALL, subject] if knows else []))
        days, room = self.processes[process], self.model.has_room(subject, process)
        run = Account("the run", Limits(max_turns=1_000), days.account(subject))
        try:
            hold = await reserve(run, Amount(most), would_wait)
        except (DayReached, WouldWait):
            assert not (room and knows), "there is room"
            await self.write(process)
        else:
            assert room, "there was no room, and it went out"
            self.model.open.append(Asked(process, subject, most, hold))

    async def ask_while_the_clock_is_back(self, process: int, subject: str, most: int, days: float) -> None:
        right, self.now = self.now, self.now - days * DAY
        await self.ask(process, subject, most, True)
        self.now = right

    async def end(self, which: int, share: float) -> None:
        if self.model.open:
            asked = self.model.open[which % len(self.model.open)]
            tokens = int(asked.most * share)
            asked.hold.spend(Amount(tokens))
            self.model.end(asked, tokens)

    async def write(self, process: int, *keys: str) -> None:
        await self.processes[process].ledger.query(keys)
        self.model.written(process)

    async def kill(self, process: int) -> None:
        ledger = self.processes[process].ledger
        if ledger._writer is not None:
            ledger._writer.cancel()
            await ledger._writer.wait()
        ledger.store.close()
        self.model.kill(process)
        self.processes[process] = self.born()

    async def midnight(self) -> None:
        for _ in range(2):
            for process in (0, 1):  # as their timers have them do
                await self.write(process)
            self.now = (self.model.day + 1) * DAY + 10
        self.model.day += 1
        self.now += 3_600

    def check(self) -> None:
        found, model = Counter[tuple[str, str]](), self.model
        for day, key, tokens in self.kept.rows():
            found[day, key] += tokens
        for key, cap in CAPS.items():
            assert found[date_of(model.day), key] == model.total(key)
            assert model.total(key) <= cap + MOST


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running() as server:
        yield server


@contextlib.contextmanager
def in_a_file() -> Iterator[Kept]:
    with TemporaryDirectory() as directory:
        yield Kept(Path(directory) / "usage.db")


@pytest.mark.parametrize("examples", [15, pytest.param(2_000, marks=pytest.mark.soak)])
def test_the_ledger_says_what_the_model_says(examples: int) -> None:
    plays(examples, in_a_file)


@pytest.mark.parametrize("examples", [8, pytest.param(400, marks=pytest.mark.soak)])
def test_so_does_that_of_a_cluster(postgres: Postgres, examples: int) -> None:
    dsn = postgres.database()

    @contextlib.contextmanager
    def in_cluster() -> Iterator[Kept]:
        kept = InCluster(dsn)
        with kept.db:
            yield kept

    plays(examples, in_cluster)


def plays(examples: int, kept: Callable[[], contextlib.AbstractContextManager[Kept]]) -> None:
    async def lives(ops: list[tuple[Any, ...]], kept: Kept) -> None:
        async with Root() as root:
            ledger_processes = LedgerProcesses(root, kept)
            await ledger_processes.write(0)
            for name, *args in ops:
                await getattr(ledger_processes, name)(*args)
                ledger_processes.check()
            for each in ledger_processes.processes:
                await each.aclose()

    @settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(OPS)
    def play(ops: list[tuple[Any, ...]]) -> None:
        with kept() as made:
            trio.run(lives, ops, made)

    with mock.patch.object(module, "LOOK_EVERY", 0.0), mock.patch.object(ledger, "GATHER", 1_000.0):
        play()
