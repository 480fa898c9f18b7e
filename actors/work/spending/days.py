"""Daily limits of a server: spending of each subject, and of all together, from 00:00 UTC to 00:00 UTC.

    the day of this server  <-  the day of 'alice'  <-  the run  <-  ...

Accounts of days are above the accounts of runs (`accounts`), with three differences:

- They restart from 0 when a new day begins. Each access checks the date.
- Their spending outlives the process: each request is written into the `ledger` before it is sent.
- Other processes may spend from them as well. Spending and reservations of those processes count as spent here, so a
  request never waits for them.

A request that has room in all its accounts is written into the ledger, whose answer contains the figures of other
processes. If those have grown since the check, the accounts are checked again before the request is sent. Transactions
are serialised, so of two processes the later one sees the request of the earlier one.

Only requests of subjects with a limit are written; if the server has a limit, all are. The user who runs the server is
subject to the limit of the server only. Limits come from the last reading of the settings, and each limit counts
spending from the moment when it is set. A clock that is set back does not reset a limit: the latest day seen is the
day. If the clock is set back by more than a day, it was wrong before. Then the new date applies, with the spending that
the ledger has for it.

A process other than the server has no such accounts: `readings` reads the usage of the limits from the ledger file.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, final
from weakref import WeakValueDictionary

import msgspec
import trio

from ....protocol.control.caller import LOCAL
from ....protocol.errors import BudgetReached, DayReached, LedgerBroken, TurnsReached
from ....protocol.graph import OwnLimits
from ....protocol.settings.api import ApiSettings, DailyLimits
from .accounts import NOTHING, Account, Amount, Hold, room_in
from .book import rows
from .ledger import DAY, GRACE, Ledger, LedgerUnwritten, Others, Today, WrittenHold, bounded, date_of, today_of

if TYPE_CHECKING:
    from ....supervisors import Root
    from .ledger import LedgerStore

ALL = ""
"""Key of the account of all subjects together."""


class DayReading(msgspec.Struct, frozen=True):
    """Usage of a daily limit.

    Attributes:
        subject: subject that the limit applies to; "" for all together.
        day: `2026-11-23`.
        limits: the limits of that day.
        spent: spending so far, including that of other processes.
        held: upper bounds of requests in flight, here and in other processes, and of requests of crashed processes.
        key: settings key of the limit.
    """

    subject: str
    day: str
    limits: DailyLimits
    spent: Amount
    held: Amount
    key: str


@final
class DailyRules:
    """Daily limits by subject.

    Attributes:
        all: the limits of all subjects together, and their settings key.
        subjects: the subjects of the API keys.
        limits_others: subjects without a key, for example of signed tokens, have a limit.
    """

    def __init__(self, settings: ApiSettings) -> None:
        keys = enumerate(settings.auth.static)
        self._of_keys = {key.subject: (key.daily, f"api.auth.keys[{at}].daily") for at, key in keys if key.daily}
        self._of_others = settings.limits.per_subject_daily, "api.limits.per_subject_daily"
        self.limits_others = self._of_others[0] is not None
        self.subjects = sorted({key.subject for key in settings.auth.static})
        self.all = settings.limits.daily, "api.limits.daily"

    def of(self, subject: str) -> tuple[DailyLimits | None, str]:
        """Return the limits of a subject, and their settings key: those of its API key, else `per_subject_daily`.

        The limits are None if the subject has none.
        """
        return self._of_keys.get(subject, self._of_others)


def readings(path: Path, settings: ApiSettings, today: Today) -> list[DayReading]:
    """Return the usage of each limit: of all together, of keys, and of other subjects that have spent today.

    Raises:
        sqlite3.Error, OSError: the file can't be read.
    """
    rules = DailyRules(settings)
    spent = _sums(path, "ledger", "SELECT key, tokens, cost FROM ledger WHERE day = ?", today.day)
    held = _sums(path, "held", "SELECT key, SUM(tokens), SUM(cost) FROM held WHERE day >= ? GROUP BY key", today.since)
    subjects = {ALL, *rules.subjects, *spent, *held} - {LOCAL.subject}
    found = []
    for subject in sorted(subjects):
        limits, key = rules.all if subject == ALL else rules.of(subject)
        if limits is not None and not limits.is_empty:
            of = spent.get(subject, NOTHING), held.get(subject, NOTHING)
            found.append(DayReading(subject, today.day, limits, *of, key))
    return found


def _sums(path: Path, table: str, query: str, day: str) -> dict[str, Amount]:
    return {key: Amount(tokens, cost) for key, tokens, cost in rows(path, table, query, (day,))}


LOOK_EVERY = 1.0
"""Seconds between two queries for the spending of other processes, by subjects over their limit or waiting."""

HELD_FOR = 30.0
"""Seconds after which a caller may retry if other processes have reserved the rest."""

_NONE = DailyLimits()
_DUST = 1e-6  # USD by which sums of fractions may differ if they are added in another order


class _Reserved(DayReached):
    """There would be room without the reservations of other processes."""


@final
class DayAccount(Account):
    """Spending of a subject, or of all subjects, on a day.

    Attributes:
        subject: subject of the account; "" for all.
        daily: the limits; an account without limits only counts.
        looked: time of the last query for the spending of other processes, in seconds of trio's clock.
    """

    is_of_day = True
    tokens: int

    def __init__(self, days: Days, subject: str, parent: DayAccount | None) -> None:
        name = f"the daily budget of '{subject}'" if subject != ALL else "the daily budget of this server"
        super().__init__(name, OwnLimits(), parent, key=lambda field: f"`{self._where}.{field}`")
        self.subject = subject
        self.daily: DailyLimits = _NONE
        self.measures = True
        self.day: DayAccount = self
        self._above = parent
        self._days = days
        self._where = ""
        self._number = days.number
        self._others = Others(NOTHING, NOTHING)
        self._in_ledger = False
        self.looked: float = float("-inf")

    @property
    def capped(self) -> bool:
        """True if tokens or money are limited."""
        return not self.daily.is_empty

    @property
    def counts_money(self) -> str | None:
        """Settings key of the limit in money that applies here or above; None if there is none."""
        if self.daily.max_cost is not None:
            return f"{self._where}.max_cost"
        return None if self._above is None else self._above.counts_money

    def limit(self, daily: DailyLimits | None, where: str) -> None:
        """Set the limits; `where` is their key in the settings."""
        self.daily = daily or _NONE
        # Spending before the first limit is not in the ledger, so the account restarts from 0.
        if self.capped and not self._in_ledger:
            self._in_ledger = True
            self._begin()
        self.limits: OwnLimits = OwnLimits(max_cost=self.daily.max_cost, max_tokens=self.daily.max_tokens)
        self._where = where
        self.let_go()

    def admit(
        self, account: Account, most: Amount, on_wait: Callable[[], None], *, turn: bool
    ) -> Coroutine[Any, Any, Hold]:
        """Reserve a request in the accounts and in the ledger; see `reserve`. `account` is this one or one below it."""
        return self._days.admit(account, most, on_wait, turn=turn)

    def check_own(self, *, turn: bool) -> None:  # noqa: ARG002 - turns are not limited by the day
        self._poll_day()
        spent, held, limits = self._spent(), self._others.held, self.daily
        self._check_spent(spent.tokens, spent.cost)
        if limits.max_tokens is not None and self.tokens >= limits.max_tokens:
            used = f"has used {spent.tokens} of its {limits.max_tokens} tokens"
            self._refuse_reserved(f"{used} ({self._key('max_tokens')})", f"{held.tokens} tokens")
        if limits.max_cost is not None and self.cost >= limits.max_cost:
            used = f"has spent {spent.cost:.4f} of its {limits.max_cost:g} USD"
            self._refuse_reserved(f"{used} ({self._key('max_cost')})", f"{held.cost:.4f} USD")

    def charge(self, amount: Amount, turns: int) -> None:
        self._poll_day()
        amount = bounded(amount)  # NaN would never reach a limit
        super().charge(amount, turns)
        if self._in_ledger and amount != NOTHING:
            self._days.ledger.add(self._days.name, self.subject, amount)

    def has_room_now(self, most: Amount) -> bool:
        """Return whether a request that is already reserved would still have room if it arrived now."""
        tokens, cost = self.tokens + self._held_tokens - most.tokens, self.cost + self._held_cost - most.cost
        limits = self.daily
        return (limits.max_tokens is None or tokens < limits.max_tokens) and (
            limits.max_cost is None or cost < limits.max_cost
        )

    def hear(self, others: Others) -> bool:
        """Store the spending and reservations of other processes today. Return whether they have grown."""
        self._poll_day()
        before, self._others = _sum(self._others), others
        # The base class compares `tokens` and `cost` with the limits, so these include the figures of other processes.
        now = _sum(others)
        self.tokens += now.tokens - before.tokens
        self.cost += now.cost - before.cost
        return now.tokens > before.tokens or now.cost > before.cost + _DUST

    def reading(self) -> DayReading:
        """Return the usage of this account."""
        self._poll_day()
        others, spent = self._others.held, self._spent()
        held = Amount(self._held_tokens + others.tokens, self._held_cost + others.cost)
        return DayReading(self.subject, self._days.name, self.daily, spent, held, self._where)

    @property
    def is_reserved(self) -> bool:
        """True if other processes have reservations, which may shrink before the day is over."""
        return self._others.held != NOTHING

    def _spent(self) -> Amount:
        """Return the spending here and in other processes, without their reservations."""
        held = self._others.held
        return Amount(self.tokens - held.tokens, max(0.0, self.cost - held.cost))

    def _poll_day(self) -> None:
        if self._number != self._days.number:
            self._begin()

    def _begin(self) -> None:
        self._number = self._days.number
        self.turns = self.tokens = self.estimated = 0
        self.cost: float = 0.0
        self._others = Others(NOTHING, NOTHING)
        self._days.keep(self)

    def _refuse_reserved(self, used: str, held: str) -> None:
        after = self._days.held_for()
        others = f"{held} are reserved by requests of other servers, running or crashed"
        error = _Reserved(f"{self.name} {used}, and {others}; try again in {after:.0f} s", retry_after=after)
        error.account = self.path
        raise error

    def _refuse(self, error: TurnsReached | BudgetReached) -> None:
        seconds = self._days.today().left
        minutes = max(1, round(seconds / 60))
        reached = DayReached(
            f"{error}; the budget is renewed at 00:00 UTC, in {minutes // 60} h {minutes % 60} min", retry_after=seconds
        )
        reached.account = self.path
        raise reached


@final
class Days:
    """Accounts of the current day, by subject.

    Args:
        root: the writer of the ledger is an actor of it.
        store: storage of the ledger.
        settings: the limits by subject.
        now: the wall clock, in seconds since 1970.
        patient: runs and requests wait instead of failing: while the ledger can't be written (else `LedgerBroken`), and
            up to `HELD_FOR` seconds for reservations of other processes.

    Attributes:
        ledger: the ledger of the spending.
    """

    def __init__(
        self,
        root: Root,
        store: LedgerStore,
        settings: ApiSettings,
        *,
        now: Callable[[], float],
        patient: bool = False,
    ) -> None:
        self._now = now
        self._patient = patient
        self._latest = -1
        self._name = ""
        self._growth = 0
        self._lock = threading.Lock()
        self._accounts: WeakValueDictionary[str, DayAccount] = WeakValueDictionary()
        self._of_today: set[DayAccount] = set()
        self.ledger: Ledger = Ledger(root, store, today=self.today, tell=self._hear)
        self._all = DayAccount(self, ALL, None)
        self.configure(settings)

    # --- the current day -----------------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """Current day as days since 1970; a new day forgets the accounts of the day before."""
        number = int(self._now() // DAY)
        # A clock that is set back by up to a day keeps the latest day seen, so that no limit starts again from 0.
        if number > self._latest or number < self._latest - 1:
            self._latest = number
            self._name = date_of(number)
            self._of_today.clear()
        return self._latest

    @property
    def name(self) -> str:
        """Current day as a date: `2026-11-23`."""
        self.number  # noqa: B018 - reading it updates `_name`
        return self._name

    def today(self) -> Today:
        """Return the current moment in the form that the ledger needs."""
        return today_of(self.number, self._now())

    # --- accounts of subjects ------------------------------------------------------------------------------------

    def configure(self, settings: ApiSettings) -> None:
        """Apply the limits of these settings."""
        self._rules = DailyRules(settings)
        self._all.limit(*self._rules.all)
        for account in self._known():
            account.limit(*self._rules.of(account.subject))

    def account(self, subject: str) -> DayAccount | None:
        """Return the account that runs of a subject are charged to; None if nothing is limited. Thread-safe."""
        if subject != LOCAL.subject:
            daily, where = self._rules.of(subject)
            if daily is not None:
                return self._account(subject, daily, where)
        return self._all if self._all.capped else None

    def keep(self, account: DayAccount) -> None:
        """Hold a reference to the account, and so its spending, until the day is over."""
        self.number  # noqa: B018 - reading it drops the accounts of another day
        self._of_today.add(account)

    def readings(self) -> list[DayReading]:
        """Return the usage of each limit: of all together, of keys, and of other subjects seen today."""
        self.number  # noqa: B018 - reading it drops the accounts of another day
        for subject in self._rules.subjects:
            self.account(subject)
        with self._lock:
            accounts = sorted({self._all, *self._of_today}, key=lambda account: account.subject)
        return [account.reading() for account in accounts if account.capped]

    def _account(self, subject: str, daily: DailyLimits, where: str) -> DayAccount:
        with self._lock:
            account = self._accounts.get(subject)
            if account is None:
                account = self._accounts[subject] = DayAccount(self, subject, self._all)
                account.limit(daily, where)
            self.keep(account)
            return account

    def _known(self) -> list[DayAccount]:
        with self._lock:
            return list(self._accounts.values())

    # --- requests ------------------------------------------------------------------------------------------------

    async def check(self, subject: str) -> None:
        """Check that a run of the subject may start.

        Raises:
            DayReached: the limit of today is reached.
            LedgerBroken: the ledger can't be used, so the spending is unknown.
        """
        account = self.account(subject)
        if account is None:
            return None
        since, polled = trio.current_time(), self._may_poll(account)
        if polled:
            await self._poll_ledger(account)
        while True:
            try:
                return account.check()
            except DayReached as error:
                if not await self._looks_again(account, error, since, polled=polled):
                    raise
                polled = True

    async def poll(self) -> None:
        """Query the ledger for the usage of all limits, including subjects that this process has not seen today.

        A failure is logged only.
        """
        accounts = (self._all, *map(self.account, self._rules.subjects), *self._known())
        keys = {each.subject for each in accounts if each is not None and each.capped}
        if keys or self._rules.limits_others:
            with contextlib.suppress(LedgerUnwritten):
                await self.ledger.query(keys, all_of_today=True)

    async def admit(self, account: Account, most: Amount, on_wait: Callable[[], None], *, turn: bool) -> Hold:
        """Reserve the upper bound of a request, in its accounts and in the ledger.

        Raises:
            TurnsReached, BudgetReached: an account has reached its limit, or reached it during the wait.
            LedgerBroken: the ledger can't be written.
        """
        capped, polled, most, since = _capped(account), False, bounded(most), trio.current_time()
        while True:
            growth = self._growth
            try:
                hold = await room_in(account, most, on_wait, turn=turn)
            except DayReached as error:  # reservations of other processes may have shrunk since
                days = _days_of(account)
                if not days or not await self._looks_again(days[0], error, since, polled=polled):
                    raise
                polled = True
                continue
            if not capped:
                return hold
            try:
                id = await self.ledger.commit(capped, most)
            except LedgerUnwritten as error:
                hold.release()
                await self._later(error)
                continue
            except BaseException:  # including cancellation: no reservation may remain
                hold.release()
                raise
            written = WrittenHold(hold, self.ledger, id)
            # The answer of the ledger may show new spending of other processes. If so, release and check the accounts
            # again.
            if growth == self._growth or all(each.has_room_now(most) for each in _days_of(account)):
                return written
            written.release()

    async def aclose(self) -> None:
        await self.ledger.aclose()

    def _may_poll(self, account: DayAccount) -> bool:
        return trio.current_time() - account.looked >= LOOK_EVERY

    async def _looks_again(self, account: DayAccount, error: DayReached, since: float, *, polled: bool) -> bool:
        """Query the ledger for figures that are newer than the refused request. Return False if that can't help."""
        if polled:
            if not self._patient or not isinstance(error, _Reserved) or trio.current_time() > since + HELD_FOR:
                return False
            await trio.sleep(LOOK_EVERY)
        # If other processes reserve part of a limit, cached figures do not suffice.
        elif not self._may_poll(account) and not any(each.is_reserved for each in _days_of(account)):
            return False
        await self._poll_ledger(account)
        return True

    async def _poll_ledger(self, account: DayAccount) -> None:
        account.looked = trio.current_time()
        while True:
            try:
                await self.ledger.query(_capped(account))
            except LedgerUnwritten as error:
                await self._later(error)
            else:
                return

    async def _later(self, error: LedgerUnwritten) -> None:
        """Wait for the next attempt to write the ledger, or raise if this server does not wait."""
        if not self._patient:
            raise self._broken(error) from None
        await trio.sleep(LOOK_EVERY)

    def held_for(self) -> float:
        """Return the seconds until reservations of other processes may shrink.

        In the first minute of a day, this includes the rest of that minute: rows of yesterday count until then.
        """
        today = self.today()
        grace = GRACE - (DAY - today.left) + LOOK_EVERY if today.since != today.day else 0.0
        return max(HELD_FOR, grace)

    def _broken(self, error: LedgerUnwritten) -> LedgerBroken:
        return LedgerBroken(
            f"the spending under this server's daily limits can't be written to {self.ledger.store.name} "
            f"({error}), so no request can be sent at the moment"
        )

    def _hear(self, day: str, others: Mapping[str, Others]) -> None:
        # An answer for yesterday: the accounts have restarted since.
        if day != self.name:
            return
        shrunk = []
        for subject, of in others.items():
            account = self._all if subject == ALL else self._accounts.get(subject) or self.account(subject)
            if account is not None and account.subject == subject:  # a subject without a limit gets the account of all
                if account.hear(of):
                    self._growth += 1
                else:
                    shrunk.append(account)
        for account in shrunk:
            account.let_go()


def _days_of(account: Account) -> list[DayAccount]:
    return [each for each in account.chain() if isinstance(each, DayAccount)]


def _capped(account: Account) -> list[str]:
    """Return the ledger keys under which requests of an account are written."""
    return [each.subject for each in _days_of(account) if each.capped]


def _sum(others: Others) -> Amount:
    return Amount(others.spent.tokens + others.held.tokens, others.spent.cost + others.held.cost)
