"""Admission of requests to one model with one key: the rate-limit decisions, and the actor that queues requests.

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

`Allowance` decides, as pure code: no task, no clock, no I/O. Providers limit requests per minute, tokens per minute and
concurrent requests, and most publish none of these in a form that a client can read. Fixed waits after a refusal are
too long for small limits and too short for large ones. `Allowance` enforces the limits that it knows and derives the
others from refusals:

    max_concurrency                   bound of concurrent requests, from the settings
    requests_ and tokens_per_minute   one token bucket each, filled at the rate of the settings or of reply headers
    cooldown                          pause after a refusal: the `Retry-After` of the reply, else a random time of up to
                                      1, 2, 4, ... 60 seconds. It is only ever extended.
    window                            bound of concurrent requests, derived from a refusal (AIMD): the number that the
                                      provider let through, at most half of the peak. Each reply adds one up to
                                      `_threshold`, and one per full window of replies (at most one a second) above it.
    pace                              requests per second, derived when queued requests were refused all the same: the
                                      rate that the provider let through, which grows slowly

A *round* is the time between two cooldowns. If a thousand requests of one round are all refused, they count as one
refusal, and the next round starts unaffected. A refusal reduces the window if no request was queued. It sets the pace
if requests were queued: then the rate was too high, not the number of concurrent requests.

Invariants: every request passes `send` once, then exactly one of `answered`, `failed` and `refused`. `cooldown` never
moves backwards.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import random
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
import trio

from ....protocol.errors import ActorError, UpstreamError
from ....supervisors.supervisor import ChildSpec, Supervisor

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
    """Notice that a request is finished, or was cancelled in the queue.

    `used` is its tokens, or None if it failed or was cancelled. `remaining` is the quota that the reply states.
    """

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
    """Permission to send.

    If `unlimited`, it holds for all later requests, until one is refused here or in another process, a reply states
    limits, or the limits are divided among processes.
    """

    unlimited: bool = False


class MustWait(msgspec.Struct, frozen=True):
    """Reply to `Admit`: the request is queued.

    `seconds` is the minimum wait; 0 if only older queued requests are ahead, None until a request in flight finishes.
    """

    seconds: float | None
    why: Why


def too_many(error: UpstreamError) -> bool:
    """Return True if the error is a rate-limit or overload refusal: a status of `REFUSALS`, or 503 with "overload"."""
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
        """Wait until a request may be sent. After a normal return, the caller must call `done` or `refused`.

        If this raises or is cancelled, the ticket leaves the queue. If the limiter has crashed, return at once: a bug
        there must not stop every run.

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

        `notify` is called with an account and the seconds of a reply's `Retry-After`, if they extend the account's
        cooldown by at least `NEWS` seconds. A refusal without `Retry-After` is not shared.
        """
        self._tell = notify

    def extend_cooldown(self, account: str, seconds: float) -> None:
        """Apply a cooldown of `account` that another process reported.

        No effect if it ends less than `NEWS` seconds after the known cooldown.
        """
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


# --- decisions


FIRST_COOLDOWN, LONGEST_COOLDOWN = 1.0, 60.0
"""Bounds of a random cooldown, in seconds: after the first refusal, and after many in a row."""

BURST = 0.1
"""Share of a configured per-minute limit that may be sent at once."""

SMOOTH = 0.1
"""Capacity of a bucket with a derived pace, in seconds of that pace."""

GROWTH = 0.001
"""Relative growth of a pace per second, multiplied by the seconds (at most 10) since the last cooldown."""

LESS = 0.9
"""Factor applied to a pace after a refusal."""

SHARE = 0.2
"""Weight of the newest figure in a moving average."""

MISSING = 2.0
"""Minimum number of used requests in a reply header before its reset time is precise enough to derive a rate."""

NARROWER = 0.5
"""Upper bound of the new threshold after a refusal, as a share of the peak of concurrent requests."""

ROUND = 0.5
"""Minimum duration of a round, in seconds, for a pace to be derived from it."""

CALM = 60.0
"""Seconds without a refusal after which each reply widens the window by one (at most one a second) or removes it."""


class Bucket:
    """Token bucket: it gains `rate` tokens per second and holds at most `capacity`."""

    def __init__(self, rate: float, capacity: float, now: float) -> None:
        self.rate = rate
        self.capacity = max(1.0, capacity)
        self.level = self.capacity
        self._at = now

    def scale(self, factor: float) -> None:
        """Multiply the rate and the capacity by `factor`."""
        self.rate *= factor
        self.capacity = max(1.0, self.capacity * factor)
        self.level = min(self.level, self.capacity)

    def wait(self, amount: float, now: float) -> float:
        """Return the seconds until `amount` is available. An amount above the capacity needs a full bucket."""
        if now > self._at:
            self.level = min(self.capacity, self.level + (now - self._at) * self.rate)
            self._at = now
        missing = min(amount, self.capacity) - self.level
        # 1e-9: after a wait of exactly this many seconds, rounding may leave a tiny rest that would cause another wait.
        return 0.0 if missing <= 1e-9 else missing / self.rate

    def take(self, amount: float) -> None:
        """Remove `amount`. The level may become negative: a debt that `wait` includes."""
        self.level -= amount

    def empty(self, until: float) -> None:
        """Drop saved tokens, and gain none before `until`. A debt remains."""
        self.level = min(self.level, 0.0)
        self._at = max(self._at, until)


class Pass(msgspec.Struct, frozen=True):
    """Record of one sent request.

    Attributes:
        number: count of requests sent up to this one, without refused ones.
        over: count of requests that were finished when this one was sent.
        at: time of sending, in seconds.
        round: number of cooldowns before it was sent.
        tokens: estimate of the tokens that it uses.
    """

    number: int
    over: int
    at: float
    round: int
    tokens: int


class AllowanceRules(msgspec.Struct, frozen=True):
    """Rate limits from the settings: requests and tokens per minute, concurrent requests. None means unknown."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    max_concurrency: int | None = None


class AllowanceLevel(msgspec.Struct, frozen=True):
    """Quota in the headers of a reply: the limit, the remainder, and the seconds until it is full again."""

    limit: float
    remaining: float
    reset: float | None = None


class Remaining(msgspec.Struct, frozen=True):
    """Quotas of requests and of tokens, each None if the headers do not state it."""

    requests: AllowanceLevel | None = None
    tokens: AllowanceLevel | None = None


class Allowance:
    """Rate-limit state of one model with one key. All times are in seconds on one clock.

    Args:
        rand: source of the random cooldowns, in [0, 1).

    Attributes:
        in_flight: number of requests that were sent and are not finished.
        window: derived bound of `in_flight`; infinite if none is derived.
        cooldown: time before which nothing may be sent.
        cooldowns: number of cooldowns so far.
    """

    def __init__(self, rules: AllowanceRules, now: float, rand: Callable[[], float] = random.random) -> None:
        self.in_flight = 0
        self.window = math.inf
        self.cooldown = -math.inf
        self.cooldowns = 0
        self._rules = rules
        self._among = 1
        self._most = math.inf if rules.max_concurrency is None else rules.max_concurrency
        self._requests = _per_minute(rules.requests_per_minute, now)
        self._tokens = _per_minute(rules.tokens_per_minute, now)
        self._known = math.inf if self._requests is None else self._requests.rate
        """Requests per second that settings or headers allow; the bucket's rate is less after a refusal."""
        self._learned = self._learned_tokens = False  # headers of replies take precedence over the settings
        self._rand = rand
        self._threshold = math.inf  # slow start of TCP: one more per reply up to here, one per full window above
        self._counted = 0  # requests that the provider may have counted: all that it did not refuse
        self._over = 0  # the counted requests that are no longer in flight
        self._latency = 0.0  # seconds, a moving average
        self._in_a_row = 0  # cooldowns without a reply in between
        self._this = _Round(now)
        self._last: _Round | None = None  # the previous round, until `_end_cooldown` evaluates it
        self._grown = now

    @property
    def unlimited(self) -> bool:
        """Return True if any number of requests may be sent at any time."""
        return self.window == self._most == math.inf and self._requests is None and self._tokens is None

    def divide(self, among: int) -> None:
        """Divide the limits of the settings among `among` processes; each may send at least one request at a time.

        Limits that come from reply headers stay as they are: the provider already counts the requests of all processes.
        """
        factor, self._among = self._among / among, among
        if self._rules.max_concurrency is not None:
            self._most = max(1, self._rules.max_concurrency // among)
        if self._rules.requests_per_minute is not None and self._requests is not None and not self._learned:
            self._requests.scale(factor)
            self._known *= factor
        if self._rules.tokens_per_minute is not None and self._tokens is not None and not self._learned_tokens:
            self._tokens.scale(factor)

    def extend_cooldown(self, seconds: float, now: float) -> None:
        """Start or extend the cooldown, because another process was refused with a wait of `seconds`."""
        self._extend(now + seconds)

    def wait(self, tokens: int, now: float) -> float:
        """Return the seconds until a request of about `tokens` may be sent; 0 if now.

        The result is infinite if a request in flight has to finish first.
        """
        if now < self.cooldown:
            return self.cooldown - now
        if self._last is not None:
            self._end_cooldown(self._last, now)
        if self.in_flight + 1 > min(self._most, self.window):
            return math.inf
        wait = 0.0
        if self._requests is not None:
            self._grow(now)
            wait = self._requests.wait(1, now)
        if self._tokens is not None:
            wait = max(wait, self._tokens.wait(tokens, now))
        return wait

    def send(self, tokens: int, now: float) -> Pass:
        """Record a sent request. This does not check `wait`: some requests are sent without permission."""
        self.in_flight += 1
        self._counted += 1
        this = self._this
        this.sent += 1
        this.peak = max(this.peak, self.in_flight)
        if self._requests is not None:
            self._requests.take(1)
        if self._tokens is not None:
            self._tokens.take(tokens)
        return Pass(self._counted, self._over, now, self.cooldowns, tokens)

    def answered(self, request: Pass, used: int, now: float, remaining: Remaining | None = None) -> None:
        """Record a reply that used `used` tokens."""
        self.in_flight -= 1
        self._over += 1
        if self._tokens is not None:
            # `send` removed the estimate; correct it by the difference.
            self._tokens.take(used - request.tokens)
        self._latency += (now - request.at - self._latency) * (SHARE if self._latency else 1.0)
        if request.round == self.cooldowns:
            self._in_a_row = 0
        if self.window < math.inf:
            calm = now > self.cooldown + CALM
            # AIMD: below the threshold one more per reply, above it one per full window, at most one per second.
            more = 1.0 / self.window if self.window >= self._threshold and not calm else 1.0
            self.window += more if self.window < self._threshold else min(more, now - self._grown)
            self._grown = now
            # A window of twice the peak no longer limits anything, so drop it.
            if calm and self.window > 2 * self._this.peak:
                self.window = math.inf
        if remaining is not None and remaining.requests is not None:
            self._learn(request, remaining.requests, now)
        if remaining is not None and remaining.tokens is not None:
            self._learn_tokens(remaining.tokens, now)

    def failed(self) -> None:
        """Record a request that was cancelled, or that failed for a reason other than the rate limit."""
        self.in_flight -= 1
        self._over += 1

    def refused(self, request: Pass, retry_after: float | None, now: float, *, queued: bool) -> None:
        """Record a request that the provider refused with a rate-limit error.

        Args:
            retry_after: seconds of the reply's `Retry-After`, if it has one.
            queued: True if other requests are queued, so the known limits were already used up.
        """
        self.in_flight -= 1
        self._counted -= 1
        if self._requests is not None:
            self._requests.take(-1)
        if self._tokens is not None:
            self._tokens.take(-request.tokens)
        # Only the first refusal of a round starts a cooldown: the others were sent under the same wrong assumption.
        if request.round == self.cooldowns:
            self._cool_down(retry_after, now, queued=queued)
        elif retry_after is not None:
            self._extend(now + retry_after)
        if self._last is not None and request.round == self.cooldowns - 1:
            self._last.refused += 1

    def _learn(self, request: Pass, reported: AllowanceLevel, now: float) -> None:
        """Adopt the remaining requests and the refill rate of a reply's headers. Providers refill steadily.

        The provider counted when this request arrived; its count excludes requests that arrived later.
        """
        self._learned = True
        bucket, rate = self._requests, reported.limit / 60
        missing = reported.limit - reported.remaining - 0.5  # headers round the remainder to a whole number
        if reported.reset and missing > MISSING:
            rate = missing / reported.reset
            if bucket is not None and self._known < math.inf:
                rate = self._known + (rate - self._known) * SHARE
        elif bucket is not None and self._known < math.inf:
            rate = self._known
        if bucket is None or self._known == math.inf:
            bucket = self._requests = Bucket(rate, reported.limit, now)
            self.window = math.inf
            self._last = None
        bucket.rate = self._known = rate
        bucket.capacity = max(1.0, reported.limit)
        bucket.wait(0, now)
        # Requests overtake each other: the provider may have counted any request that was in flight together with
        # this one. So the true level is between the remainder minus all of them, and the remainder minus those sent
        # later plus the refill since. A local level inside these bounds remains.
        others = self.in_flight + self._over - request.over - 1
        least = reported.remaining - others
        most = reported.remaining - max(0, self._counted - request.number) + rate * (now - request.at)
        bucket.level = min(max(bucket.level, least), most)

    def _learn_tokens(self, reported: AllowanceLevel, now: float) -> None:
        """Adopt the remaining tokens of the minute from a reply's headers; they can only lower the local count."""
        self._learned_tokens = True
        if self._tokens is None:
            self._tokens = Bucket(reported.limit / 60, reported.limit, now)
        self._tokens.wait(0, now)
        self._tokens.level = min(self._tokens.level, reported.remaining)

    # --- after a refusal

    def _cool_down(self, retry_after: float | None, now: float, *, queued: bool) -> None:
        if retry_after is None:
            retry_after = min(LONGEST_COOLDOWN, FIRST_COOLDOWN * 2.0**self._in_a_row) * self._rand()
        self._in_a_row += 1
        self.cooldowns += 1
        self._last, self._this = self._this, _Round(now)
        self._last.lasted = now - self._last.began
        self._last.queued = queued
        self._last.in_flight = self.in_flight
        self._extend(now + retry_after)

    def _extend(self, until: float) -> None:
        self.cooldown = self._this.began = max(self.cooldown, until)
        if self._requests is not None:
            self._requests.empty(self.cooldown)

    def _end_cooldown(self, last: _Round, now: float) -> None:
        """Adjust window or pace after a cooldown, when most replies of the round before it have arrived."""
        self._last = None
        self._grown = now
        let_through = last.sent - last.refused
        if self._requests is not None:
            if last.lasted >= ROUND:
                self._requests.rate *= LESS
            else:  # a short round means that the burst was too large, not the pace
                self._requests.capacity = max(1.0, self._requests.capacity / 2)
            # The provider's bucket refilled during the cooldown, so only requests in flight remain as debt.
            self._requests.level = max(self._requests.level, -float(self.in_flight))
            if self._known < math.inf:
                return
        if last.queued and last.lasted >= ROUND and let_through:
            # Little's law (in flight / latency) gives a second estimate of the throughput; the higher one is used.
            rate = max(let_through / last.lasted, last.in_flight / self._latency if self._latency else 0.0)
            if self._requests is not None:
                rate = min(rate, self._requests.rate)
            self._requests = Bucket(rate, rate * SMOOTH, now)
            self._requests.empty(now)
            self.window = math.inf
        elif self._requests is None:
            self._threshold = max(1.0, NARROWER * min(last.peak, self.window))
            self.window = max(1.0, min(self._threshold, let_through))

    def _grow(self, now: float) -> None:
        """Raise the pace gradually after a refusal: up to the known limit, or without a bound if none is known."""
        bucket = self._requests
        if bucket is not None and bucket.rate < self._known and now > self._grown:
            calm = now - self.cooldown
            bucket.rate = min(self._known, bucket.rate * (1 + GROWTH * min(calm, 10.0) * (now - self._grown)))
            self._grown = now


class _Round:
    """Counts between two cooldowns: requests sent, requests refused, and the peak of requests in flight."""

    __slots__ = ("began", "in_flight", "lasted", "peak", "queued", "refused", "sent")

    def __init__(self, began: float) -> None:
        self.began = began
        self.lasted = 0.0
        self.sent = self.refused = self.peak = 0
        self.in_flight = 0  # at the end of the round
        self.queued = False  # True if requests were queued at the end of the round


def _per_minute(most: float | None, now: float) -> Bucket | None:
    return None if most is None else Bucket(most / 60, most * BURST, now)


# --- headers ----------------------------------------------------------------------------------------------
#
#     x-ratelimit-limit-requests: 500         OpenAI, Groq and others; the reset time as `6m0s`, `20ms`
#     x-ratelimit-remaining-requests: 499
#     x-ratelimit-reset-requests: 120ms
#     anthropic-ratelimit-requests-limit, -remaining              Anthropic; per minute
#
# and the same with `tokens`. Anthropic's `-reset` is a date and is ignored: the clocks of the two machines may differ.
# https://platform.openai.com/docs/guides/rate-limits, https://docs.claude.com/en/api/rate-limits

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def remaining_in(headers: Mapping[bytes, bytes]) -> Remaining | None:
    """Return the quotas in the headers (by lower-case name), or None if there are no such headers.

    A quota with missing or invalid numbers is None in the result.
    """
    if b"x-ratelimit-remaining-requests" in headers or b"x-ratelimit-remaining-tokens" in headers:
        names = "x-ratelimit-{what}-{of}"
    elif b"anthropic-ratelimit-requests-remaining" in headers:
        names = "anthropic-ratelimit-{of}-{what}"
    else:
        return None
    return Remaining(_level(headers, names, "requests"), _level(headers, names, "tokens"))


def _level(headers: Mapping[bytes, bytes], names: str, of: str) -> AllowanceLevel | None:
    def text(what: str) -> str:
        return headers.get(names.format(what=what, of=of).encode("ascii"), b"").decode("latin-1")

    try:
        limit = float(text("limit"))
        remaining = float(text("remaining"))
    except ValueError:
        return None
    # `float` accepts `nan` and `inf`; both fail these comparisons.
    if not 1 <= limit < 1e12 or not -1e12 < remaining <= limit:
        return None
    return AllowanceLevel(limit, max(0.0, remaining), _seconds(text("reset")))


def _seconds(text: str) -> float | None:
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)
