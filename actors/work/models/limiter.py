"""Request queue of one model and key: an actor that admits requests at the rate that `allowance` permits.

    gateway                             limiter of `openai:gpt-4o`
      Admit(ticket, path, tokens)  ->
                                   <-   Admitted, or MustWait(seconds, why); after MustWait:
      Await(ticket)                ->
                                   <-   Admitted, when the request may be sent
      RequestDone(ticket, ...)     ->        it was answered, failed or was cancelled
      RequestRefused(ticket, ...)  ->        rate limit: all requests wait, and this one asks again

A refused request is not a failed try: it enters the queue again at the position of its ticket. Requests of one run are
sent in the order of their tickets. Runs take turns, so a map of a thousand items does not delay a single question.

`Admit` and `Await` are two messages because the caller must learn the reason for a wait at once: it emits an event, or
it gives up. One `ask` that blocks until the turn comes could not report that.

If nothing is limited, one `Admitted` holds for all later requests. `LimiterGate`, the gateway's side, then sends only
`RequestSent`. It asks again after a refusal, or after a reply that states limits. Limiters run under a kernel
supervisor. A crash loses the derived limits; the restarted limiter derives them again.

If other processes use the same key (`Gates.share`), each reports the wait that a provider demands to the others. The
limits of the settings are divided among the processes.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import random
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
import trio

from ....protocol.errors import ActorError, UpstreamError
from ....supervisors.supervisor import ChildSpec, Supervisor
from .allowance import Allowance, AllowanceRules, Pass, Remaining

if TYPE_CHECKING:
    from ....supervisors import Ref
    from ....supervisors.actor import Actor
    from ....supervisors.ref import Request
    from ....supervisors.root import Root

Why = Literal["refused", "rate", "concurrency"]
"""Reason for a wait: cooldown after a refusal, limit per minute, or limit of concurrent requests."""

BOUND = 1 << 30
"""Mailbox bound of a limiter: practically none, since the requests in flight already bound its messages."""

NEWS = 0.5
"""Minimum extension of an account's cooldown, in seconds, that is reported to other processes."""

REFUSALS = frozenset({429, 529})
"""HTTP statuses of rate-limit errors. Status 503 is one too if its text mentions overload."""


class Admit(msgspec.Struct, frozen=True):
    """Request for permission to send. Older requests have lower tickets; `tokens` is an estimate."""

    ticket: int
    path: str
    tokens: int

    @property
    def run(self) -> str:
        """Name of the top-level actor of `path`: everything below it is one run."""
        return self.path.lstrip("/").partition("/")[0]


class Await(msgspec.Struct, frozen=True):
    """Request for a reply when the queued request may be sent."""

    ticket: int


class RequestSent(msgspec.Struct, frozen=True):
    """Notice that a request is sent without `Admit`, because nothing is limited."""

    ticket: int
    tokens: int


class RequestDone(msgspec.Struct, frozen=True):
    """Notice that a request is finished. `used` is its tokens, or None if it failed or was cancelled."""

    ticket: int
    used: int | None
    remaining: Remaining | None = None


class RequestRefused(msgspec.Struct, frozen=True):
    """Notice of a rate-limit refusal. `retry_after` is the wait in seconds that the provider demands, if any."""

    ticket: int
    retry_after: float | None


class OtherProcessRefused(msgspec.Struct, frozen=True):
    """Notice that another process was refused: send nothing for `seconds`."""

    seconds: float


class Divide(msgspec.Struct, frozen=True):
    """Notice that `among` processes share the limits of the settings."""

    among: int


class CheckWaiting(msgspec.Struct, frozen=True):
    """Timer message: check whether the next queued request may be sent."""


Message: TypeAlias = (
    Admit | Await | RequestSent | RequestDone | RequestRefused | OtherProcessRefused | Divide | CheckWaiting
)


class Admitted(msgspec.Struct, frozen=True):
    """Permission to send. If `unlimited`, it holds for all requests until one is refused."""

    unlimited: bool = False


class MustWait(msgspec.Struct, frozen=True):
    """Reply to `Admit`: the request is queued for at least `seconds`, or, if None, until another one finishes."""

    seconds: float | None
    why: Why


def too_many(error: UpstreamError) -> bool:
    """Return True if the error is a rate-limit or overload refusal."""
    return error.status in REFUSALS or (error.status == 503 and "overload" in str(error).lower())


async def limiter(me: Actor[Message], rules: AllowanceRules, rand: Callable[[], float]) -> None:
    """Run the limiter actor of one model and key.

    Args:
        rules: limits from the settings.
        rand: source of random cooldowns, in [0, 1).
    """
    line = _Line(me, rules, rand)
    async for message in me:
        match message:
            case Admit():
                line.admit(message)
            case Await():
                line.wait(message.ticket)
            case RequestSent():
                line.sent(message)
            case RequestDone() | RequestRefused():
                line.over(message)
                line.let_go()
            case OtherProcessRefused():
                line.extend_cooldown(message.seconds)
            case Divide():
                line.divide(message.among)
                line.let_go()
            case CheckWaiting():
                line.timed = False
                line.let_go()


class _Line:
    """Queued requests: one heap of tickets per run, and a rotation of the runs."""

    def __init__(self, me: Actor[Message], rules: AllowanceRules, rand: Callable[[], float]) -> None:
        self._me = me
        self._now = trio.lowlevel.current_clock().current_time  # saves two calls of `trio.current_time` per message
        self._allowance = Allowance(rules, self._now(), rand)
        self._under_way: dict[int, Pass] = {}
        self._runs: OrderedDict[str, list[tuple[int, int]]] = OrderedDict()  # heaps of tickets and tokens
        self._asked: dict[int, Request | None] = {}  # queued tickets, with the open `Await` request of each
        self.timed = False  # True if a `CheckWaiting` is scheduled

    def admit(self, asked: Admit) -> None:
        request = self._me.take_request()
        if not request.waits:  # the caller was cancelled: a queued ticket would block the run's later ones
            return
        now = self._now()
        wait = self._allowance.wait(asked.tokens, now)
        # A new request must not overtake the queue, even if the allowance permits it now.
        if wait == 0.0 and not self._asked:
            self._under_way[asked.ticket] = self._allowance.send(asked.tokens, now)
            request.reply(Admitted(self._allowance.unlimited))
            return
        heapq.heappush(self._runs.setdefault(asked.run, []), (asked.ticket, asked.tokens))
        self._asked[asked.ticket] = None
        request.reply(MustWait(wait if wait < math.inf else None, self._why(wait, now)))

    def wait(self, ticket: int) -> None:
        request = self._me.take_request()
        if ticket in self._asked:
            self._asked[ticket] = request
            self.let_go()
        else:  # queued before this limiter crashed and restarted: let it pass, its place in the queue is lost
            self._under_way[ticket] = self._allowance.send(0, self._now())
            request.reply(Admitted())

    def sent(self, request: RequestSent) -> None:
        self._under_way[request.ticket] = self._allowance.send(request.tokens, self._now())

    def over(self, request: RequestDone | RequestRefused) -> None:
        passed = self._under_way.pop(request.ticket, None)
        if passed is None:
            self._asked.pop(request.ticket, None)  # cancelled in the queue, or sent before this limiter restarted
            return
        now = self._now()
        if isinstance(request, RequestRefused):
            self._allowance.refused(passed, request.retry_after, now, queued=bool(self._asked))
        elif request.used is None:
            self._allowance.failed()
        else:
            self._allowance.answered(passed, request.used, now, request.remaining)

    def extend_cooldown(self, seconds: float) -> None:
        self._allowance.extend_cooldown(seconds, self._now())

    def divide(self, among: int) -> None:
        self._allowance.divide(among)

    def let_go(self) -> None:
        """Admit all requests that may be sent now, and schedule a `CheckWaiting` for the next one."""
        now = self._now()
        while self._runs:
            run, tickets = next(iter(self._runs.items()))
            ticket, tokens = tickets[0]
            if ticket in self._asked:
                request = self._asked[ticket]
                if request is None:
                    return  # its `Await` is about to arrive; `wait` calls this method again
                wait = self._allowance.wait(tokens, now)
                if wait > 0.0:
                    # An infinite wait needs no timer: it ends with `RequestDone` or `RequestRefused`.
                    if wait < math.inf and not self.timed:
                        self.timed = True
                        self._me.tell_later(wait, CheckWaiting())
                    return
                del self._asked[ticket]
                if request.waits:
                    self._under_way[ticket] = self._allowance.send(tokens, now)
                    request.reply(Admitted())
            heapq.heappop(tickets)
            if tickets:
                self._runs.move_to_end(run)
            else:
                del self._runs[run]

    def _why(self, wait: float, now: float) -> Why:
        if now < self._allowance.cooldown:
            return "refused"
        return "concurrency" if wait == math.inf else "rate"


class LimiterGate:
    """Gateway's side of one limiter.

    Args:
        counts_tokens: True if tokens are limited, not only requests. Headers of a reply may set this later.
        on_refused: called with the wait in seconds that the provider demands.
    """

    def __init__(
        self, ref: Ref[Message], *, counts_tokens: bool = False, on_refused: Callable[[float], None] | None = None
    ) -> None:
        self._ref = ref
        self._on_refused = on_refused
        self._counts_tokens = counts_tokens
        self._unlimited = False
        self._news = 0  # number of limits learned so far, to detect an outdated `Admitted`

    async def admit(
        self, ticket: int, path: str, tokens: Callable[[], int], on_wait: Callable[[MustWait], None]
    ) -> None:
        """Wait until a request may be sent. The caller must call `done` or `refused` afterwards.

        If the limiter has crashed, return at once: a bug there must not stop every run.

        Args:
            ticket: number unique among the requests of this model; within a run, lower tickets are sent first.
            path: path of the requesting actor.
            tokens: returns an estimate of the request's tokens; not called if tokens are not limited.
            on_wait: called if the request has to wait. An exception that it raises ends the wait.
        """
        if self._unlimited:
            self._ref.tell_nowait(RequestSent(ticket, 0))
            return
        answer: Admitted | MustWait = Admitted()
        news = self._news
        with contextlib.suppress(ActorError):
            answer = await self._ref.ask(Admit(ticket, path, tokens() if self._counts_tokens else 0))
        if isinstance(answer, MustWait):
            try:
                on_wait(answer)
                with contextlib.suppress(ActorError):
                    await self._ref.ask(Await(ticket))
            except BaseException:  # includes cancellation: the ticket must not stay in the queue
                self._ref.tell_nowait(RequestDone(ticket, None))
                raise
        elif news == self._news:  # else a limit was learned during the `ask`, and the answer may be outdated
            self._unlimited = answer.unlimited

    def done(self, ticket: int, used: int | None, remaining: Remaining | None = None) -> None:
        """Report a finished request to the limiter. `used` is its tokens, or None if it failed or was cancelled."""
        if remaining is not None:
            self._counts_tokens = self._counts_tokens or remaining.tokens is not None
            self._is_limited()
        self._ref.tell_nowait(RequestDone(ticket, used, remaining))

    def refused(self, ticket: int, retry_after: float | None) -> None:
        """Report a rate-limit refusal to the limiter, and to other processes through `on_refused`."""
        self._is_limited()
        self._ref.tell_nowait(RequestRefused(ticket, retry_after))
        if retry_after is not None and self._on_refused is not None:
            self._on_refused(retry_after)

    def extend_cooldown(self, seconds: float) -> None:
        """Report a refusal in another process, with a wait of `seconds`."""
        self._is_limited()
        self._ref.tell_nowait(OtherProcessRefused(seconds))

    def divide(self, among: int) -> None:
        """Divide the limits of the settings among `among` processes."""
        self._is_limited()
        self._ref.tell_nowait(Divide(among))

    def _is_limited(self) -> None:
        self._unlimited = False
        self._news += 1


class Gates:
    """Limiters of a process. Each is started with the first request to its model.

    Args:
        root: actor tree under which the supervisor of the limiters runs.
        rand: source of random waits, in [0, 1).

    Attributes:
        limited: True if the settings limit a model that is in use and whose key other processes may share.
    """

    def __init__(self, root: Root, rand: Callable[[], float] = random.random) -> None:
        self._root = root
        self._rand = rand
        self._gates: dict[str, LimiterGate] = {}
        self._shared: dict[str, list[LimiterGate]] = {}  # by account
        self._until: dict[str, float] = {}
        self._tell: Callable[[str, float], None] | None = None
        self._among = 1
        self.limited: bool = False
        self._tickets = 0
        self._supervisor = Supervisor(intensity=10)
        self._running: Ref | None = None
        self._opening = trio.Lock()

    def ticket(self) -> int:
        """Return the next ticket, unique across all models of the process."""
        self._tickets += 1
        return self._tickets

    def get(self, model: str) -> LimiterGate | None:
        """Return the gate of `model`, or None before its first request."""
        return self._gates.get(model)

    def share(self, notify: Callable[[str, float], None]) -> None:
        """Share refusals with other processes that use the same keys.

        `notify` is called with an account and its cooldown in seconds, once for requests refused at about the same
        time.
        """
        self._tell = notify

    def extend_cooldown(self, account: str, seconds: float) -> None:
        """Apply the cooldown of `account` that another process reported."""
        if self._is_news(account, seconds):
            for gate in self._shared.get(account, ()):
                gate.extend_cooldown(seconds)

    def divide(self, among: int) -> None:
        """Divide the limits of the settings among `among` processes, for models with a shared account."""
        if among != self._among:
            self._among = among
            for gates in self._shared.values():
                for gate in gates:
                    gate.divide(among)

    def _is_news(self, account: str, seconds: float) -> bool:
        until = trio.current_time() + seconds
        if until < self._until.get(account, -math.inf) + NEWS:
            return False
        self._until[account] = until
        return True

    def _is_refused(self, account: str, seconds: float) -> None:
        if self._tell is not None and self._is_news(account, seconds):
            self._tell(account, seconds)

    def _share(self, gate: LimiterGate, account: str, rules: AllowanceRules) -> None:
        self._shared.setdefault(account, []).append(gate)
        self.limited = self.limited or rules != AllowanceRules()
        if self._among > 1:
            gate.divide(self._among)
        if (seconds := self._until.get(account, -math.inf) - trio.current_time()) > 0:
            gate.extend_cooldown(seconds)

    async def of(self, model: str, rules: AllowanceRules, account: str = "") -> LimiterGate:
        """Return the gate of `model`; start its limiter with `rules` if this is the first request.

        Args:
            account: name equal in all processes that use the same model and key; "" for a model of this machine.
        """
        async with self._opening:  # starting a child takes several steps: two callers must not start two limiters
            if model not in self._gates:
                if self._running is None:
                    self._running = await self._root.start(self._supervisor, name="limiters", link=False)
                name = f"{len(self._gates) + 1}-{model.replace('/', '-')}"
                spec = ChildSpec(name=name, body=limiter, args=(rules, self._rand), bound=BOUND)
                ref = await self._supervisor.start_child(spec)
                gate = self._gates[model] = LimiterGate(
                    ref,
                    counts_tokens=rules.tokens_per_minute is not None,
                    on_refused=partial(self._is_refused, account) if account else None,
                )
                if account:
                    self._share(gate, account, rules)
        return self._gates[model]
