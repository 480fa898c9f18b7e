"""What a policy of retries means for an error."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.engine.workflow.agents.request import attempts_of
from callboard.protocol.errors import ModelError, UpstreamError
from callboard.protocol.workflow.agents import Retry


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
    assert attempts_of(Retry(**policy)).may_pass(error) is again


def test_a_policy_that_is_off_is_one_try() -> None:
    assert attempts_of(Retry(enabled=False)).most == 1
    attempts = attempts_of(Retry(max_attempts=4, min_wait_seconds=2, max_wait_seconds=1))
    assert (attempts.most, attempts.shortest, attempts.longest) == (4, 2, 2)
