"""What the browser is sent to, and which answers count."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from support.messages import says

from callboard.actors.io.oauth.authorization import Authorization, AuthServer, authorization, challenge_of, check_url
from callboard.protocol.errors import ConfigError, OAuthRefused, UsageError

SERVER = AuthServer(
    client_id="me",
    client_secret="s3cret",
    authorization_url="https://id.example/authorize?tenant=1",
    token_url="https://id.example/token",
    scopes=("a", "b c"),
    issuer="https://id.example",
    resource="https://mcp.example/mcp",
    more={"prompt": "consent", "state": "mine", "redirect_uri": "https://elsewhere.example"},
)
BACK = "http://127.0.0.1:1234/callback"


def asked() -> Authorization:
    return authorization(SERVER, BACK)


def test_the_url_carries_challenge_state_resource_and_what_the_server_wants_besides() -> None:
    request = asked()
    assert request.url.startswith("https://id.example/authorize?tenant=1&")
    fields = dict(parse_qsl(urlsplit(request.url).query))
    assert fields == {
        "tenant": "1",
        "response_type": "code",
        "client_id": "me",
        "redirect_uri": BACK,
        "scope": "a b c",
        "state": request.state,
        "code_challenge": challenge_of(request.verifier),
        "code_challenge_method": "S256",
        "resource": "https://mcp.example/mcp",
        "prompt": "consent",
    }
    assert "s3cret" not in request.url


def test_the_challenge_is_that_of_the_standard() -> None:
    """RFC 7636, appendix B."""
    assert challenge_of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_no_two_questions_have_a_secret_in_common() -> None:
    one, other = asked(), asked()
    assert one.state != other.state
    assert one.verifier != other.verifier
    assert 43 <= len(one.verifier) <= 128


def test_a_question_shows_none_of_its_secrets() -> None:
    request = asked()
    shown = f"{request!r} {request.__rich_repr__()} {SERVER!r} {SERVER.__rich_repr__()}"
    assert request.state not in shown
    assert request.verifier not in shown
    assert "s3cret" not in shown


def test_the_code_of_a_good_answer() -> None:
    request = asked()
    answer = {"code": "c", "state": request.state, "iss": "https://id.example"}
    assert request.is_ours(answer)
    assert request.code_of(answer) == "c"
    assert not request.is_ours({"code": "c", "state": "another"})
    assert not request.is_ours({"code": "c"})


def test_an_answer_of_another_server_is_refused() -> None:
    request = asked()
    with pytest.raises(
        OAuthRefused,
        match=says(
            "io.oauth.authorization.Authorization.code_of.2",
            said="from 'https://evil.example'",
            issuer="https://id.example",
        ),
    ):
        request.code_of({"code": "c", "iss": "https://evil.example"})
    assert request.code_of({"code": "c"}) == "c"  # it need not say so


def test_a_server_that_always_names_itself_has_to() -> None:
    import msgspec

    request = authorization(msgspec.structs.replace(SERVER, names_issuer=True), BACK)
    with pytest.raises(OAuthRefused, match=says("io.oauth.authorization.Authorization.code_of")):
        request.code_of({"code": "c"})


def test_the_no_of_a_person_and_of_a_server() -> None:
    request = asked()
    with pytest.raises(OAuthRefused, match="by the server: they changed their mind: access_denied") as error:
        request.code_of({"error": "access_denied", "error_description": "they changed\nmind".replace("\n", " their ")})
    assert error.value.error == "access_denied"
    with pytest.raises(OAuthRefused, match="unknown scope: invalid_scope"):
        request.code_of({"error": "invalid_scope", "error_description": "unknown scope"})
    with pytest.raises(OAuthRefused, match=says("io.oauth.authorization.Authorization.code_of.4")):
        request.code_of({})
    with pytest.raises(OAuthRefused, match=says("io.oauth.authorization.Authorization.code_of.4")):
        request.code_of({"code": "c\r\nd"})


def test_what_a_stranger_says_stays_one_short_line() -> None:
    with pytest.raises(OAuthRefused) as error:
        asked().code_of({"error": "\x1b[31m" + "e" * 5000, "error_description": "a\n\x1b[2Jb" * 1000})
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 500


def test_what_a_person_may_paste() -> None:
    request = asked()
    query = urlencode({"code": "the-code", "state": request.state})
    for text in ("the-code", f" the-code#{request.state}\n", f"{BACK}?{query}", f"https://x.example/cb?{query}#"):
        assert request.code_in(text) == "the-code"
    with pytest.raises(OAuthRefused, match="access_denied"):
        request.code_in(f"{BACK}?error=access_denied&state={request.state}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the pasted text is not a code"),
        ("two words", "the pasted text is not a code"),
        ("#state", "the pasted text is not a code"),
        ("code#another", "another sign-in attempt"),
        ("c\udc80de", "the pasted text is not a code"),
        ("code#\udc80", "another sign-in attempt"),
        ("https://x.example/?code=c&state=%ff", "another sign-in attempt"),
        ("https://x.example/?code=c&state=\udc80", "another sign-in attempt"),
        (f"{BACK}?code=c&state=another", "another sign-in attempt"),
        (f"{BACK}?code=c", "another sign-in attempt"),
        ("https://id.example/authorize", "has no `code`"),
        ("https://[", "has no `code`"),
    ],
)
def test_what_a_person_may_not_paste(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        asked().code_in(text)


@pytest.mark.parametrize(
    "url",
    ["http://id.example/token", "ftp://id.example", "id.example", "", "https://", "https://[", "http://10.0.0.1/"],
)
def test_tokens_travel_by_https_or_not_at_all(url: str) -> None:
    with pytest.raises(ConfigError, match="the token URL is"):
        check_url(url, "the token URL")


@pytest.mark.parametrize("url", ["https://id.example", "http://127.0.0.1:1/", "http://localhost/x", "http://[::1]:80/"])
def test_this_machine_itself_needs_no_https(url: str) -> None:
    check_url(url, "the token URL")


def test_without_an_address_there_is_no_browser() -> None:
    with pytest.raises(ConfigError, match=says("io.oauth.authorization.authorization")):
        authorization(AuthServer(client_id="me", token_url="https://id.example/token"), BACK)
