"""What the vault has handed out is found in all that is told, in every form, and nothing else is touched."""

from __future__ import annotations

import msgspec

from callboard.actors.io import handed_out
from callboard.actors.io.redact import Redactor
from callboard.protocol.errors import UpstreamError


def test_what_was_handed_out_is_found_as_it_is_in_json_in_a_url_and_line_by_line() -> None:
    handed_out.handed_out(
        'pass "word" 123', "a/b c+d=e", "-----BEGIN KEY-----\nMIIEvgIBADANBg\nkqhkiG9w0BAQEF\n-----END KEY-----"
    )
    for text in ('pass "word" 123', r"pass \"word\" 123", "a/b c+d=e", "a%2Fb%20c%2Bd%3De", "x kqhkiG9w0BAQEF y"):
        assert handed_out.PUT in handed_out.hidden(f"before {text} after")
        assert handed_out.PUT in Redactor().text(f"before {text} after")
        assert handed_out.PUT.encode() in Redactor().data(f"before {text} after".encode())
    assert handed_out.hidden("-----BEGIN KEY-----") == "-----BEGIN KEY-----"


def test_a_short_value_is_no_reason_to_change_other_words() -> None:
    handed_out.handed_out("ada", "1234567")
    assert handed_out.hidden("ada has 1234567 canadas") == "ada has 1234567 canadas"
    assert not handed_out.anything_handed_out()


class Inner(msgspec.Struct, frozen=True):
    text: str
    more: dict[str, object] = {}


def test_values_are_cleaned_however_deep_and_the_rest_stays_the_same_object() -> None:
    handed_out.handed_out("s3cret-text")
    clean = [Inner("x", {"a": (1, None, b"y")}), {"k": ["z"]}, 1.5]
    assert handed_out.without_secrets(clean) is clean
    dirty = [Inner("the s3cret-text", {"s3cret-text": ("s3cret-text", b"s3cret-text")}), clean[1]]
    found = handed_out.without_secrets(dirty)
    assert found == [Inner("the [redacted]", {"[redacted]": ("[redacted]", b"[redacted]")}), {"k": ["z"]}]
    assert found[1] is clean[1]


def test_an_error_loses_what_it_quotes_and_stays_the_same_error() -> None:
    handed_out.handed_out("s3cret-text")
    error = UpstreamError("401: bad key s3cret-text")
    handed_out.hide_in(error)
    assert str(error) == "401: bad key [redacted]"
