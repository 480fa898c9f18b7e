"""One actor for each model and key, which says when a request may go out; `allowance` decides, here is who waits.

    gateway                             limiter of `openai:gpt-4o`
      Admit(ticket, run, tokens)   ->
                                   <-   Admitted, or Waiting(seconds, why): then
      Await(ticket)                ->
                                   <-   Admitted, when it is its turn
      Done(ticket, ...)            ->        it was answered, or came to nothing
      Refused(ticket, ...)         ->        there were too many: all wait, and this one asks again

A request that was refused is not a failed try: it gets in line again in the place of its age. Those of one run go out
first come, first served, and runs take turns, so that a map of a thousand items does not hold up a single question.

Where nothing is limited an `Admitted` is for good: `Gate`, which is the gateway's side, only tells that a request is
`Sent`, and does not ask for the next one until one of its requests is refused. Limiters live under a supervisor of the
kernel; what one knew is lost with a crash, and found out again.

Where other processes use the same key (`Gates.share`), they are told how long a provider wants us to wait, and we are
told by them; and what the settings allow is divided among them.
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
from .allowance import Allowance, Pass, Remaining, Rules

if TYPE_CHECKING:
    from ....supervisors import Ref
    from ....supervisors.actor import Actor
    from ....supervisors.ref import Request
    from ....supervisors.root import Root

Why = Literal["refused", "rate", "concurrency"]
"""Why a request waits: one was refused, so many per minute are allowed, so many at once are allowed."""

BOUND = 1 << 30
"""Mail of a limiter: every message belongs to a request that is under way, and there are no more than of those."""

NEWS = 0.5
"""Seconds by which an account has to rest longer than was told before, for that to be told."""

REFUSALS = frozenset({429, 529})
"""Statuses that say that there were too many requests; 503 says so, too, if it speaks of load."""


class Admit(msgspec.Struct, frozen=True):
    """May this request of an actor go out? The older it is, the lower its ticket. `tokens` is about what it takes."""

    ticket: int
    path: str
    tokens: int

    @property
    def run(self) -> str:
        """All below one actor at the top of the tree is one run."""
        return self.path.lstrip("/").partition("/")[0]


class Await(msgspec.Struct, frozen=True):
    """Tell me when it is the turn of this request."""

    ticket: int


class Sent(msgspec.Struct, frozen=True):
    """A request goes out that did not have to ask."""

    ticket: int
    tokens: int


class Done(msgspec.Struct, frozen=True):
    """A request is over. `used` tokens, or None: it came to nothing."""

    ticket: int
    used: int | None
    remaining: Remaining | None = None


class Refused(msgspec.Struct, frozen=True):
    """The provider has refused a request, since there were too many; seconds that it wants us to wait, if it said."""

    ticket: int
    retry_after: float | None


class Told(msgspec.Struct, frozen=True):
    """Another process was refused: nothing shall go out for so many seconds."""

    seconds: float


class Divide(msgspec.Struct, frozen=True):
    """So many processes share what the settings allow."""

    among: int


class Look(msgspec.Struct, frozen=True):
    """It is time for the next one."""


Message: TypeAlias = Admit | Await | Sent | Done | Refused | Told | Divide | Look


class Admitted(msgspec.Struct, frozen=True):
    """The request may go out; `unlimited`: so may all others, until one is refused."""

    unlimited: bool = False


class Waiting(msgspec.Struct, frozen=True):
    """It has to wait, and so many seconds at least; None: until another one is over."""

    seconds: float | None
    why: Why


def too_many(error: UpstreamError) -> bool:
    """Whether the provider has refused a request because there were too many."""
    return error.status in REFUSALS or (error.status == 503 and "overload" in str(error).lower())


async def limiter(me: Actor[Message], rules: Rules, rand: Callable[[], float]) -> None:
    """The actor."""
    line = _Line(me, rules, rand)
    async for message in me:
        match message:
            case Admit():
                line.admit(message)
            case Await():
                line.wait(message.ticket)
            case Sent():
                line.sent(message)
            case Done() | Refused():
                line.over(message)
                line.let_go()
            case Told():
                line.told(message.seconds)
            case Divide():
                line.divide(message.among)
                line.let_go()
            case Look():
                line.timed = False
                line.let_go()


class _Line:
    """Requests that wait: by run, the oldest first; the runs take turns."""

    def __init__(self, me: Actor[Message], rules: Rules, rand: Callable[[], float]) -> None:
        self._me = me
        self._allowance = Allowance(rules, trio.current_time(), rand)
        self._under_way: dict[int, Pass] = {}
        self._runs: OrderedDict[str, list[tuple[int, int]]] = OrderedDict()  # heaps of tickets and tokens
        self._asked: dict[int, Request | None] = {}  # of each ticket in the line, who awaits it
        self.timed = False  # a `Look` will come

    def admit(self, asked: Admit) -> None:
        request = self._me.take_request()
        if not request.waits:
            return
        now = trio.current_time()
        wait = self._allowance.wait(asked.tokens, now)
        if wait == 0.0 and not self._asked:
            self._under_way[asked.ticket] = self._allowance.send(asked.tokens, now)
            request.reply(Admitted(self._allowance.unlimited))
            return
        heapq.heappush(self._runs.setdefault(asked.run, []), (asked.ticket, asked.tokens))
        self._asked[asked.ticket] = None
        request.reply(Waiting(wait if wait < math.inf else None, self._why(wait, now)))

    def wait(self, ticket: int) -> None:
        request = self._me.take_request()
        if ticket in self._asked:
            self._asked[ticket] = request
            self.let_go()
        else:  # it stood in the line of a former life
            self._under_way[ticket] = self._allowance.send(0, trio.current_time())
            request.reply(Admitted())

    def sent(self, request: Sent) -> None:
        self._under_way[request.ticket] = self._allowance.send(request.tokens, trio.current_time())

    def over(self, request: Done | Refused) -> None:
        passed = self._under_way.pop(request.ticket, None)
        if passed is None:
            self._asked.pop(request.ticket, None)  # it has left the line, or is of a former life of ours
            return
        now = trio.current_time()
        if isinstance(request, Refused):
            self._allowance.refused(passed, request.retry_after, now, queued=bool(self._asked))
        elif request.used is None:
            self._allowance.failed()
        else:
            self._allowance.answered(passed, request.used, now, request.remaining)

    def told(self, seconds: float) -> None:
        self._allowance.told(seconds, trio.current_time())

    def divide(self, among: int) -> None:
        self._allowance.divide(among)

    def let_go(self) -> None:
        """Admit those that may go out now, and see to it that the next one is not forgotten."""
        now = trio.current_time()
        while self._runs:
            run, tickets = next(iter(self._runs.items()))
            ticket, tokens = tickets[0]
            if ticket in self._asked:
                request = self._asked[ticket]
                if request is None:
                    return  # its `Await` is on its way
                wait = self._allowance.wait(tokens, now)
                if wait > 0.0:
                    if wait < math.inf and not self.timed:
                        self.timed = True
                        self._me.tell_later(wait, Look())
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


class Gate:
    """The gateway's side of one limiter.

    Args:
        counts_tokens: tokens are limited, not only requests; replies may tell so later.
        on_refused: called with the seconds that the provider wants us to wait.
    """

    def __init__(
        self, ref: Ref[Message], *, counts_tokens: bool = False, on_refused: Callable[[float], None] | None = None
    ) -> None:
        self._ref = ref
        self._on_refused = on_refused
        self._counts_tokens = counts_tokens
        self._unlimited = False
        self._news = 0  # what was told since of limits

    async def admit(
        self, ticket: int, path: str, tokens: Callable[[], int], on_wait: Callable[[Waiting], None]
    ) -> None:
        """Wait until a request may go out. After this, `done` or `refused` has to be called.

        Where the limiter has crashed it goes out: a bug there must not stop every run.

        Args:
            ticket: unique among those of this model; the lower, the sooner it is its turn within its run.
            path: of the actor that it is for.
            tokens: about how many it takes; not called where tokens are not limited.
            on_wait: called when it has to wait; what it raises ends the wait.
        """
        if self._unlimited:
            self._ref.tell_nowait(Sent(ticket, 0))
            return
        answer: Admitted | Waiting = Admitted()
        news = self._news
        with contextlib.suppress(ActorError):
            answer = await self._ref.ask(Admit(ticket, path, tokens() if self._counts_tokens else 0))
        if isinstance(answer, Waiting):
            try:
                on_wait(answer)
                with contextlib.suppress(ActorError):
                    await self._ref.ask(Await(ticket))
            except BaseException:  # cancelled too: it must not stay in the line
                self._ref.tell_nowait(Done(ticket, None))
                raise
        elif news == self._news:  # else the answer may be older than what was told
            self._unlimited = answer.unlimited

    def done(self, ticket: int, used: int | None, remaining: Remaining | None = None) -> None:
        """A request is over; `used` tokens, or None: it came to nothing, or was cancelled."""
        if remaining is not None:
            self._counts_tokens = self._counts_tokens or remaining.tokens is not None
            self._is_limited()
        self._ref.tell_nowait(Done(ticket, used, remaining))

    def refused(self, ticket: int, retry_after: float | None) -> None:
        """A request was refused, since there were too many."""
        self._is_limited()
        self._ref.tell_nowait(Refused(ticket, retry_after))
        if retry_after is not None and self._on_refused is not None:
            self._on_refused(retry_after)

    def told(self, seconds: float) -> None:
        """Another process was refused, and is to wait that long."""
        self._is_limited()
        self._ref.tell_nowait(Told(seconds))

    def divide(self, among: int) -> None:
        """So many processes share what the settings allow."""
        self._is_limited()
        self._ref.tell_nowait(Divide(among))

    def _is_limited(self) -> None:
        self._unlimited = False
        self._news += 1


class Gates:
    """The limiters of a process, made when a model is first asked.

    Args:
        root: their supervisor is an actor of it.
        rand: source of random waits, in [0, 1).

    Attributes:
        limited: the settings limit a model that was asked, and that other processes may ask with the same key.
    """

    def __init__(self, root: Root, rand: Callable[[], float] = random.random) -> None:
        self._root = root
        self._rand = rand
        self._gates: dict[str, Gate] = {}
        self._shared: dict[str, list[Gate]] = {}  # by account
        self._until: dict[str, float] = {}
        self._tell: Callable[[str, float], None] | None = None
        self._among = 1
        self.limited = False
        self._tickets = 0
        self._supervisor = Supervisor(intensity=10)
        self._running: Ref | None = None
        self._opening = trio.Lock()

    def ticket(self) -> int:
        """The next in order, for a request to any model."""
        self._tickets += 1
        return self._tickets

    def get(self, model: str) -> Gate | None:
        """The one of this model, if it was asked before."""
        return self._gates.get(model)

    def share(self, tell: Callable[[str, float], None]) -> None:
        """Others use the same keys. `tell` is called with an account and for how many seconds it is to rest, once for
        all requests that are refused at about the same time."""
        self._tell = tell

    def told(self, account: str, seconds: float) -> None:
        """What another process has told of an account."""
        if self._is_news(account, seconds):
            for gate in self._shared.get(account, ()):
                gate.told(seconds)

    def divide(self, among: int) -> None:
        """So many processes share what the settings allow."""
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

    def _share(self, gate: Gate, account: str, rules: Rules) -> None:
        self._shared.setdefault(account, []).append(gate)
        self.limited = self.limited or rules != Rules()
        if self._among > 1:
            gate.divide(self._among)
        if (left := self._until.get(account, -math.inf) - trio.current_time()) > 0:
            gate.told(left)

    async def of(self, model: str, rules: Rules, account: str = "") -> Gate:
        """The one of this model, whose rules are those that it had when it was first asked.

        Args:
            account: the same for all who ask the same model with the same key; "" for one of this machine.
        """
        async with self._opening:
            if model not in self._gates:
                if self._running is None:
                    self._running = await self._root.start(self._supervisor, name="limiters", link=False)
                name = f"{len(self._gates) + 1}-{model.replace('/', '-')}"
                spec = ChildSpec(name=name, body=limiter, args=(rules, self._rand), bound=BOUND)
                ref = await self._supervisor.start_child(spec)
                gate = self._gates[model] = Gate(
                    ref,
                    counts_tokens=rules.tokens_per_minute is not None,
                    on_refused=partial(self._is_refused, account) if account else None,
                )
                if account:
                    self._share(gate, account, rules)
        return self._gates[model]
