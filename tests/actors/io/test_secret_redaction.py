"""What the vault has handed out is found in all that is told, in every form, and nothing else is touched."""

from __future__ import annotations

import base64
import html
import json
import random
import string
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.planted_secrets import Planted

from callboard.actors.io import secret_redaction
from callboard.actors.io.http import headers
from callboard.actors.io.http.transport import SimpleResponse
from callboard.actors.io.oauth.authorization import printable
from callboard.actors.io.secret_redaction import Redactor
from callboard.actors.work.mcp.links import texts as mcp_texts
from callboard.actors.work.tools.builtin import commands
from callboard.actors.work.tools.files import call_process
from callboard.actors.work.tools.tool import shortened
from callboard.protocol.errors import UpstreamError
from callboard.supervisors.pipes import Tail


def test_what_was_handed_out_is_found_as_it_is_in_json_in_a_url_and_line_by_line() -> None:
    secret_redaction.handed_out(
        'pass "word" 123', "a/b c+d=e", "-----BEGIN KEY-----\nMIIEvgIBADANBg\nkqhkiG9w0BAQEF\n-----END KEY-----"
    )
    for text in ('pass "word" 123', r"pass \"word\" 123", "a/b c+d=e", "a%2Fb%20c%2Bd%3De", "x kqhkiG9w0BAQEF y"):
        assert secret_redaction.PUT in secret_redaction.hidden(f"before {text} after")
        assert secret_redaction.PUT in Redactor().text(f"before {text} after")
        assert secret_redaction.PUT.encode() in Redactor().data(f"before {text} after".encode())
    assert secret_redaction.hidden("-----BEGIN KEY-----") == "-----BEGIN KEY-----"


def test_a_lookup_of_what_is_known_adds_nothing() -> None:
    secret_redaction.handed_out('first "line"\nsecond line ü')
    known = secret_redaction._HANDED.texts
    for number in range(20):
        secret_redaction.handed_out('first "line"\nsecond line ü', f"another value {number}")
    assert set(known) <= set(secret_redaction._HANDED.texts)
    assert max(map(len, secret_redaction._HANDED.texts)) == max(map(len, known))
    assert (
        len(secret_redaction._HANDED.texts) <= len(known) + (3 + 3) * 20
    )  # as they are, in a URL, in a form; in base64


def test_json_that_keeps_letters_as_they_are_shows_nothing_either() -> None:
    secret = 'first "line"\nsecond line ü'
    secret_redaction.handed_out(secret)
    for text in (json.dumps(secret), msgspec.json.encode(secret).decode()):
        assert secret_redaction.hidden(text) == f'"{secret_redaction.PUT}"'


def test_what_stands_in_a_content_is_told_by_all_its_names_in_whatever_form() -> None:
    secret_redaction.handed_out('pass "word" 123', name="FIRST")
    secret_redaction.handed_out('pass "word" 123', name="SAME")
    secret_redaction.handed_out("another-secret", name="SECOND")
    secret_redaction.handed_out("without-a-name")
    assert secret_redaction.names_in(b"nothing of it") == ()
    assert secret_redaction.names_in(json.dumps('x pass "word" 123').encode()) == ("FIRST", "SAME")
    both = base64.b64encode(b"x another-secret y") + b" without-a-name"
    assert secret_redaction.names_in(both) == ("", "SECOND")


def test_threads_that_add_at_once_lose_nothing() -> None:
    secrets = [[f"secret-{thread}-{number}" for number in range(100)] for thread in range(8)]
    threads = [threading.Thread(target=secret_redaction.handed_out, args=each) for each in secrets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (
        secret_redaction.hidden(" ".join(secret for each in secrets for secret in each)).split()
        == [secret_redaction.PUT] * 800
    )


def test_of_several_lines_those_that_are_no_secrets_stay_as_they_are() -> None:
    secret_redaction.handed_out(
        "[default]\nregion = eu-west-1\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\n"
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY\n",
        '{\n  "type": "service_account",\n  "auth_uri": "https://accounts.example.com/o/oauth2/auth",\n'
        '  "private_key_id": "0123456789abcdef0123456789abcdef"\n}',
        "https://anna:pass-word@db.example.com/main\nplain words on a line of their own\n",
    )
    for text in (
        "[default]",
        "region = eu-west-1",
        "aws_secret_access_key",
        '"type": "service_account",',
        "https://accounts.example.com/o/oauth2/auth",
        "plain words on a line of their own",
    ):
        assert secret_redaction.hidden(text) == text
    for secret in (
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        "0123456789abcdef0123456789abcdef",
        "https://anna:pass-word@db.example.com/main",
    ):
        assert secret_redaction.hidden(f"x={secret}") == f"x={secret_redaction.PUT}"


def test_a_short_value_is_no_reason_to_change_other_words() -> None:
    secret_redaction.handed_out("ada", "1234567")
    assert secret_redaction.hidden("ada has 1234567 canadas") == "ada has 1234567 canadas"
    assert not secret_redaction.anything_handed_out()


class Inner(msgspec.Struct, frozen=True):
    text: str
    more: dict[str, object] = {}


def test_values_are_cleaned_however_deep_and_the_rest_stays_the_same_object() -> None:
    secret_redaction.handed_out("s3cret-text")
    clean = [Inner("x", {"a": (1, None, b"y")}), {"k": ["z"]}, 1.5]
    assert secret_redaction.without_secrets(clean) is clean
    dirty = [Inner("the s3cret-text", {"s3cret-text": ("s3cret-text", b"s3cret-text")}), clean[1]]
    found = secret_redaction.without_secrets(dirty)
    assert found == [Inner("the [redacted]", {"[redacted]": ("[redacted]", b"[redacted]")}), {"k": ["z"]}]
    assert found[1] is clean[1]


def test_an_error_loses_what_it_quotes_and_stays_the_same_error() -> None:
    secret_redaction.handed_out("s3cret-text")
    error = UpstreamError("401: bad key s3cret-text")
    secret_redaction.hide_in(error)
    assert str(error) == "401: bad key [redacted]"


def test_the_notes_of_an_error_lose_it_as_well() -> None:
    secret_redaction.handed_out("s3cret-text")
    error = UpstreamError("401")
    error.add_note("with the key s3cret-text")
    secret_redaction.hide_in(error)
    assert error.__notes__ == ["with the key [redacted]"]


@pytest.mark.parametrize("around", range(4))
def test_base64_shows_nothing_wherever_a_secret_begins_in_what_was_encoded(around: int) -> None:
    secret = "a?>secret~~of/the+vault"
    secret_redaction.handed_out(secret)
    planted = Planted(IT=secret)
    data = f"{'x' * around}{secret}{'y' * around}".encode()
    for encoded in (base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()):
        assert planted.found(encoded)
        assert planted.found(secret_redaction.hidden(f"before {encoded} after")) == []


def test_json_in_json_in_json_shows_nothing() -> None:
    secret = 'a "quoted\\ secret" \u00fc'
    secret_redaction.handed_out(secret)
    text = secret
    for _ in range(3):
        text = json.dumps({"line": text})
        assert secret_redaction.PUT in secret_redaction.hidden(text)
        assert "quoted" not in secret_redaction.hidden(text)


SECRETS = ("a-secret-that-is-long", "a-secret-that-is-other", "-secret-of-mine")


@given(
    said=st.lists(st.sampled_from([*SECRETS, "a-secret-", "that", "-", " words ", "a", "\n"]), max_size=12).map(
        "".join
    ),
    cuts=st.lists(st.integers(0, 120), max_size=20),
)
def test_pieces_tell_what_the_whole_text_tells(said: str, cuts: list[int]) -> None:
    secret_redaction._HANDED = secret_redaction.SecretTexts()  # put back by the fixture of all tests
    secret_redaction.handed_out(*SECRETS)
    streamed = secret_redaction.Streamed()
    places = sorted({0, len(said), *(cut for cut in cuts if cut < len(said))})
    told = [streamed.next(said[a:b]) for a, b in pairwise(places)]
    assert "".join([*told, streamed.rest()]) == secret_redaction.hidden(said)
    assert not any(secret in "".join(told) for secret in SECRETS)


def test_pieces_wait_only_where_a_secret_may_have_begun() -> None:
    streamed = secret_redaction.Streamed()
    assert streamed.next("nothing is known yet: a-sec") == "nothing is known yet: a-sec"
    secret_redaction.handed_out(*SECRETS)
    pieces = ("good words", " a-", "sec", "ond thought.", " a-secret-that-is-lo", "ng!")
    told = [streamed.next(piece) for piece in pieces]
    assert told == ["good words", " ", "", "a-second thought.", " ", f"{secret_redaction.PUT}!"]
    assert streamed.rest() == ""


def _go(text: str) -> str:
    return html.escape(text, quote=False).replace('"', "&#34;").replace("'", "&#39;")


WRITERS: dict[str, Callable[[str], str]] = {
    "html": html.escape,
    "html text": lambda text: html.escape(text, quote=False),
    "html of Go": _go,
    "html of PHP": lambda text: html.escape(text).replace("&#x27;", "&#039;"),
    "xml attribute": lambda text: quoteattr(text)[1:-1],
    "json of Go": lambda text: (
        json.dumps(text, ensure_ascii=False)[1:-1]
        .replace("&", "\\u0026")
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
    ),
    "json of PHP": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "html in json": lambda text: json.dumps(html.escape(text))[1:-1],
    "url": lambda text: quote(text, safe=""),
    "url in small letters": lambda text: "".join(
        char if char.isalnum() else f"%{ord(char):02x}" if char not in "-_.~" else char for char in text
    ),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_forms_that_programs_write_are_found_by_the_vault_and_by_redactors(writer: str) -> None:
    chance = random.Random(writer)
    for _ in range(50):
        secret = "".join(chance.choices(string.ascii_letters + string.digits + "&<>\"'/+= ", k=24)).strip("\"'= ")
        written = WRITERS[writer](secret)
        assert written not in Redactor([secret]).known(f"before {written} after")
        secret_redaction.handed_out(secret)
        assert written not in secret_redaction.hidden(f"before {written} after")


def cuts_of(text: str) -> Iterator[tuple[str, str]]:
    """Each way by which a text that others wrote becomes shorter, with a name."""
    body = text.encode()
    yield "plain error body", headers.message_in(body)
    yield "json error body", headers.message_in(json.dumps({"error": {"message": text}}).encode())
    yield "short answer", SimpleResponse(200, httpx.Headers(), body).explanation
    yield "words of a sign-in", printable(text)
    yield "output of a tool", call_process.OutputFile(body[: len(body) // 2], len(body)).text
    yield "stderr of a server", mcp_texts._quoted(text)
    yield "result in an event", shortened(text, len(text) // 2)
    kept = commands.BoundedOutput()
    kept.add(body)
    yield "output of a command", kept.text
    lines: list[str] = []
    tail = Tail(lines.append, limit=len(body) // 2)
    tail.feed(body)
    tail.close()
    yield "stderr of a process", tail.text
    yield from (("line of a process", line) for line in lines)


@pytest.mark.parametrize("vault", [True, False], ids=["of the vault", "a provider's key"])
def test_a_cut_leaves_no_part_of_a_secret(vault: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "HEAD", 600)
    monkeypatch.setattr(commands, "TAIL", 600)
    chance = random.Random(5)
    secret = "".join(chance.choices(string.ascii_letters + string.digits, k=60))
    if vault:
        secret_redaction.handed_out(secret)
    redact = secret_redaction.hidden if vault else Redactor([secret]).known
    for length in (150, 450, 1_200, 8_100, 9_000):
        for place in range(length - 70, length + 70, 3):
            text = " ".join(["word"] * 2_000)[:place] + f" {secret} " + " ".join(["word"] * (length // 5))
            for name, cut in cuts_of(text):
                shown = redact(cut)
                parts = {secret[at : at + 8] for at in range(len(secret) - 8)}
                assert not any(part in shown for part in parts), (name, length, place)
