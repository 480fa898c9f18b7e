"""Signed tokens, and the keys they are checked with."""

from __future__ import annotations

import base64
import gzip
import json
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import jwt
import pytest
import trio
from support.access_keys import AUDIENCE, ISSUER, Signer
from support.messages import has_message

from callboard.actors.front.access import credentials as jwks
from callboard.actors.front.access.credentials import KeySet, SignedTokens
from callboard.protocol.errors import Unauthorized
from callboard.protocol.settings.api import Jwt
from callboard.supervisors import Root

NOWHERE = "http://127.0.0.1:9/jwks.json"


class TokenChecker:
    """A signer whose keys are served, and somebody who checks tokens."""

    def __init__(self, signer: Signer, url: str, **settings: Any) -> None:
        self.signer = signer
        self.now = time.time()
        self.settings = Jwt(issuer=ISSUER, audience=AUDIENCE, jwks_url=url, **settings)
        self.keys = KeySet(url, self.settings.jwks_refresh_interval, environ={})
        self.tokens = SignedTokens(self.settings, self.keys, now=lambda: self.now)

    async def refused(self, token: str) -> str:
        with pytest.raises(Unauthorized) as caught:
            await self.tokens.check(token)
        return str(caught.value)


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer()


@pytest.fixture
async def token_checker(signer: Signer) -> AsyncIterator[TokenChecker]:
    signer.asked = 0
    async with signer.serving() as url:
        yield TokenChecker(signer, url)


async def test_a_token_says_who_comes_and_what_they_may(token_checker: TokenChecker) -> None:
    caller = await token_checker.tokens.check(token_checker.signer.token(jti="t1"))
    assert (caller.subject, caller.scopes, caller.key) == ("carol", {"read:runs", "run:agents"}, "t1")


async def test_scopes_may_be_a_list_and_claims_may_have_other_names(signer: Signer) -> None:
    async with signer.serving() as url:
        token_checker = TokenChecker(signer, url, subject_claim="email", scopes_claim="permissions")
        token = signer.token(email="carol@example.org", permissions=["read:runs", 7])
        caller = await token_checker.tokens.check(token)
    assert (caller.subject, caller.scopes) == ("carol@example.org", {"read:runs"})


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"exp": 1}, "expired"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "not a number"),
        ({"exp": float("nan")}, "expired"),
        ({"nbf": 9_999_999_999}, "not valid yet"),
        ({"iat": 9_999_999_999}, "not valid yet"),
        ({"iss": "https://somebody.else"}, "issuer"),
        ({"aud": "another"}, "udience"),
        ({"aud": None}, "aud"),
        ({"sub": None}, "has no subject"),
        ({"sub": 5}, "has no subject"),
        ({"sub": "a\nb"}, "has no subject"),
        ({"sub": "local"}, "who runs this server"),
    ],
)
async def test_a_token_with_a_wrong_claim_does_not_count(
    token_checker: TokenChecker, claims: dict[str, Any], told: str
) -> None:
    assert told in await token_checker.refused(token_checker.signer.token(**claims))


async def test_the_leeway_is_as_long_as_configured_and_no_longer(token_checker: TokenChecker) -> None:
    token = token_checker.signer.token(exp=int(token_checker.now) - 30)
    assert (await token_checker.tokens.check(token)).subject == "carol"
    assert has_message(
        await token_checker.refused(token_checker.signer.token(exp=int(token_checker.now) - 90)),
        "front.access.credentials.SignedTokens._check_times.2",
    )


async def test_a_jump_of_the_clock_decides_by_the_clock_and_breaks_nothing(token_checker: TokenChecker) -> None:
    token = token_checker.signer.token()
    await token_checker.tokens.check(token)
    token_checker.now += 86_400
    assert has_message(await token_checker.refused(token), "front.access.credentials.SignedTokens._check_times.2")
    token_checker.now -= 2 * 86_400
    assert has_message(await token_checker.refused(token), "front.access.credentials.SignedTokens._check_times.3")
    token_checker.now += 86_400
    assert (await token_checker.tokens.check(token)).subject == "carol"


def _forged(header: dict[str, Any], token: str, signature: str = "") -> str:
    packed = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
    return f"{packed}.{token.split('.')[1]}.{signature}"


async def test_no_signature_at_all_is_refused(token_checker: TokenChecker) -> None:
    token = token_checker.signer.token()
    for name in ("none", "None", "NONE", "", None):
        assert has_message(
            await token_checker.refused(_forged({"alg": name, "kid": "first"}, token)),
            "front.access.credentials.SignedTokens.check.2",
        )


async def test_a_public_key_used_as_a_secret_is_refused(token_checker: TokenChecker) -> None:
    import hashlib
    import hmac

    head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"first"}').rstrip(b"=").decode()
    body = token_checker.signer.token().split(".")[1]
    signature = hmac.new(token_checker.signer.published(), f"{head}.{body}".encode(), hashlib.sha256).digest()
    token = f"{head}.{body}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    assert has_message(await token_checker.refused(token), "front.access.credentials.SignedTokens.check.2")


async def test_an_algorithm_that_the_key_is_not_for_is_refused(signer: Signer) -> None:
    async with signer.serving() as url:
        token_checker = TokenChecker(signer, url, algorithms=("RS256", "RS512", "ES256"))
        assert has_message(
            await token_checker.refused(signer.token(algorithm="RS512")),
            "front.access.credentials.SignedTokens._claims",
        )


async def test_a_changed_token_and_a_stranger_s_signature_are_refused(token_checker: TokenChecker) -> None:
    head, body, signature = token_checker.signer.token().split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    better = base64.urlsafe_b64encode(json.dumps({**claims, "scope": "*"}).encode()).rstrip(b"=").decode()
    assert has_message(
        await token_checker.refused(f"{head}.{better}.{signature}"), "front.access.credentials.SignedTokens._claims.2"
    )
    stranger = Signer()
    assert has_message(
        await token_checker.refused(token_checker.signer.token(key=stranger.keys["first"])),
        "front.access.credentials.SignedTokens._claims.2",
    )


async def test_a_symmetric_key_in_the_document_is_no_key(token_checker: TokenChecker) -> None:
    secret = base64.urlsafe_b64encode(b"s" * 32).decode()
    token_checker.signer.document = json.dumps({"keys": [{"kty": "oct", "kid": "first", "k": secret}]}).encode()
    try:
        assert has_message(
            await token_checker.refused(token_checker.signer.token()), "front.access.credentials.SignedTokens._claims"
        )
        hs = jwt.encode({"sub": "x", "exp": 9e9, "iss": ISSUER, "aud": AUDIENCE}, b"s" * 32, headers={"kid": "first"})
        assert has_message(await token_checker.refused(hs), "front.access.credentials.SignedTokens.check.2")
    finally:
        token_checker.signer.document = None


@pytest.mark.parametrize("token", ["a.b.c", "ey.ey.ey", "eyJ.." + "x" * 20_000, "é.é.é", "eyJhbGciOiJSUzI1NiJ9.e30.x"])
async def test_what_is_no_token_is_refused_without_a_crash(token_checker: TokenChecker, token: str) -> None:
    await token_checker.refused(token)


# --- keys that come and go -----------------------------------------------------------------------------------


async def test_a_key_that_is_not_known_makes_us_look_once_a_minute_at_most(
    autojump_clock: trio.testing.MockClock,
) -> None:
    signer = Signer()
    answers = 0

    async def fetch() -> bytes:
        nonlocal answers
        answers += 1
        return signer.published()

    token_checker = TokenChecker(signer, NOWHERE)
    token_checker.keys._get = fetch
    await token_checker.tokens.check(signer.token())
    assert answers == 1
    signer.new_key("second")
    assert has_message(await token_checker.refused(signer.token()), "front.access.credentials.SignedTokens._claims")
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(token_checker.refused, signer.token())
    assert answers == 1
    await trio.sleep(jwks.NOT_SOONER + 1)
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(token_checker.tokens.check, signer.token())
    assert answers == 2


async def test_an_address_that_does_not_answer_is_tried_again_with_growing_pauses(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    signer = Signer()
    times: list[float] = []

    async def fetch() -> bytes:
        times.append(trio.current_time())
        if len(times) < 5:
            raise OSError("nobody is there")
        return signer.published()

    token_checker = TokenChecker(signer, NOWHERE, jwks_refresh_interval=300)
    token_checker.keys._get = fetch
    async with Root() as root:
        root.spawn(token_checker.keys.keep_fresh)
        await trio.sleep(0.5)
        assert not token_checker.keys.ready
        assert has_message(await token_checker.refused(signer.token()), "front.access.credentials.SignedTokens._claims")
        await trio.sleep(30)
        assert token_checker.keys.ready
        assert (await token_checker.tokens.check(signer.token())).subject == "carol"
        await trio.sleep(600)
    pauses = [round(later - earlier) for earlier, later in pairwise(times)]
    assert sorted(pauses)[-2:] == [300, 300], "fresh again at the interval"
    assert pauses[:4] != [0] * 4
    assert has_message(caplog.text, "front.access.credentials.KeySet._fetch.2")


async def test_keys_that_were_fetched_go_on_counting_when_the_address_fails(token_checker: TokenChecker) -> None:
    await token_checker.tokens.check(token_checker.signer.token())
    token_checker.signer.document = b"<html>not today</html>"
    try:
        assert not await token_checker.keys._fetch()
    finally:
        token_checker.signer.document = None
    assert (await token_checker.tokens.check(token_checker.signer.token())).subject == "carol"


async def test_a_document_that_never_ends_is_not_read_to_its_end(
    token_checker: TokenChecker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "MOST_BYTES", 100)
    assert not await token_checker.keys._fetch()


async def test_a_token_that_wants_more_understood_than_we_do_is_refused(token_checker: TokenChecker) -> None:
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "carol", "exp": time.time() + 60}
    headers = {"kid": token_checker.signer.kid, "crit": ["b64"], "b64": True}
    key = token_checker.signer.keys[token_checker.signer.kid]
    assert await token_checker.refused(jwt.encode(claims, key, algorithm="RS256", headers=headers))
    del headers["crit"]
    assert await token_checker.tokens.check(jwt.encode(claims, key, algorithm="RS256", headers=headers))


async def test_a_document_of_keys_is_not_unpacked(token_checker: TokenChecker) -> None:
    """A few bytes that would become many are what they are: no keys."""
    token_checker.signer.document = gzip.compress(token_checker.signer.published())
    try:
        assert has_message(
            await token_checker.refused(token_checker.signer.token()), "front.access.credentials.SignedTokens._claims"
        )
    finally:
        token_checker.signer.document = None
