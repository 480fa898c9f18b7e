"""Signatures for AWS, against the whole test suite that AWS publishes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from callboard.actors.work.models.aws.keys import AwsKeys, Signer

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
KEYS = AwsKeys("AKIDEXAMPLE", SECRET)
NOW = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
HOST = ("Host", "example.amazonaws.com")

SUITE = json.loads((Path(__file__).parents[4] / "fixtures/aws/signing_test_suite_v4.json").read_text())["cases"]
OF_S3 = {name for name, case in SUITE.items() if not case["context"]["normalize"]}
"""Paths that are signed as they are sent, as S3 alone has it."""


def parsed(request: str) -> tuple[str, str, list[tuple[str, str]], list[tuple[str, str]], bytes]:
    """Method, path, query, headers and body of a request as the suite writes it."""
    head, _, body = request.partition("\n\n")
    first, *lines = head.rstrip("\n").split("\n")
    method, target = first.removesuffix(" HTTP/1.1").split(" ", 1)
    path, _, query = target.partition("?")
    pairs = [part.partition("=")[::2] for part in query.split("&") if part]
    fields: list[tuple[str, str]] = []
    for line in lines:
        if line.startswith(" "):  # goes on with the one before
            fields[-1] = (fields[-1][0], f"{fields[-1][1]} {line}")
        else:
            name, _, value = line.partition(":")
            fields.append((name, value))
    return method, path, [(unquote(name), unquote(value)) for name, value in pairs], fields, body.encode()


def test_the_suite_is_whole() -> None:
    assert len(SUITE) == 38
    assert len(OF_S3) == 7


@pytest.mark.parametrize("name", sorted(SUITE.keys() - OF_S3))
def test_signatures_are_those_of_the_published_suite(name: str) -> None:
    case: dict[str, Any] = SUITE[name]
    context = case["context"]
    method, path, query, fields, body = parsed(case["request"])
    credentials = context["credentials"]
    token = "" if context.get("omit_session_token") else credentials.get("token", "")
    keys = AwsKeys(credentials["access_key_id"], credentials["secret_access_key"], token)
    if context["sign_body"]:
        fields.append(("x-amz-content-sha256", case["canonical"].rsplit("\n", 1)[1]))
    signer = Signer(keys, context["region"], context["service"])
    now = datetime.fromisoformat(context["timestamp"])
    headers = signer.headers(method, path, fields, body, query=query, now=now)
    assert headers["authorization"].endswith(f"Signature={case['signature']}")
    assert f"Authorization:{headers['authorization']}" in case["signed"]


def test_the_example_of_the_manual_is_signed_as_there() -> None:
    headers = Signer(KEYS, "us-east-1", "iam").headers(
        "GET",
        "/",
        (("Host", "iam.amazonaws.com"), ("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")),
        b"",
        query=(("Action", "ListUsers"), ("Version", "2010-05-08")),
        now=NOW,
    )
    assert headers["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date, "
        "Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
    )


def test_the_token_of_a_session_is_sent_and_signed() -> None:
    signer = Signer(AwsKeys("AKIDEXAMPLE", SECRET, "token"), "us-east-1", "service")
    headers = signer.headers("GET", "/", (HOST,), b"", now=NOW)
    assert headers["x-amz-security-token"] == "token"
    assert "SignedHeaders=host;x-amz-date;x-amz-security-token" in headers["authorization"]


def test_no_secret_is_shown() -> None:
    assert SECRET not in repr(Signer(AwsKeys("AKIDEXAMPLE", SECRET, "token"), "r", "s"))
