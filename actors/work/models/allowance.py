"""What a provider lets us send, as pure code: no task, no clock, no I/O. `limiter` is the actor that goes by it.

What is known is kept to; what is not known is found out from refusals:

    max_concurrency                   so many requests at once
    requests_ and tokens_per_minute   a token bucket each, of what the settings or the headers of replies say
    cooldown                          after a refusal nothing goes out for a while: what `Retry-After` says, else a
                                      random time of up to 1, 2, 4, ... 60 seconds. It is only ever extended.
    window                            requests at once, once a refusal has shown that there are too many (AIMD): as many
                                      as were let through, one more for each full window of replies
    pace                              requests per second, once requests that had to queue were refused all the same:
                                      as many as were let through per second, a little more with time

A *round* is the time between two cooldowns. A thousand requests that were sent in one round and are all refused are one
refusal; it tells nothing about the next round. A refusal concerns the window where requests did not queue, and the pace
where they did: then it was not their number at a time that was too high.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import httpx

FIRST_COOLDOWN, LONGEST_COOLDOWN = 1.0, 60.0
"""Bounds in seconds of a random cooldown: after the first refusal, and after many in a row."""

BURST = 0.1
"""Share of what is allowed in a minute that may go out at once."""

SMOOTH = 0.1
"""Seconds' worth of requests that may go out at once where the pace was found out."""

GROWTH = 0.001
"""By what share a pace grows per second, for each of the seconds (up to 10) without a refusal."""

LESS = 0.9
"""What is left of a pace after a refusal."""

SHARE = 0.2
"""Weight of the newest figure in a moving average."""

MISSING = 2.0
"""Requests that have to be missing from the limit for the time until they are back to tell the rate."""

NARROWER = 0.5
"""What is left of the requests under way after a refusal, at most."""

ROUND = 0.5
"""Seconds that a round has to last to tell a pace."""

CALM = 60.0
"""Seconds without a refusal after which the window is opened again step by step."""


class Bucket:
    """A token bucket: `rate` per second, up to `capacity` saved up."""

    def __init__(self, rate: float, capacity: float, now: float) -> None:
        self.rate = rate
        self.capacity = max(1.0, capacity)
        self.level = self.capacity
        self._at = now

    def scale(self, factor: float) -> None:
        """Have so many times the rate, and what can be saved up of it."""
        self.rate *= factor
        self.capacity = max(1.0, self.capacity * factor)
        self.level = min(self.level, self.capacity)

    def wait(self, amount: float, now: float) -> float:
        """Seconds until that much is there; more than the capacity needs a full bucket."""
        if now > self._at:
            self.level = min(self.capacity, self.level + (now - self._at) * self.rate)
            self._at = now
        missing = min(amount, self.capacity) - self.level
        return 0.0 if missing <= 1e-9 else missing / self.rate

    def take(self, amount: float) -> None:
        """Take out, even if that leaves a debt."""
        self.level -= amount

    def empty(self, until: float) -> None:
        """Nothing is saved up before `until`."""
        self.level = min(self.level, 0.0)
        self._at = max(self._at, until)


class Pass(msgspec.Struct, frozen=True):
    """A request that went out: the number of it, how many were over by then, when, in which round, and about how many
    tokens it takes."""

    number: int
    over: int
    at: float
    round: int
    tokens: int


class Rules(msgspec.Struct, frozen=True):
    """What the settings say is allowed; None: nothing is known."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    max_concurrency: int | None = None


class Level(msgspec.Struct, frozen=True):
    """What the headers of a reply say: how much is allowed, what remains of it, seconds until all of it is back."""

    limit: float
    remaining: float
    reset: float | None = None


class Remaining(msgspec.Struct, frozen=True):
    """The same of requests and of tokens, as far as the headers say it."""

    requests: Level | None = None
    tokens: Level | None = None


class Allowance:
    """What may be sent to one model with one key. All times are in seconds on one clock.

    Args:
        rand: source of the random cooldowns, in [0, 1).

    Attributes:
        in_flight: requests under way.
        window: how many there may be.
        cooldown: until when nothing goes out.
        cooldowns: how many there were.
    """

    def __init__(self, rules: Rules, now: float, rand: Callable[[], float] = random.random) -> None:
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
        self._learned = self._learned_tokens = False  # what replies say counts for more than the settings
        self._rand = rand
        self._threshold = math.inf  # the window doubles up to here, then it grows by one
        self._counted = 0  # requests that the provider may have counted: those that it did not refuse
        self._over = 0  # those of them that are not under way any more
        self._latency = 0.0  # seconds, a moving average
        self._in_a_row = 0  # cooldowns without a reply in between
        self._this = _Round(now)
        self._last: _Round | None = None  # the one before, as long as nothing was learned from it
        self._grown = now

    @property
    def unlimited(self) -> bool:
        """Whether any number of requests may go out at any time."""
        return self.window == self._most == math.inf and self._requests is None and self._tokens is None

    def divide(self, among: int) -> None:
        """So many processes share what the settings allow: each has its part, and one request at once at least. What
        replies say is for all of them already."""
        factor, self._among = self._among / among, among
        if self._rules.max_concurrency is not None:
            self._most = max(1, self._rules.max_concurrency // among)
        if self._rules.requests_per_minute is not None and self._requests is not None and not self._learned:
            self._requests.scale(factor)
            self._known *= factor
        if self._rules.tokens_per_minute is not None and self._tokens is not None and not self._learned_tokens:
            self._tokens.scale(factor)

    def told(self, seconds: float, now: float) -> None:
        """Another process was refused, and is to wait that long: so are we."""
        self._extend(now + seconds)

    def wait(self, tokens: int, now: float) -> float:
        """Seconds until a request of about so many tokens may go out; infinite: not before one under way is over."""
        if now < self.cooldown:
            return self.cooldown - now
        if self._last is not None:
            self._settle(self._last, now)
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
        """A request goes out, whether or not it may; see `wait`."""
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
        """A request was answered, and has used so many tokens."""
        self.in_flight -= 1
        self._over += 1
        if self._tokens is not None:
            self._tokens.take(used - request.tokens)
        self._latency += (now - request.at - self._latency) * (SHARE if self._latency else 1.0)
        if request.round == self.cooldowns:
            self._in_a_row = 0
        if self.window < math.inf:
            calm = now > self.cooldown + CALM
            more = 1.0 / self.window if self.window >= self._threshold and not calm else 1.0
            self.window += more if self.window < self._threshold else min(more, now - self._grown)
            self._grown = now
            if calm and self.window > 2 * self._this.peak:
                self.window = math.inf
        if remaining is not None and remaining.requests is not None:
            self._learn(request, remaining.requests, now)
        if remaining is not None and remaining.tokens is not None:
            self._learn_tokens(remaining.tokens, now)

    def failed(self) -> None:
        """A request came to nothing for another reason than that there were too many, or was cancelled."""
        self.in_flight -= 1
        self._over += 1

    def refused(self, request: Pass, retry_after: float | None, now: float, *, queued: bool) -> None:
        """A request was refused because there were too many.

        Args:
            retry_after: seconds that the provider wants us to wait, if it said.
            queued: others wait for their turn, so what was known of the limits was used up.
        """
        self.in_flight -= 1
        self._counted -= 1
        if self._requests is not None:
            self._requests.take(-1)
        if self._tokens is not None:
            self._tokens.take(-request.tokens)
        if request.round == self.cooldowns:
            self._cool_down(retry_after, now, queued=queued)
        elif retry_after is not None:
            self._extend(now + retry_after)
        if self._last is not None and request.round == self.cooldowns - 1:
            self._last.refused += 1

    def _learn(self, request: Pass, said: Level, now: float) -> None:
        """How many requests remain, and how fast they come back: the limit is refilled steadily.

        The provider counted when this request arrived; those that were sent since are not in it.
        """
        self._learned = True
        bucket, rate = self._requests, said.limit / 60
        missing = said.limit - said.remaining - 0.5  # what remains is told as a whole number
        if said.reset and missing > MISSING:
            rate = missing / said.reset
            if bucket is not None and self._known < math.inf:
                rate = self._known + (rate - self._known) * SHARE
        elif bucket is not None and self._known < math.inf:
            rate = self._known
        if bucket is None or self._known == math.inf:
            bucket = self._requests = Bucket(rate, said.limit, now)
            self.window = math.inf
            self._last = None
        bucket.rate = self._known = rate
        bucket.capacity = max(1.0, said.limit)
        bucket.wait(0, now)
        # Requests overtake each other: any of those that were under way while this one was may not be in its count.
        others = self.in_flight + self._over - request.over - 1
        least = said.remaining - others
        most = said.remaining - max(0, self._counted - request.number) + rate * (now - request.at)
        bucket.level = min(max(bucket.level, least), most)

    def _learn_tokens(self, said: Level, now: float) -> None:
        """How many tokens remain of those of a minute; what later requests take is taken from our own count."""
        self._learned_tokens = True
        if self._tokens is None:
            self._tokens = Bucket(said.limit / 60, said.limit, now)
        self._tokens.wait(0, now)
        self._tokens.level = min(self._tokens.level, said.remaining)

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

    def _settle(self, last: _Round, now: float) -> None:
        """The cooldown is over: by now it is known what was let through in the round before it."""
        self._last = None
        self._grown = now
        let_through = last.sent - last.refused
        if self._requests is not None:
            if last.lasted >= ROUND:
                self._requests.rate *= LESS
            else:  # it was not the pace but how many went out in one go
                self._requests.capacity = max(1.0, self._requests.capacity / 2)
            # The cooldown has paid what was owed, except for what is under way.
            self._requests.level = max(self._requests.level, -float(self.in_flight))
            if self._known < math.inf:
                return
        if last.queued and last.lasted >= ROUND and let_through:
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
        """After a refusal the pace comes back bit by bit; one that was found out goes on to grow."""
        bucket = self._requests
        if bucket is not None and bucket.rate < self._known and now > self._grown:
            calm = now - self.cooldown
            bucket.rate = min(self._known, bucket.rate * (1 + GROWTH * min(calm, 10.0) * (now - self._grown)))
            self._grown = now


class _Round:
    """The time between two cooldowns: requests sent and refused, most of them under way at once."""

    __slots__ = ("began", "in_flight", "lasted", "peak", "queued", "refused", "sent")

    def __init__(self, began: float) -> None:
        self.began = began
        self.lasted = 0.0
        self.sent = self.refused = self.peak = 0
        self.in_flight = 0  # at its end
        self.queued = False  # at its end others waited for their turn


def _per_minute(most: float | None, now: float) -> Bucket | None:
    return None if most is None else Bucket(most / 60, most * BURST, now)


# --- headers ----------------------------------------------------------------------------------------------
#
#     x-ratelimit-limit-requests: 500         OpenAI, Groq and others; the time until all is back as `6m0s`, `20ms`
#     x-ratelimit-remaining-requests: 499
#     x-ratelimit-reset-requests: 120ms
#     anthropic-ratelimit-requests-limit, -remaining              Anthropic; per minute
#
# and the same with `tokens`. Anthropic's `-reset` is a date: of no use where clocks differ. https://platform.openai.com/docs/guides/rate-limits,
# https://docs.claude.com/en/api/rate-limits

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def remaining_in(headers: httpx.Headers) -> Remaining | None:
    """What remains, or None if the headers don't say."""
    if not any(b"ratelimit" in name.lower() for name, _ in headers.raw):
        return None
    if "x-ratelimit-remaining-requests" in headers or "x-ratelimit-remaining-tokens" in headers:
        names = "x-ratelimit-{what}-{of}"
    elif "anthropic-ratelimit-requests-remaining" in headers:
        names = "anthropic-ratelimit-{of}-{what}"
    else:
        return None
    return Remaining(_level(headers, names, "requests"), _level(headers, names, "tokens"))


def _level(headers: httpx.Headers, names: str, of: str) -> Level | None:
    try:
        limit = float(headers[names.format(what="limit", of=of)])
        remaining = float(headers[names.format(what="remaining", of=of)])
    except (KeyError, ValueError):
        return None
    if not 1 <= limit < 1e12 or not -1e12 < remaining <= limit:
        return None
    return Level(limit, max(0.0, remaining), _seconds(headers.get(names.format(what="reset", of=of), "")))


def _seconds(text: str) -> float | None:
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)
