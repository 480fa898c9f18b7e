"""Accounts: what is spent never passes a limit by more than one request may come to, and who waits gets its turn."""

from __future__ import annotations

from functools import partial

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.messages import says

from callboard.actors.work.spending.accounts import Account, Amount, Hold, by_flag
from callboard.protocol.errors import BudgetReached, LimitReached, TurnsReached
from callboard.protocol.requests import Limits

ONE = Amount(tokens=10, cost=0.1)


def note(order: list[str], name: str, _: Hold | LimitReached) -> None:
    order.append(name)


def tokens(most: int, parent: Account | None = None, name: str = "the run") -> Account:
    return Account(name, Limits(max_tokens=most), parent)


def test_a_request_that_fits_is_reserved_at_once_and_settled_with_what_it_came_to() -> None:
    account = tokens(100)
    hold = account.hold(Amount(tokens=60))
    assert hold is not None
    hold.spend(Amount(tokens=20, cost=0.5))
    assert (account.turns, account.tokens, account.cost) == (1, 20, 0.5)


def test_a_request_goes_out_while_less_than_the_limit_is_spent_and_reserved() -> None:
    account = tokens(100)
    assert account.hold(Amount(tokens=99)) is not None
    assert account.hold(Amount(tokens=1_000)) is not None  # it may pass the limit, by what it alone may come to
    assert account.hold(Amount(tokens=1)) is None


def test_a_request_without_room_waits_until_another_is_settled() -> None:
    account, woken = tokens(100), list[Hold | LimitReached]()
    first = account.hold(Amount(tokens=100))
    assert first is not None
    assert account.hold(ONE) is None
    account.wait(ONE, woken.append)
    assert not woken
    first.spend(Amount(tokens=50))
    assert isinstance(woken[0], Hold)


def test_who_waits_is_refused_when_the_account_comes_to_its_end() -> None:
    account, woken = tokens(100), list[Hold | LimitReached]()
    first = account.hold(Amount(tokens=100))
    assert first is not None
    account.wait(ONE, woken.append)
    account.wait(ONE, woken.append)
    first.spend(Amount(tokens=100))
    assert [type(each) for each in woken] == [BudgetReached, BudgetReached]


def test_those_who_wait_go_in_the_order_in_which_they_came() -> None:
    account, order = tokens(100), list[str]()
    first = account.hold(Amount(tokens=100))
    assert first is not None
    for name in ("a", "b", "c"):
        account.wait(Amount(tokens=40), partial(note, order, name))
    first.release()
    assert order == ["a", "b", "c"]


def test_who_leaves_the_line_does_not_hold_up_those_behind() -> None:
    account, woken = tokens(100), list[Hold | LimitReached]()
    first = account.hold(Amount(tokens=100))
    assert first is not None
    leave = account.wait(ONE, lambda _: pytest.fail("it has left"))
    account.wait(ONE, woken.append)
    leave()
    first.release()
    assert len(woken) == 1


def test_a_reservation_is_settled_once() -> None:
    account = tokens(100)
    hold = account.hold(ONE)
    assert hold is not None
    hold.spend(ONE)
    hold.spend(ONE)
    hold.release()
    assert (account.turns, account.tokens) == (1, 10)


def test_limits_of_all_accounts_above_hold() -> None:
    run = Account("the run", Limits(max_cost=1.0), key=by_flag)
    agent = tokens(1_000, run, "agent 'a'")
    other = tokens(1_000, run, "agent 'b'")
    first = agent.hold(Amount(cost=1.0))
    assert first is not None
    assert other.hold(ONE) is None
    first.spend(Amount(cost=1.0))
    with pytest.raises(
        BudgetReached,
        match=says(
            "work.spending.accounts.Account._check_spent.3",
            name="the run",
            cost="1.0000",
            max_cost=1,
            _key="`max_cost`, --max-cost",
        ),
    ):
        other.hold(ONE)


def test_the_innermost_account_at_its_end_is_named() -> None:
    run = tokens(10)
    agent = tokens(10, run, "agent 'a'")
    hold = agent.hold(ONE)
    assert hold is not None
    hold.spend(ONE)
    with pytest.raises(
        BudgetReached,
        match=says(
            "work.spending.accounts.Account._check_spent.2",
            name="agent 'a'",
            tokens=10,
            max_tokens=10,
            _key="`limits: max_tokens`",
        ),
    ) as told:
        agent.hold(ONE)
    assert told.value.account == "the run/agent 'a'" == agent.path


def test_turns_are_refused_at_once_those_under_way_included() -> None:
    account = Account("the run", Limits(max_turns=1))
    hold = account.hold(Amount())
    assert hold is not None
    with pytest.raises(TurnsReached):
        account.hold(Amount())
    hold.release()
    assert account.hold(Amount()) is not None


def test_tokens_that_no_provider_has_told_are_counted_and_named_as_estimates() -> None:
    account = tokens(10)
    hold = account.hold(ONE)
    assert hold is not None
    hold.spend(ONE, turns=0, estimated=True)
    with pytest.raises(
        BudgetReached, match=says("work.spending.accounts.Account._check_spent.2", tokens=10, max_tokens=10)
    ):
        account.check()


def test_prices_have_to_be_known_where_money_is_limited_here_or_above() -> None:
    above = Account("the run", Limits(max_cost=1.0))
    below = Account("agent 'a'", Limits(max_cost=1.0), above, allow_unpriced=True)
    assert Account("the run", Limits(max_cost=1.0)).needs_prices
    assert not Account("the run", Limits(max_cost=1.0), allow_unpriced=True).needs_prices
    assert below.needs_prices


class Trees(RuleBasedStateMachine):
    """A tree of accounts, requests under way in it, and requests that wait."""

    @initialize(
        caps=st.lists(st.tuples(st.integers(1, 300), st.integers(0, 3), st.booleans()), min_size=1, max_size=6),
    )
    def grow(self, caps: list[tuple[int, int, bool]]) -> None:
        self.accounts: list[Account] = []
        for number, (cap, above, money) in enumerate(caps):
            limits = Limits(max_cost=cap / 100) if money else Limits(max_tokens=cap)
            parent = self.accounts[above % number] if number else None
            self.accounts.append(Account(f"account {number}", limits, parent))
        self.open: list[tuple[Hold, Amount, Account]] = []
        self.waiting = 0
        self.largest = {account.path: (0, 0.0) for account in self.accounts}
        self.leaves: list[object] = []

    @rule(where=st.integers(0, 5), size=st.integers(1, 100))
    def ask(self, where: int, size: int) -> None:
        account, most = self.accounts[where % len(self.accounts)], Amount(tokens=size, cost=size / 100)
        try:
            hold = account.hold(most)
        except LimitReached:
            return
        if hold is not None:
            self.goes_out(hold, most, account)
            return
        self.waiting += 1

        def wake(found: Hold | LimitReached) -> None:
            self.waiting -= 1
            if isinstance(found, Hold):
                self.goes_out(found, most, account)

        account.wait(most, wake)

    def goes_out(self, hold: Hold, most: Amount, account: Account) -> None:
        self.open.append((hold, most, account))
        for each in account.chain():
            tokens, cost = self.largest[each.path]
            self.largest[each.path] = max(tokens, most.tokens), max(cost, most.cost)

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 20), share=st.floats(0, 1), fails=st.booleans())
    def end(self, which: int, share: float, fails: bool) -> None:
        hold, most, _ = self.open.pop(which % len(self.open))
        if fails:
            hold.release()
        else:
            hold.spend(Amount(tokens=int(most.tokens * share), cost=most.cost * share))

    @invariant()
    def no_account_passes_its_limit_by_more_than_its_largest_request(self) -> None:
        for account in getattr(self, "accounts", []):
            tokens, cost = self.largest[account.path]
            if account.limits.max_tokens is not None:
                assert account.tokens < account.limits.max_tokens + max(tokens, 1)
            if account.limits.max_cost is not None:
                assert account.cost < account.limits.max_cost + cost + 1e-9

    @invariant()
    def who_waits_does_so_for_a_request_under_way(self) -> None:
        if getattr(self, "accounts", None) and not self.open:
            assert self.waiting == 0


TestTrees = Trees.TestCase
TestTrees.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
