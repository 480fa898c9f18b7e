"""Errors as replies: what the vault has handed out is in none."""

from __future__ import annotations

import json

from callboard.actors.front.http.errors import refusal
from callboard.actors.io.handed_out import handed_out
from callboard.protocol.errors import UpstreamError


def test_a_reply_says_what_went_wrong_without_secrets() -> None:
    handed_out("supersecretvalue")
    answer = refusal(UpstreamError("it wrote to stderr: bad token supersecretvalue"), "1")
    assert json.loads(bytes(answer.body))["error"]["message"] == "it wrote to stderr: bad token [redacted]"
