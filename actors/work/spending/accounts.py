"""Accounts: what may be spent on one thing, and what has been.

A run is such a thing, and so are a node and an agent. They form a tree, each of whose limits holds for all that is
below it:

    the run  <-  agent 'researcher'  <-  node 'draft' of a graph it calls

Above a run of a server may be the day of its subject, and that of the server; see `days`.

Before a request goes out, what it may come to at most is reserved in its own account and in all above it
(`Account.hold`), and after it that is replaced by what it came to (`Hold.settle`). A request goes out if less than the
limit is spent and reserved. So an account never comes to more than its limit and what one request may come to. Where
too much is reserved, and too little spent to say that the limit is reached, a request waits until others are settled,
first come, first served.

The error names the account that is at its end, the innermost that is: so a child agent is ended by its own
limit before that of its parent ends both. A request that ends without figures, since it was cancelled or its connection
broke, is settled with an estimate, as providers charge for what they have said until then.

This module is pure: no clock, no I/O, no tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar, final

import msgspec

from ....protocol.errors import BudgetReached, CallboardError, LimitReached, ShareReached, TurnsReached, Unpriced
from ....protocol.requests import Limits

if TYPE_CHECKING:
    from ....protocol.graph.model import OwnLimits
    from .days import DayAccount


class Amount(msgspec.Struct, frozen=True):
    """What a request comes to, or may come to at most: tokens of input and output, and USD."""

    tokens: int = 0
    cost: float = 0.0


NOTHING = Amount()

N = TypeVar("N", int, float)

Wake = Callable[["Hold | LimitReached"], None]
"""Called once with what a request has waited for: its reservation, or why there will be none."""


Key = Callable[[str], str]
"""How people call the limit that a field of `Limits` is."""


def by_file(field: str) -> str:
    """A limit that stands in an agent's or a graph's file."""
    return f"`limits: {field}`"


def by_flag(field: str) -> str:
    """A limit that a run was given."""
    return f"--{field.replace('_', '-')}"


class Account:
    """See the module.

    Args:
        name: of the thing, for people: `the run`, `agent 'researcher'`.
        limits: what may be spent on it; `timeout` is no part of this.
        parent: what this is a part of.
        allow_unpriced: a limit in money does not keep it from models whose price is not known.
        key: where people say what the limit is, by the name of the field.

    Attributes:
        path: names from the outermost account to this one; errors carry it (`LimitReached.account`).
        measures: whether it matters beforehand what a request may come to: tokens or money are limited, here or above.
        needs_prices: no model may be asked whose price is not known, since money is limited, here or above.
        day: the nearest account of a day, of this one and those above; it has limits of its own for prices.
        waiting: requests that wait for room here.
        turns, tokens, cost: what was spent; `estimated`, of the tokens, what no provider has told.
    """

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
        self.day: DayAccount | None = None if parent is None else parent.day
        self.turns = self.tokens = self.estimated = 0
        self.cost = 0.0
        self._held = self._held_turns = self._held_tokens = 0
        self._held_cost = 0.0
        self.waiting: deque[_Waiter] = deque()

    def chain(self) -> Iterator[Account]:
        """This account and those above it."""
        account: Account | None = self
        while account is not None:
            yield account
            account = account.parent

    def hold(self, most: Amount, *, turn: bool = True) -> Hold | None:
        """Reserve what a request may come to; None if it has to wait (`wait`).

        Args:
            turn: it is a turn of a model; one for vectors is none.

        Raises:
            TurnsReached, BudgetReached: an account is at its end.
        """
        self.check(turn=turn)
        if any(account.is_full() for account in self.chain()):
            return None
        return Hold(self, most, turn=turn)

    def wait(self, most: Amount, wake: Wake, *, turn: bool = True) -> Callable[[], None]:
        """Have `wake` called when a request may go out that `hold` had no room for.

        Returns:
            what to call if it shall wait no longer; a reservation that it has by then is for the caller to release.
        """
        waiter = _Waiter(self, most, wake, turn)
        self.full().waiting.append(waiter)
        return waiter.leave

    def left(self) -> Limits:
        """What may still be spent here and above, that of the day aside."""
        own = [account for account in self.chain() if account.day is not account]
        return Limits(
            max_turns=_least((each.limits.max_turns, each.turns) for each in own),
            max_tokens=_least((each.limits.max_tokens, each.tokens) for each in own),
            max_cost=_least((each.limits.max_cost, each.cost) for each in own),
        )

    def charge_all(self, amount: Amount, turns: int) -> None:
        """Count here and above what was spent elsewhere, by who has taken it from the day."""
        for account in self.chain():
            if account.day is not account:
                account.charge(amount, turns)

    @property
    def asks_for_prices(self) -> bool:
        """Whether `unpriced` may have an error."""
        return self.needs_prices or (self.day is not None and self.day.counts_money is not None)

    def unpriced(self, model: str, file: str) -> Unpriced | None:
        """The error for a model whose price is not known; None if it may be asked.

        Args:
            model: its id.
            file: where it could be given a price.
        """
        of_day = None if self.day is None else self.day.counts_money
        if of_day is not None:
            return Unpriced.of_day(model, file, of_day)
        return Unpriced.of(model, file) if self.needs_prices else None

    def check(self, *, turn: bool = False) -> None:
        """Raise if an account is at its end: `BudgetReached`, and with `turn` also `TurnsReached`."""
        for account in self.chain():
            account.check_own(turn=turn)

    def check_own(self, *, turn: bool) -> None:
        """As `check`, for this account alone."""
        limits = self.limits
        if turn and limits.max_turns is not None and self.turns + self._held_turns >= limits.max_turns:
            turns = "1 model turn" if limits.max_turns == 1 else f"{limits.max_turns} model turns"
            self._refuse(TurnsReached(f"{self.name} has used its {turns} ({self._key('max_turns')})"))
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
                    f"{self.name} has cost {cost:.4f} of its {limits.max_cost:g} USD ({self._key('max_cost')})"
                )
            )

    def _refuse(self, error: TurnsReached | BudgetReached) -> None:
        error.account = self.path
        raise error

    def is_full(self) -> bool:
        """Whether as much as may be is spent and reserved."""
        limits = self.limits
        if limits.max_tokens is not None and self.tokens + self._held_tokens >= limits.max_tokens:
            return True
        return limits.max_cost is not None and self.cost + self._held_cost >= limits.max_cost

    def full(self) -> Account:
        """The innermost account without room, of this one and those above; the outermost if all have room."""
        last = self
        for last in self.chain():
            if last.is_full():
                break
        return last

    def charge(self, amount: Amount, turns: int) -> None:
        """Count what was spent, in this account alone."""
        self.turns += turns
        self.tokens += amount.tokens
        self.cost += amount.cost

    def reserve(self, most: Amount, *, turn: bool) -> None:
        """Make a reservation, in this account alone."""
        self._held += 1
        self._held_turns += turn
        self._held_tokens += most.tokens
        self._held_cost += most.cost

    def free(self, most: Amount, *, turn: bool) -> None:
        """Take a reservation back, in this account alone."""
        self._held -= 1
        self._held_turns -= turn
        self._held_tokens -= most.tokens
        self._held_cost = self._held_cost - most.cost if self._held else 0.0  # no dust of fractions stays

    def let_go(self) -> None:
        """Wake those that wait here or above and need not any more, the first first."""
        for account in self.chain():
            while account.waiting and account.waiting[0].goes_on():
                pass


def as_failure(error: CallboardError, account: Account | None, above: Account | None) -> CallboardError:
    """An error that leaves the agent or the node that has the account; `above` is the account it is a part of.

    Where its own limit was reached it alone has failed. A limit of something above ends that as well.
    """
    if account is None or account is above or not isinstance(error, BudgetReached | TurnsReached):
        return error
    if error.account != account.path:
        return error
    told = ShareReached(str(error))
    told.__dict__.update(error.__dict__)
    told.code, told.__cause__ = error.code, error
    return told


class Hold:
    """What is reserved for one request, in one account and all above it."""

    __slots__ = ("_account", "_most", "_turn")

    def __init__(self, account: Account, most: Amount, *, turn: bool = True) -> None:
        self._account: Account | None = account
        self._most = most
        self._turn = turn
        for each in account.chain():
            each.reserve(most, turn=turn)

    def settle(self, amount: Amount, *, turns: int = 1, estimated: bool = False) -> None:
        """The request came to this. What is reserved is free; a second call is without effect."""
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
        """The request came to nothing."""
        self.settle(NOTHING, turns=0)


@final
class _Waiter:
    """A request that waits in the line of an account without room."""

    def __init__(self, account: Account, most: Amount, wake: Wake, turn: bool) -> None:
        self._account = account
        self._most = most
        self._turn = turn
        self._wake: Wake | None = wake

    def leave(self) -> None:
        self._wake = None

    def goes_on(self) -> bool:
        """Whether it waits no longer in the line in which it is the first; it is out of that line then."""
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
            full.waiting.append(self)
            return True
        line.popleft()
        wake, self._wake = self._wake, None
        wake(found)
        return True

    def _line(self) -> deque[_Waiter]:
        return next(each.waiting for each in self._account.chain() if each.waiting and each.waiting[0] is self)


def _least(spent: Iterable[tuple[N | None, N]]) -> N | None:
    """What is left of the limit that is the nearest, of several each with what was spent; None if there is none."""
    return min(
        (most - so_far if most > so_far else most - most for most, so_far in spent if most is not None), default=None
    )
