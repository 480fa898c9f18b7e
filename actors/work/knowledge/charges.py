"""Who pays for what knowledge asks of models: a run, or a subject who has work done beside its runs."""

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
"""What counts the work that belongs to no run."""

_within: ContextVar[Account | None] = ContextVar("account", default=None)
"""What is charged in the place of the run's account: that of an agent or a node which is a part of it."""


@final
class Charges:
    """See the module."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[Meter, bool]] = {}

    def begin_run(self, run: str, meter: Meter, *, may_wait: bool = True) -> None:
        """Count on this meter what is used for the run, until `end_run`; `may_wait`: requests, for their turn."""
        self._runs[run] = meter, may_wait

    def end_run(self, run: str) -> None:
        """The run is over."""
        self._runs.pop(run, None)

    @contextmanager
    def on(self, meter: Meter) -> Iterator[None]:
        """Count on this meter what is used in the block, which belongs to no run."""
        before = _beside.set(meter)
        try:
            yield
        finally:
            _beside.reset(before)

    @contextmanager
    def within(self, account: Account | None) -> Iterator[None]:
        """Reserve in this account, a part of the run's, what is used in the block; None for that of the run."""
        before = _within.set(account)
        try:
            yield
        finally:
            _within.reset(before)

    def may_wait(self, me: Emitter) -> bool:
        """Whether its requests may wait for their turn."""
        return self._found(me)[1]

    def account(self, me: Emitter) -> Account | None:
        """Where its requests are reserved; None where nothing is limited."""
        account = _within.get()
        if account is not None:
            return account
        meter, _ = self._found(me)
        return None if meter is None else meter.account

    def used(self, me: Emitter, model: str, tokens: TokenUsage, cost: float | None) -> UsageUpdate | None:
        """Count what a request has used; the totals of the run, if it was for one."""
        meter, _ = self._found(me)
        totals = None if meter is None else meter.count(model, tokens, cost)
        return totals if _beside.get() is None else None

    def _found(self, me: Emitter) -> tuple[Meter | None, bool]:
        meter = _beside.get()
        if meter is not None:
            return meter, True
        stream = getattr(me, "stream", None)
        return (None, True) if stream is None else self._runs.get(stream.run, (None, True))
