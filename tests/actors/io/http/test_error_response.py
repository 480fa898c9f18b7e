"""`WWW-Authenticate`, as the standard has it and as servers write it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cpu_time import slowness

from callboard.actors.io.http.headers import LONGEST_CHALLENGE, Challenge, challenge_of, challenges


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("Bearer", [Challenge("bearer")]),
        # RFC 9110, 11.6.1
        (
            'Basic realm="simple", Newauth realm="apps", type=1, title="Login to \\"apps\\""',
            [
                Challenge("basic", {"realm": "simple"}),
                Challenge("newauth", {"realm": "apps", "type": "1", "title": 'Login to "apps"'}),
            ],
        ),
        # RFC 9728, 5.1
        (
            'Bearer resource_metadata="https://resource.example.com/.well-known/oauth-protected-resource"',
            [
                Challenge(
                    "bearer",
                    {"resource_metadata": "https://resource.example.com/.well-known/oauth-protected-resource"},
                )
            ],
        ),
        # the specification of MCP, with its line breaks
        (
            'Bearer error="insufficient_scope",\n                         scope="files:write, x"',
            [Challenge("bearer", {"error": "insufficient_scope", "scope": "files:write, x"})],
        ),
        (
            "Negotiate YWJj==, Bearer scope=a",
            [Challenge("negotiate", {}, "YWJj=="), Challenge("bearer", {"scope": "a"})],
        ),
        ("bearer RESOURCE_metadata=https://x/y?z=1", [Challenge("bearer", {"resource_metadata": "https://x/y?z=1"})]),
        ('Bearer error="a" error_description="b"', [Challenge("bearer", {"error": "a", "error_description": "b"})]),
        ("Bearer realm = x , , scope = y", [Challenge("bearer", {"realm": "x", "scope": "y"})]),
        ('Bearer scope="a", scope="b"', [Challenge("bearer", {"scope": "a"})]),
        ('Bearer scope=""', [Challenge("bearer", {"scope": ""})]),
        ('scope="a"', []),
        ('Bearer scope="open, error=x', [Challenge("bearer", {"error": "x"})]),
        ("", []),
        (",,,", []),
    ],
)
def test_what_stands_in_a_header(header: str, found: list[Challenge]) -> None:
    assert challenges(header) == found


def test_of_several_the_one_that_says_most_counts() -> None:
    header = 'Basic realm="x", Bearer, Bearer error="invalid_token", scope="a"'
    assert challenge_of(header, "bearer") == Challenge("bearer", {"error": "invalid_token", "scope": "a"})
    assert challenge_of(header, "digest") is None


@given(st.text(alphabet=' ,="\\aB:/\n', max_size=200))
def test_any_text_can_be_read(header: str) -> None:
    for challenge in challenges(header):
        assert challenge.scheme == challenge.scheme.lower()


@pytest.mark.parametrize("piece", ['"', 'a="\\', "a ", '"a', "a,", '"\\"', "a=b ", " ", "a" * 99])
def test_a_long_header_takes_no_long_time(piece: str) -> None:
    begun = time.process_time()
    challenges("Bearer " + piece * LONGEST_CHALLENGE)
    assert time.process_time() - begun < 1.0 * slowness()
