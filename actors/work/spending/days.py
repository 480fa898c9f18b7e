"""Daily limits of a server: what each subject, and all together, may spend on models from 00:00 UTC to 00:00 UTC.

    the day of this server  <-  the day of 'alice'  <-  the run  <-  ...

They are accounts like others (`accounts`), above those of runs, with three differences. They start again from 0 when a
new day begins, which they look at whenever they are asked. What they have spent outlives the process: each request is
written into the `ledger` before it goes out. And other processes may spend from them as well: what those have spent,
and hold, counts as spent here, so a request never waits for it.

A request that has room in all accounts above it is written into the ledger, which then tells what others have. Where
that has grown since there was room, the accounts are asked once more before the request goes out. Transactions are one
after the other, so of two processes the later one sees the request of the earlier.

Only requests of subjects with a limit, and all if the server has one, come here. The user who runs the server has the
limit of all only. Limits are those of the settings as they were read last: each limit counts what is spent from when it
is set. A clock that is set back gives no second try: the latest day seen is the day. If it is set back by more than a
day, it was wrong before, and the day that it shows goes on with what the ledger has of it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, final
from weakref import WeakValueDictionary

import trio

from ....protocol.control.caller import LOCAL
from ....protocol.errors import BudgetReached, DayReached, LedgerBroken, TurnsReached
from ....protocol.graph.model import OwnLimits
from ....protocol.settings.api import ApiSettings, DailyLimits
from .accounts import NOTHING, Account, Amount, Hold
from .daily import ALL, DailyRules, DayReading
from .ledger import Ledger, Others, Unwritten, Written, bounded
from .reserve import room_in
from .today import DAY, GRACE, Today, date_of, today_of

if TYPE_CHECKING:
    from ....supervisors import Root
    from .ledger import LedgerStore

LOOK_EVERY = 1.0
"""Seconds between two looks at what others have spent, by those whose day is over, or who wait."""

HELD_FOR = 30.0
"""Seconds after which a caller may ask again where others reserve what is left."""

_NONE = DailyLimits()
_DUST = 1e-6  # USD by which sums of fractions may differ that are made in another order


class _Reserved(DayReached):
    """There would be room without what others reserve."""


@final
class DayAccount(Account):
    """What a subject, or all, spend on a day.

    Attributes:
        subject: whose; "" for all.
        daily: the limits; without any it only counts along.
        looked: when it was last asked what others have spent, in seconds of trio's clock.
    """

    def __init__(self, days: Days, subject: str, parent: DayAccount | None) -> None:
        name = f"the day of '{subject}'" if subject != ALL else "the day of this server"
        super().__init__(name, OwnLimits(), parent, key=lambda field: f"`{self._where}.{field}`")
        self.subject = subject
        self.daily = _NONE
        self.measures = True
        self.day = self
        self._above = parent
        self._days = days
        self._where = ""
        self._number = days.number
        self._others = Others(NOTHING, NOTHING)
        self._in_ledger = False
        self.looked = float("-inf")

    @property
    def capped(self) -> bool:
        """Whether anything is limited."""
        return not self.daily.is_empty

    @property
    def counts_money(self) -> str | None:
        """The key of the limit in money that holds here or above, if there is one."""
        if self.daily.max_cost is not None:
            return f"{self._where}.max_cost"
        return None if self._above is None else self._above.counts_money

    def limit(self, daily: DailyLimits | None, where: str) -> None:
        """Have these limits from now on; `where` is their key in the settings."""
        self.daily = daily or _NONE
        if self.capped and not self._in_ledger:  # nor is what was spent until now
            self._in_ledger = True
            self._begin()
        self.limits = OwnLimits(max_cost=self.daily.max_cost, max_tokens=self.daily.max_tokens)
        self._where = where
        self.let_go()

    def admit(
        self, account: Account, most: Amount, on_wait: Callable[[], None], *, turn: bool
    ) -> Coroutine[Any, Any, Hold]:
        """See `reserve`; `account` is this one or one below it."""
        return self._days.admit(account, most, on_wait, turn=turn)

    def check_own(self, *, turn: bool) -> None:  # noqa: ARG002 - turns are not limited by the day
        self._look_at_day()
        spent, held, limits = self._spent(), self._others.held, self.daily
        self._check_spent(spent.tokens, spent.cost)
        if limits.max_tokens is not None and self.tokens >= limits.max_tokens:
            used = f"has used {spent.tokens} of its {limits.max_tokens} tokens"
            self._refuse_reserved(f"{used} ({self._key('max_tokens')})", f"{held.tokens} tokens")
        if limits.max_cost is not None and self.cost >= limits.max_cost:
            used = f"has cost {spent.cost:.4f} of its {limits.max_cost:g} USD"
            self._refuse_reserved(f"{used} ({self._key('max_cost')})", f"{held.cost:.4f} USD")

    def charge(self, amount: Amount, turns: int) -> None:
        self._look_at_day()
        amount = bounded(amount)  # a sum that is no number would never reach a limit
        super().charge(amount, turns)
        if self._in_ledger and amount != NOTHING:
            self._days.ledger.add(self._days.name, self.subject, amount)

    def has_room_beside(self, most: Amount) -> bool:
        """Whether a request that is reserved here would have room if it came now."""
        tokens, cost = self.tokens + self._held_tokens - most.tokens, self.cost + self._held_cost - most.cost
        limits = self.daily
        return (limits.max_tokens is None or tokens < limits.max_tokens) and (
            limits.max_cost is None or cost < limits.max_cost
        )

    def hear(self, others: Others) -> bool:
        """What others have spent and hold today; whether that is more than before."""
        self._look_at_day()
        before, self._others = _sum(self._others), others
        now = _sum(others)
        self.tokens += now.tokens - before.tokens
        self.cost += now.cost - before.cost
        return now.tokens > before.tokens or now.cost > before.cost + _DUST

    def reading(self) -> DayReading:
        """How far it is used."""
        self._look_at_day()
        others, spent = self._others.held, self._spent()
        held = Amount(self._held_tokens + others.tokens, self._held_cost + others.cost)
        return DayReading(self.subject, self._days.name, self.daily, spent, held, self._where)

    @property
    def is_reserved(self) -> bool:
        """Whether others reserve something of it, which may become less before the day is over."""
        return self._others.held != NOTHING

    def _spent(self) -> Amount:
        """What is spent, here and by others, without what others reserve."""
        held = self._others.held
        return Amount(self.tokens - held.tokens, max(0.0, self.cost - held.cost))

    def _look_at_day(self) -> None:
        if self._number != self._days.number:
            self._begin()

    def _begin(self) -> None:
        self._number = self._days.number
        self.turns = self.tokens = self.estimated = 0
        self.cost = 0.0
        self._others = Others(NOTHING, NOTHING)
        self._days.keep(self)

    def _refuse_reserved(self, used: str, held: str) -> None:
        after = self._days.held_for()
        others = f"{held} are reserved by other servers, or by those that have crashed"
        told = _Reserved(f"{self.name} {used}, and {others}; ask again in {after:.0f} s", retry_after=after)
        told.account = self.path
        raise told

    def _refuse(self, error: TurnsReached | BudgetReached) -> None:
        left = self._days.today().left
        minutes = max(1, round(left / 60))
        told = DayReached(
            f"{error}; the next begins at 00:00 UTC, in {minutes // 60} h {minutes % 60} min", retry_after=left
        )
        told.account = self.path
        raise told


@final
class Days:
    """See the module.

    Args:
        root: the ledger's writer is an actor of it.
        store: of the ledger.
        settings: who may spend how much.
        now: the wall clock, in seconds since 1970.
        patient: runs and requests wait where they need not end: while the ledger can't be written, which is a
            `LedgerBroken` else, and for up to `HELD_FOR` for what others reserve.

    Attributes:
        ledger: where it is kept.
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
        self.ledger = Ledger(root, store, today=self.today, tell=self._hear)
        self._all = DayAccount(self, ALL, None)
        self.configure(settings)

    # --- what day it is ------------------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """Days since 1970."""
        number = int(self._now() // DAY)
        if number > self._latest or number < self._latest - 1:
            self._latest = number
            self._name = date_of(number)
            self._of_today.clear()
        return self._latest

    @property
    def name(self) -> str:
        """The day: `2026-11-23`."""
        self.number  # noqa: B018 - which is what names it
        return self._name

    def today(self) -> Today:
        """The moment as the ledger sees it."""
        return today_of(self.number, self._now())

    # --- whose ---------------------------------------------------------------------------------------------------

    def configure(self, settings: ApiSettings) -> None:
        """Have these limits from now on."""
        self._rules = DailyRules(settings)
        self._all.limit(*self._rules.all)
        for account in self._known():
            account.limit(*self._rules.of(account.subject))

    def account(self, subject: str) -> DayAccount | None:
        """What the runs of a subject are charged to; None where nothing is limited. Threads may ask."""
        if subject != LOCAL.subject:
            daily, where = self._rules.of(subject)
            if daily is not None:
                return self._account(subject, daily, where)
        return self._all if self._all.capped else None

    def keep(self, account: DayAccount) -> None:
        """Do not forget what was spent on the account until the day is over."""
        self.number  # noqa: B018 - which forgets those of another day
        self._of_today.add(account)

    def readings(self) -> list[DayReading]:
        """How far each limit is used: that of all, those of keys, and those of others who have come today."""
        self.number  # noqa: B018 - which forgets those of another day
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
        """See that a run of the subject may begin.

        Raises:
            DayReached: what may be spent today was.
            LedgerBroken: it is not known what was.
        """
        account = self.account(subject)
        if account is None:
            return None
        since, looked = trio.current_time(), self._may_look(account)
        if looked:
            await self._look(account)
        while True:
            try:
                return account.check()
            except DayReached as error:
                if not await self._looks_again(account, error, since, looked=looked):
                    raise
                looked = True

    async def look(self) -> None:
        """Ask the ledger how far all limits are used, also of subjects that have not come to this process today.

        The log says if it can't be read.
        """
        accounts = (self._all, *map(self.account, self._rules.subjects), *self._known())
        keys = {each.subject for each in accounts if each is not None and each.capped}
        if keys or self._rules.limits_others:
            with contextlib.suppress(Unwritten):
                await self.ledger.look(keys, all_of_today=True)

    async def admit(self, account: Account, most: Amount, on_wait: Callable[[], None], *, turn: bool) -> Hold:
        """Reserve what a request may come to, in its accounts and in the ledger.

        Raises:
            TurnsReached, BudgetReached: an account is at its end, or came to it meanwhile.
            LedgerBroken: it can't be written.
        """
        capped, looked, most, since = _capped(account), False, bounded(most), trio.current_time()
        while True:
            growth = self._growth
            try:
                hold = await room_in(account, most, on_wait, turn=turn)
            except DayReached as error:  # what others held may have become less since
                if account.day is None or not await self._looks_again(account.day, error, since, looked=looked):
                    raise
                looked = True
                continue
            if not capped:
                return hold
            try:
                id = await self.ledger.commit(capped, most)
            except Unwritten as error:
                hold.release()
                await self._later(error)
                continue
            except BaseException:  # cancelled, too: nothing stays reserved
                hold.release()
                raise
            written = Written(hold, self.ledger, id)
            if growth == self._growth or all(each.has_room_beside(most) for each in _days_of(account)):
                return written
            written.release()

    async def aclose(self) -> None:
        """Write what is left."""
        await self.ledger.aclose()

    def _may_look(self, account: DayAccount) -> bool:
        return trio.current_time() - account.looked >= LOOK_EVERY

    async def _looks_again(self, account: DayAccount, error: DayReached, since: float, *, looked: bool) -> bool:
        """Whether figures are there by now that are newer than a request which was refused."""
        if looked:
            if not self._patient or not isinstance(error, _Reserved) or trio.current_time() > since + HELD_FOR:
                return False
            await trio.sleep(LOOK_EVERY)
        elif not self._may_look(account) and not _is_reserved(account):
            return False
        await self._look(account)
        return True

    async def _look(self, account: DayAccount) -> None:
        account.looked = trio.current_time()
        while True:
            try:
                await self.ledger.look(_capped(account))
            except Unwritten as error:
                await self._later(error)
            else:
                return

    async def _later(self, error: Unwritten) -> None:
        """The ledger can't be written now: wait for the next try, or raise."""
        if not self._patient:
            raise self._broken(error) from None
        await trio.sleep(LOOK_EVERY)

    def held_for(self) -> float:
        """Seconds until what others reserve may be less; in the first minute, until yesterday's rows do not count."""
        today = self.today()
        grace = GRACE - (DAY - today.left) + LOOK_EVERY if today.since != today.day else 0.0
        return max(HELD_FOR, grace)

    def _broken(self, error: Unwritten) -> LedgerBroken:
        return LedgerBroken(
            f"what is spent of the daily limits of this server can't be written to {self.ledger.store.name} "
            f"({error}), so nothing can be spent now"
        )

    def _hear(self, day: str, others: Mapping[str, Others]) -> None:
        if day != self.name:
            return
        shrunk = []
        for subject, of in others.items():
            account = self._all if subject == ALL else self._accounts.get(subject) or self.account(subject)
            if account is not None and account.subject == subject:  # who has no limit has the account of all
                if account.hear(of):
                    self._growth += 1
                else:
                    shrunk.append(account)
        for account in shrunk:
            account.let_go()


def _days_of(account: Account) -> list[DayAccount]:
    return [each for each in account.chain() if isinstance(each, DayAccount)]


def _capped(account: Account) -> list[str]:
    """The keys of the ledger under which requests of an account are written."""
    return [each.subject for each in _days_of(account) if each.capped]


def _is_reserved(account: Account) -> bool:
    """Whether others reserve some of what the request may spend: figures newer than the request have to say it."""
    return any(each.is_reserved for each in _days_of(account))


def _sum(others: Others) -> Amount:
    return Amount(others.spent.tokens + others.held.tokens, others.spent.cost + others.held.cost)
