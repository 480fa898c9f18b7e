"""What a policy of retries means for an error."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.engine.workflow.agent_request import policy_of
from callboard.protocol.errors import ModelError, UpstreamError
from callboard.protocol.workflow.model import Retry


def refused(status: int | None, text: str = "no") -> ModelError:
    error = ModelError(text)
    error.status = status
    return error


@pytest.mark.parametrize(
    ("policy", "error", "again"),
    [
        ({}, UpstreamError("gone"), True),
        ({}, UpstreamError("busy", status=503), True),
        ({}, refused(400), False),
        ({"retry_on_status_codes": (400,)}, refused(400), True),
        ({"retry_on_status_codes": (400,)}, UpstreamError("busy", status=503), False),
        ({"retry_on_status_codes": (400,)}, UpstreamError("gone"), True),
        ({"retry_on_exception_types": ("openai.RateLimitError",)}, UpstreamError("x", status=429), True),
        ({"retry_on_exception_types": ("ratelimiterror",)}, UpstreamError("gone"), False),
        ({"retry_on_exception_types": ("APIConnectionError",)}, UpstreamError("gone"), True),
        ({"retry_on_exception_types": ("NotFoundError",)}, refused(404), True),
        ({"retry_on_error_substrings": ("Try Later",)}, refused(400, "please try later"), True),
        ({"non_retry_exception_types": ("RateLimitError",)}, UpstreamError("x", status=429), False),
        ({"non_retry_exception_types": ("InternalServerError",)}, UpstreamError("x", status=502), False),
        ({"non_retry_exception_types": ("RateLimitError",)}, UpstreamError("x", status=502), True),
    ],
)
def test_a_policy_says_what_may_pass(policy: dict[str, Any], error: ModelError, again: bool) -> None:
    assert policy_of(Retry(**policy)).retryable(error) is again


def test_a_policy_that_is_off_is_one_try() -> None:
    assert policy_of(Retry(enabled=False)).most == 1


def test_waits_stay_between_their_bounds_and_never_below_what_the_provider_asks_for() -> None:
    policy = policy_of(Retry(max_attempts=9_000, min_wait_seconds=2, max_wait_seconds=5))
    waits = [policy.wait(n, UpstreamError("x")) for n in (1, 2, 3, 50, 5000)]
    assert all(wait is not None and 2 <= wait <= 5 for wait in waits)
    asked = policy.wait(1, UpstreamError("x", retry_after=60.0))
    assert asked is not None
    assert 62 <= asked <= 65
    odd = policy_of(Retry(max_attempts=4, min_wait_seconds=2, max_wait_seconds=1))
    assert (odd.most, odd.wait(3, UpstreamError("x")), odd.wait(4, UpstreamError("x"))) == (4, 2, None)
