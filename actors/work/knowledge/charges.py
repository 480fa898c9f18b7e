"""Cost attribution: charge requests of knowledge bases to a run, or to a subject for work outside of runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from ....protocol.chat import TokenUsage
    from ....protocol.events import UsageUpdate
    from ..models.call import Emitter
    from ..spending.accounts import Account
    from ..spending.meter import Meter

_beside: ContextVar[Meter | None] = ContextVar("meter", default=None)
"""Meter for work that belongs to no run; overrides the meter of the run."""

_within: ContextVar[Account | None] = ContextVar("account", default=None)
"""Account of an agent or a node of the run, which is charged instead of the run's account."""


@final
class Charges:
    """Meters and accounts for the requests of a process's knowledge, by run."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[Meter, bool]] = {}

    def begin_run(self, run: str, meter: Meter, *, may_wait: bool = True) -> None:
        """Charge the requests of a run to this meter, until `end_run`.

        Args:
            may_wait: requests of the run may wait for the limiter.
        """
        self._runs[run] = meter, may_wait

    def end_run(self, run: str) -> None:
        self._runs.pop(run, None)

    @contextmanager
    def on(self, meter: Meter) -> Iterator[None]:
        """Charge requests in the block, which belong to no run, to this meter."""
        before = _beside.set(meter)
        try:
            yield
        finally:
            _beside.reset(before)

    @contextmanager
    def within(self, account: Account | None) -> Iterator[None]:
        """Reserve requests in the block in this account, which is below the run's; None for the account of the run."""
        before = _within.set(account)
        try:
            yield
        finally:
            _within.reset(before)

    def may_wait(self, me: Emitter) -> bool:
        """Return whether requests of the caller may wait for the limiter."""
        return self._found(me)[1]

    def account(self, me: Emitter) -> Account | None:
        """Return the account for requests of the caller; None if nothing is limited."""
        account = _within.get()
        if account is not None:
            return account
        meter, _ = self._found(me)
        return None if meter is None else meter.account

    def used(self, me: Emitter, model: str, tokens: TokenUsage, cost: float | None) -> UsageUpdate | None:
        """Count the usage of a request. Return the totals of the run, if the request belongs to one."""
        meter, _ = self._found(me)
        totals = None if meter is None else meter.count(model, tokens, cost)
        return totals if _beside.get() is None else None

    def _found(self, me: Emitter) -> tuple[Meter | None, bool]:
        meter = _beside.get()
        if meter is not None:
            return meter, True
        stream = getattr(me, "stream", None)
        return (None, True) if stream is None else self._runs.get(stream.run, (None, True))
