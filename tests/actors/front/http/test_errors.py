"""Errors as replies: what the vault has handed out is in none."""

from __future__ import annotations

import json

import pytest

from callboard.actors.front.http.call import error_reply, refusal
from callboard.actors.io.secret_redaction import handed_out
from callboard.protocol.errors import UpstreamError


def test_a_reply_says_what_went_wrong_without_secrets() -> None:
    handed_out("supersecretvalue")
    answer = refusal(UpstreamError("it wrote to stderr: bad token supersecretvalue"), "1")
    assert json.loads(bytes(answer.body))["error"]["message"] == "it wrote to stderr: bad token [redacted]"


@pytest.mark.parametrize(
    ("status", "type"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (409, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "server_error"),
        (503, "server_error"),
    ],
)
def test_errors_have_the_type_that_clients_of_openai_know(status: int, type: str) -> None:
    shape = json.loads(bytes(error_reply(status, "c", "m", "r").body))["error"]
    assert (shape["type"], shape["param"]) == (type, None)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("the body: Expected `str`, got `int` - at `$.messages[0].role`", "messages[0].role"),
        ("tool_choice: 'a' is not one of `tools`", "tool_choice"),
        ("no field is named", None),
    ],
)
def test_a_refusal_names_the_field_that_is_wrong(message: str, param: str | None) -> None:
    assert json.loads(bytes(error_reply(400, "usage", message, "r").body))["error"]["param"] == param
    assert json.loads(bytes(error_reply(500, "error", message, "r").body))["error"]["param"] is None
