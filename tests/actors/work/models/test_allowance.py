"""What may be sent, found out or said: against a provider that is played in virtual time."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.work.models.limiter import (
    BURST,
    Allowance,
    AllowanceLevel,
    AllowanceRules,
    Pass,
    Remaining,
    remaining_in,
)


@dataclass
class Provider:
    """Lets `rate` requests through per second, `burst` at once, and never more than `at_once` at a time.

    Requests take up to `way` seconds to it, and overtake each other.
    """

    rate: float = math.inf
    burst: float = math.inf
    at_once: float = math.inf
    way: float = 0.0
    latency: float = 0.05
    retry_after: float | None = None
    tells: bool = False
    level: float = field(init=False)
    at: float = 0.0
    busy: int = 0
    refused: int = 0

    def __post_init__(self) -> None:
        self.level = self.burst

    def takes(self, now: float) -> bool:
        if self.rate < math.inf:
            self.level = min(self.burst, self.level + (now - self.at) * self.rate)
        self.at = now
        if self.level < 1 or self.busy >= self.at_once:
            self.refused += 1
            return False
        self.level -= 1
        self.busy += 1
        return True

    def says(self) -> Remaining | None:
        if not self.tells:
            return None
        return Remaining(
            AllowanceLevel(self.burst, math.floor(self.level), round((self.burst - self.level) / self.rate, 3))
        )

    def ideal(self, requests: int) -> float:
        """Seconds that this many take at least."""
        paced = (requests - self.burst) / self.rate if self.rate < math.inf else 0.0
        return self.latency + max(paced, (requests - self.at_once) / self.at_once * self.latency)


def played(provider: Provider, requests: int, rules: AllowanceRules = AllowanceRules()) -> tuple[float, Allowance]:  # noqa: B008 - frozen
    """The seconds that so many requests took, which were all wanted at the beginning."""
    chance = random.Random(1)
    allowance = Allowance(rules, 0.0, chance.random)
    to_send, done, now = requests, 0, 0.0
    number = itertools.count()
    coming: list[tuple[float, int, Pass, bool | None, Remaining | None]] = []  # None: it arrives at the provider
    while done < requests:
        while to_send and allowance.wait(10, now) <= 1e-9:
            to_send -= 1
            arrives = now + provider.way * chance.random()
            heapq.heappush(coming, (arrives, next(number), allowance.send(10, now), None, None))
        next_one = coming[0][0] if coming else math.inf
        wait = allowance.wait(10, now) if to_send else math.inf
        assert min(next_one, wait) < math.inf, "nothing would ever go out again"
        if now + wait < next_one:
            now += wait + 1e-9
            continue
        now, _, request, let_through, said = heapq.heappop(coming)
        if let_through is None:
            let_through = provider.takes(now)
            latency = provider.latency * chance.uniform(0.8, 1.2) if let_through else 0.002
            heapq.heappush(coming, (now + latency, next(number), request, let_through, provider.says()))
        elif let_through:
            done += 1
            provider.busy -= 1
            allowance.answered(request, 10, now, said)
        else:
            to_send += 1
            allowance.refused(request, provider.retry_after, now, queued=to_send > 1)
    return now, allowance


CASES = {
    "its replies tell": (Provider(50, 10, tells=True, retry_after=1.0), AllowanceRules(), 0.95),
    "its replies tell, and requests overtake each other": (
        Provider(50, 10, way=0.02, latency=0.01, tells=True, retry_after=1.0),
        AllowanceRules(),
        0.95,
    ),
    "its replies tell, and take long": (
        Provider(50, 10, latency=2.0, tells=True, retry_after=1.0),
        AllowanceRules(),
        0.9,
    ),
    "the settings say": (Provider(50, 10, retry_after=1.0), AllowanceRules(requests_per_minute=3000), 0.95),
    "the settings say, and replies take long": (
        Provider(50, 10, latency=2.0, retry_after=1.0),
        AllowanceRules(requests_per_minute=3000),
        0.95,
    ),
    "it says when": (Provider(50, 10, retry_after=1.0), AllowanceRules(), 0.8),
    "it says when, precisely": (Provider(50, 10, retry_after=0.05), AllowanceRules(), 0.9),
    "it says nothing": (Provider(50, 10), AllowanceRules(), 0.85),
    "it says nothing, and replies take long": (Provider(50, 10, latency=2.0), AllowanceRules(), 0.65),
    "so many at once, which the settings say": (
        Provider(at_once=20, latency=2.0),
        AllowanceRules(max_concurrency=20),
        0.95,
    ),
    "so many at once, which nothing says": (Provider(at_once=20, latency=2.0), AllowanceRules(), 0.75),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.sample(4)
def test_two_thousand_requests_at_once_go_through_nearly_as_fast_as_the_provider_lets_them(case: str) -> None:
    provider, rules, least = CASES[case]
    seconds, allowance = played(provider, 2000, rules)
    assert provider.ideal(2000) / seconds >= least
    assert provider.refused <= 2000 + 20 * allowance.cooldowns, "what is refused is not asked again and again"
    assert allowance.in_flight == 0


def test_where_nothing_is_limited_nothing_waits() -> None:
    provider = Provider(latency=2.0)
    seconds, allowance = played(provider, 2000)
    assert seconds <= 2.0 * 1.2
    assert allowance.unlimited


def test_a_cooldown_is_only_ever_extended() -> None:
    allowance = Allowance(AllowanceRules(), 0.0)
    first, second, third = (allowance.send(1, 0.0) for _ in range(3))
    allowance.refused(first, 10.0, 1.0, queued=False)
    assert allowance.wait(1, 1.0) == 10.0
    allowance.refused(second, 2.0, 2.0, queued=False)
    assert allowance.wait(1, 2.0) == 9.0
    allowance.refused(third, 20.0, 3.0, queued=False)
    assert allowance.wait(1, 3.0) == 20.0
    assert allowance.cooldowns == 1, "what was sent before it is no new reason"


def test_cooldowns_without_a_time_grow_up_to_a_minute_and_begin_anew_after_a_reply() -> None:
    allowance, waits, now = Allowance(AllowanceRules(), 0.0, lambda: 0.5), [], 0.0
    for _ in range(9):
        allowance.wait(1, now)
        allowance.refused(allowance.send(1, now), None, now, queued=False)
        waits.append(allowance.wait(1, now))
        now += waits[-1]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    allowance.answered(allowance.send(1, now), 1, now)
    allowance.refused(allowance.send(1, now), None, now, queued=False)
    assert allowance.wait(1, now) == 0.5


@given(
    per_minute=st.integers(6, 6000),
    gaps=st.lists(st.floats(0, 3), min_size=1, max_size=200),
)
def test_never_more_go_out_than_a_minute_allows(per_minute: int, gaps: list[float]) -> None:
    allowance, now, sent = Allowance(AllowanceRules(requests_per_minute=per_minute), 0.0), 0.0, []
    for gap in gaps:
        now += gap
        while allowance.wait(1, now) == 0.0 and len(sent) < 500:
            allowance.answered(allowance.send(1, now), 1, now)
            sent.append(now)
    burst = max(1.0, per_minute * BURST)
    for first, began in enumerate(sent):
        for last, at in enumerate(sent[first:], first):
            assert last - first + 1 <= burst + (at - began) * per_minute / 60 + 1e-3


def test_tokens_are_counted_as_they_were_used() -> None:
    allowance = Allowance(AllowanceRules(tokens_per_minute=6000), 0.0)
    request = allowance.send(600, 0.0)
    assert allowance.wait(100, 0.0) == pytest.approx(1.0)
    allowance.answered(request, 100, 0.0)
    assert allowance.wait(100, 0.0) == 0.0
    assert allowance.wait(10**9, 0.0) < 60, "what is more than a bucket holds goes out with a full one"


@pytest.mark.parametrize(
    ("headers", "remaining"),
    [
        (
            {
                "x-ratelimit-limit-requests": "60",
                "x-ratelimit-remaining-requests": "59",
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-limit-tokens": "150000",
                "x-ratelimit-remaining-tokens": "149984",
                "x-ratelimit-reset-tokens": "6m0s",
            },
            Remaining(AllowanceLevel(60, 59, 1.0), AllowanceLevel(150000, 149984, 360.0)),
        ),
        (
            {
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "1970-01-01T00:01:40Z",
            },
            Remaining(AllowanceLevel(50, 0)),
        ),
        (
            {
                "x-ratelimit-limit-requests": "14400",
                "x-ratelimit-remaining-requests": "14370",
                "x-ratelimit-reset-requests": "2m59.56s",
            },
            Remaining(AllowanceLevel(14400, 14370, pytest.approx(179.56))),
        ),
        ({"x-ratelimit-remaining-requests": "many"}, Remaining()),
        ({"x-ratelimit-limit-requests": "nan", "x-ratelimit-remaining-requests": "1"}, Remaining()),
        (
            {
                "x-ratelimit-limit-requests": "5",
                "x-ratelimit-remaining-requests": "4",
                "x-ratelimit-reset-requests": "soon",
            },
            Remaining(AllowanceLevel(5, 4)),
        ),
        ({"content-type": "text/plain"}, None),
    ],
)
def test_headers_of_replies_say_what_remains(headers: dict[str, str], remaining: Remaining | None) -> None:
    assert remaining_in({name.encode(): value.encode() for name, value in headers.items()}) == remaining
