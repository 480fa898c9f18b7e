"""What `Retry` decides about a request that failed."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.protocol.errors import ModelError, UpstreamError
from callboard.supervisors import Backoff, Retry

JITTERED = Backoff(first=0.5, most=30.0, jitter=1.0)


@given(attempt=st.integers(1, 20), asked=st.none() | st.floats(0, 80), seed=st.integers())
def test_waits_grow_are_bounded_and_never_shorter_than_asked(attempt: int, asked: float | None, seed: int) -> None:
    retry = Retry(most=100, backoff=JITTERED)
    wait = retry.wait(attempt, UpstreamError("busy", retry_after=asked), rand=random.Random(seed).random)
    least = asked or 0.0
    assert wait is not None
    assert least <= wait <= least + min(30.0, 0.5 * 2 ** (attempt - 1))


def test_there_are_so_many_tries_and_no_more() -> None:
    retry = Retry(most=3)
    assert [retry.wait(attempt, UpstreamError("busy")) for attempt in (1, 2, 3, 4)] == [0, 0, None, None]


def test_what_will_not_pass_is_not_tried_again() -> None:
    assert Retry().wait(1, ModelError("no such model")) is None
    assert Retry().wait(1, OSError("no such file")) is None
    assert Retry(retryable=lambda error: isinstance(error, OSError)).wait(1, OSError("reset")) == 0


@pytest.mark.parametrize(("asked", "left", "waits"), [(100, math.inf, True), (130, math.inf, False), (9, 9, False)])
def test_a_wait_beyond_all_patience_or_time_is_not_begun(asked: float, left: float, waits: bool) -> None:
    wait = Retry().wait(1, UpstreamError("busy", retry_after=asked), left=left)
    assert wait == (asked if waits else None)


@given(attempt=st.integers(1, 99), least=st.floats(0, 50), most=st.floats(0, 50), seed=st.integers())
def test_a_backoff_is_never_below_its_least(attempt: int, least: float, most: float, seed: int) -> None:
    seconds = Backoff(first=1.0, most=most, least=least, jitter=1.0).seconds(attempt, random.Random(seed).random)
    assert least <= seconds <= max(least, most)
