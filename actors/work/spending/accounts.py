"""Accounts: limits on the spending of a run, a node, or an agent, and the sums spent so far.

Accounts form a tree. The limit of each account covers the spending of all accounts below it:

    the run  <-  agent 'researcher'  <-  node 'draft' of a graph it calls

Above the run of a server, there can be the day of its subject, and the day of the server; see `days`.

Before a request is sent, its upper bound is reserved in its own account and in all above it (`Account.hold`). After the
request, the actual amount replaces the reservation (`Hold.spend`). A request is sent if the sum of spending and
reservations is below the limit. So an account never exceeds its limit by more than the upper bound of one request. If
reservations fill the account but spending alone has not reached the limit, a request waits until others are settled,
first come, first served.

The error names the innermost account that has reached its limit. So a child agent is ended by its own limit before the
limit of its parent ends both. A request that ends without figures, because it was cancelled or its connection broke, is
settled with an estimate: providers charge for the output that they generated until then.

Accounts are pure: no clock, no I/O, no tasks. Only `reserve` and `room_in`, at the end of this module, wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, final

import msgspec
import trio

from ....protocol.errors import BudgetReached, CallboardError, LimitReached, ShareReached, TurnsReached, Unpriced
from ....protocol.requests import Limits

if TYPE_CHECKING:
    from ....protocol.graph import OwnLimits


class Amount(msgspec.Struct, frozen=True):
    """Usage of a request, or its upper bound: tokens of input and output together, and USD."""

    tokens: int = 0
    cost: float = 0.0


NOTHING = Amount()

N = TypeVar("N", int, float)

Wake = Callable[["Hold | LimitReached"], None]
"""Called once with the result for a waiting request: its reservation, or the error that refuses it."""


Key = Callable[[str], str]
"""Returns the name under which the user set a limit, for a field of `Limits`."""


def by_file(field: str) -> str:
    """Return the name in messages of a limit that is set in the file of an agent or a graph: `limits: max_cost`."""
    return f"`limits: {field}`"


def by_flag(field: str) -> str:
    """Return the name in messages of a limit that is set for a run: `max_cost`, --max-cost."""
    return f"`{field}`, --{field.replace('_', '-')}"


class DailyLimit(Protocol):
    """Account of a day (`days.DayAccount`), as accounts of runs below it use it."""

    @property
    def counts_money(self) -> str | None:
        """Settings key of the limit in money that applies here or above; None if there is none."""

    def admit(
        self, account: Account, most: Amount, on_wait: Callable[[], None], *, turn: bool
    ) -> Coroutine[Any, Any, Hold]:
        """Reserve a request of `account`, which is this one or one below it, here and in the ledger; see `reserve`."""


class Account:
    """Limits and spending of a run, an agent, a node, or a day.

    Args:
        name: name of its owner in messages: `the run`, `agent 'researcher'`.
        limits: the limits; `timeout` is ignored.
        parent: the account above it.
        allow_unpriced: a limit in money does not forbid models without a known price.
        key: returns the place where the user set a limit, by the name of the field.

    Attributes:
        path: names from the outermost account to this one; errors carry it (`LimitReached.account`).
        measures: the upper bound of a request matters: tokens or money are limited, here or above.
        needs_prices: models without a known price are refused, because money is limited, here or above.
        day: the nearest account of a day, this one included; its `counts_money` also forbids models without a price.
        waiting: requests that wait for room here.
        turns, tokens, cost: the spending so far; `estimated` is the part of the tokens that no provider reported.
    """

    is_of_day: ClassVar[bool] = False
    """True for the account of a day (`days.DayAccount`), which other processes may charge as well."""

    turns: int
    tokens: int

    def __init__(
        self,
        name: str,
        limits: Limits | OwnLimits,
        parent: Account | None = None,
        *,
        key: Key = by_file,
        allow_unpriced: bool = False,
    ) -> None:
        self.name = name
        self.path: str = name if parent is None else f"{parent.path}/{name}"
        self.limits = limits
        self.parent = parent
        self._key = key
        own = limits.max_tokens is not None or limits.max_cost is not None
        self.measures: bool = own or (parent is not None and parent.measures)
        in_money = limits.max_cost is not None and not allow_unpriced
        self.needs_prices: bool = in_money or (parent is not None and parent.needs_prices)
        self.day: DailyLimit | None = None if parent is None else parent.day
        self.turns = self.tokens = self.estimated = 0
        self.cost: float = 0.0
        self._held = self._held_turns = self._held_tokens = 0
        self._held_cost = 0.0
        self.waiting: deque[_Waiter] = deque()

    def chain(self) -> Iterator[Account]:
        """Yield this account and those above it."""
        account: Account | None = self
        while account is not None:
            yield account
            account = account.parent

    def hold(self, most: Amount, *, turn: bool = True) -> Hold | None:
        """Reserve the upper bound of a request. Return None if the request has to wait (`wait`).

        Args:
            turn: the request is a turn of a model; a request for embeddings is not.

        Raises:
            TurnsReached, BudgetReached: an account has reached its limit.
        """
        self.check(turn=turn)
        # Full by reservations only, or `check` would have raised: settling them may free room, so the request can wait.
        if any(account.is_full() for account in self.chain()):
            return None
        return Hold(self, most, turn=turn)

    def wait(self, most: Amount, wake: Wake, *, turn: bool = True) -> Callable[[], None]:
        """Call `wake` when a request for which `hold` had no room may be sent.

        Returns:
            a function that stops the wait. If the request already has a reservation, the caller must release it.
        """
        waiter = _Waiter(self, most, wake, turn)
        self.full().waiting.append(waiter)
        return waiter.leave

    def remaining(self) -> Limits:
        """Return, for each limit, the smallest remainder in this account and those above, without the accounts of days.

        A remainder is at least 0, and None without a limit. Reservations are not subtracted.
        """
        own = [account for account in self.chain() if not account.is_of_day]
        return Limits(
            max_turns=_least((each.limits.max_turns, each.turns) for each in own),
            max_tokens=_least((each.limits.max_tokens, each.tokens) for each in own),
            max_cost=_least((each.limits.max_cost, each.cost) for each in own),
        )

    def charge_all(self, amount: Amount, turns: int) -> None:
        """Count spending of another worker, here and above, but not in the accounts of days.

        That worker has already charged it to the day.
        """
        for account in self.chain():
            if not account.is_of_day:
                account.charge(amount, turns)

    @property
    def asks_for_prices(self) -> bool:
        """True if `unpriced` may return an error."""
        return self.needs_prices or (self.day is not None and self.day.counts_money is not None)

    def unpriced(self, model: str, file: str) -> Unpriced | None:
        """Return the error for a model without a known price, or None if the model may be used.

        If both a day and an account limit money, the error names the limit of the day.

        Args:
            model: id of the model.
            file: file in which the user can set its price.
        """
        of_day = None if self.day is None else self.day.counts_money
        if of_day is not None:
            return Unpriced.of_day(model, file, of_day)
        return Unpriced.of(model, file) if self.needs_prices else None

    def check(self, *, turn: bool = False) -> None:
        """Raise if an account has reached its limit: `BudgetReached`, and with `turn` also `TurnsReached`."""
        for account in self.chain():
            account.check_own(turn=turn)

    def check_own(self, *, turn: bool) -> None:
        """Check this account alone; see `check`."""
        limits = self.limits
        # Turns in flight count as used: their number, unlike their tokens, is known beforehand.
        if turn and limits.max_turns is not None and self.turns + self._held_turns >= limits.max_turns:
            turns = "1 model turn" if limits.max_turns == 1 else f"{limits.max_turns} model turns"
            self._refuse(
                TurnsReached(
                    f"{self.name} has used all of its {turns} ({self._key('max_turns')}); raise the limit to continue"
                )
            )
        self._check_spent(self.tokens, self.cost)

    def _check_spent(self, tokens: int, cost: float) -> None:
        limits = self.limits
        if limits.max_tokens is not None and tokens >= limits.max_tokens:
            guess = f", {self.estimated} of them estimated" if self.estimated else ""
            self._refuse(
                BudgetReached(
                    f"{self.name} has used {tokens} of its {limits.max_tokens} tokens{guess} "
                    f"({self._key('max_tokens')})"
                )
            )
        if limits.max_cost is not None and cost >= limits.max_cost:
            self._refuse(
                BudgetReached(
                    f"{self.name} has spent {cost:.4f} of its {limits.max_cost:g} USD ({self._key('max_cost')})"
                )
            )

    def _refuse(self, error: TurnsReached | BudgetReached) -> None:
        error.account = self.path
        raise error

    def is_full(self) -> bool:
        """Return True if spending and reservations together have reached the limit of tokens or of cost."""
        limits = self.limits
        if limits.max_tokens is not None and self.tokens + self._held_tokens >= limits.max_tokens:
            return True
        return limits.max_cost is not None and self.cost + self._held_cost >= limits.max_cost

    def full(self) -> Account:
        """Return the innermost account without room, of this one and those above; the outermost if all have room."""
        last = self
        for last in self.chain():
            if last.is_full():
                break
        return last

    def charge(self, amount: Amount, turns: int) -> None:
        """Count spending in this account alone."""
        self.turns += turns
        self.tokens += amount.tokens
        self.cost += amount.cost

    def reserve(self, most: Amount, *, turn: bool) -> None:
        """Add a reservation to this account alone."""
        self._held += 1
        self._held_turns += turn
        self._held_tokens += most.tokens
        self._held_cost += most.cost

    def free(self, most: Amount, *, turn: bool) -> None:
        """Remove a reservation from this account alone."""
        self._held -= 1
        self._held_turns -= turn
        self._held_tokens -= most.tokens
        # Without reservations, reset to exactly 0: sums of fractions would leave a rest.
        self._held_cost = self._held_cost - most.cost if self._held else 0.0

    def let_go(self) -> None:
        """Let waiting requests of this account and of those above continue as far as there is room, in the order of
        arrival.
        """
        for account in self.chain():
            while account.waiting and account.waiting[0].goes_on():
                pass


def as_failure(error: CallboardError, account: Account | None, above: Account | None) -> CallboardError:
    """Return the error that leaves the agent or the node of `account`; `above` is the account that contains it.

    If its own limit was reached, only this agent or node has failed (`ShareReached`). The limit of an account above
    ends that account's owner as well, so the error passes unchanged, as do errors that are not about limits.
    """
    if account is None or account is above or not isinstance(error, BudgetReached | TurnsReached):
        return error
    # An account above has reached its limit, so its owner ends as well.
    if error.account != account.path:
        return error
    share = ShareReached(str(error))
    share.__dict__.update(error.__dict__)
    share.code, share.__cause__ = error.code, error
    return share


class Hold:
    """Reservation for one request, in one account and all above it."""

    __slots__ = ("_account", "_most", "_turn")

    def __init__(self, account: Account, most: Amount, *, turn: bool = True) -> None:
        self._account: Account | None = account
        self._most = most
        self._turn = turn
        for each in account.chain():
            each.reserve(most, turn=turn)

    def spend(self, amount: Amount, *, turns: int = 1, estimated: bool = False) -> None:
        """Replace the reservation by the actual amount, and wake waiting requests; a second call has no effect.

        Args:
            turns: number of turns to count; ignored if the reservation is not for a turn.
            estimated: no provider reported the amount.
        """
        account, self._account = self._account, None
        if account is None:
            return
        for each in account.chain():
            each.free(self._most, turn=self._turn)
            each.charge(amount, turns if self._turn else 0)
            if estimated:
                each.estimated += amount.tokens
        account.let_go()

    def release(self) -> None:
        """Remove the reservation; nothing was spent."""
        self.spend(NOTHING, turns=0)


@final
class _Waiter:
    """A request in the queue of an account without room."""

    def __init__(self, account: Account, most: Amount, wake: Wake, turn: bool) -> None:
        self._account = account
        self._most = most
        self._turn = turn
        self._wake: Wake | None = wake

    def leave(self) -> None:
        self._wake = None

    def goes_on(self) -> bool:
        """Return whether the request, the first of its queue, has left that queue.

        It then has its result, or waits in the queue of another account.
        """
        # The request gave up: `leave` only marks it, since a deque has no cheap removal from the middle.
        if self._wake is None:
            self._line().popleft()
            return True
        line = self._line()
        try:
            found: Hold | LimitReached | None = self._account.hold(self._most, turn=self._turn)
        except LimitReached as error:
            found = error
        if found is None:
            full = self._account.full()
            if full.waiting is line:
                return False
            line.popleft()
            # Another account is the obstacle now: queue there, so that its `let_go` wakes this request.
            full.waiting.append(self)
            return True
        line.popleft()
        wake, self._wake = self._wake, None
        wake(found)
        return True

    def _line(self) -> deque[_Waiter]:
        return next(each.waiting for each in self._account.chain() if each.waiting and each.waiting[0] is self)


def _least(spent: Iterable[tuple[N | None, N]]) -> N | None:
    """Return the smallest remainder, at least 0, of pairs of limit and spending; None if there is no limit."""
    return min(
        (most - so_far if most > so_far else most - most for most, so_far in spent if most is not None), default=None
    )


def reserve(
    account: Account, most: Amount, on_wait: Callable[[], None], *, turn: bool = True
) -> Coroutine[Any, Any, Hold]:
    """Reserve the upper bound of a request, as soon as there is room; also in the ledger if days are limited.

    Args:
        on_wait: called if the request has to wait.
        turn: the request is a turn of a model; a request for embeddings is not.

    Raises:
        TurnsReached, BudgetReached: an account has reached its limit, or reached it during the wait.
    """
    enter = room_in if account.day is None else account.day.admit
    return enter(account, most, on_wait, turn=turn)


async def room_in(account: Account, most: Amount, on_wait: Callable[[], None], *, turn: bool) -> Hold:
    """Reserve in the accounts alone; see `reserve`."""
    hold = account.hold(most, turn=turn)
    if hold is not None:
        return hold
    on_wait()
    found: list[Hold | LimitReached] = []
    woken = trio.Event()

    def wake(what: Hold | LimitReached) -> None:
        found.append(what)
        woken.set()

    leave = account.wait(most, wake, turn=turn)
    try:
        await woken.wait()
    except BaseException:  # Cancelled: a reservation made at that very moment must be released for others.
        leave()
        for each in found:
            if isinstance(each, Hold):
                each.release()
        raise
    if isinstance(found[0], LimitReached):
        raise found[0]
    return found[0]
