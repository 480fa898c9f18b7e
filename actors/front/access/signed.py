"""Signed tokens (JWT) of a configured issuer, and the issuer's public keys (JWKS).

The algorithm is never the token's choice: it must be a configured one, all of which are asymmetric, and the one of the
named key. Times are checked here, against a given clock, because a jump of the machine's clock would affect every token
at once.

The keys are fetched at the start and then at an interval. An address that does not answer is retried with growing
pauses. Until the first answer no signed token is accepted; after a later failure the old keys remain valid. A token
with an unknown key triggers a fetch at once, but at most once a minute.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, final

import msgspec
import trio

from ....protocol.control.caller import Caller
from ....protocol.decoding import decode_json
from ....protocol.errors import Unauthorized
from ....protocol.settings.api import ALGORITHMS, Jwt

if TYPE_CHECKING:
    from jwt import PyJWK

    from ....supervisors import Actor

log = logging.getLogger("callboard.server.access")

TIMEOUT = 5.0
MOST_BYTES = 1024 * 1024
MOST_KEYS = 100
NOT_SOONER = 60.0
"""Seconds between two fetches triggered by tokens."""

_HEADERS = {"accept": "application/json", "accept-encoding": "identity"}
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0

LONGEST = 16_384
"""Maximum characters of a token."""

MOST_SCOPES = 200


class SignedCaller(Caller, frozen=True):
    """Caller with a signed token. `until`: its expiry by the wall clock."""

    until: float = 0.0


def looks_signed(token: str) -> bool:
    """Return True for a signed token, False for a key."""
    return token.count(".") == 2 and token.startswith("ey")


@final
class SignedTokens:
    """Verifier of signed tokens.

    Args:
        now: wall clock.
    """

    def __init__(self, settings: Jwt, keys: KeySet, now: Callable[[], float] = time.time) -> None:
        self.keys = keys
        self._settings = settings
        self._now = now

    def knows_key_of(self, token: str) -> bool:
        """Return True if the token's key is known, so that it can be verified at once."""
        header = _header(token)
        return header is not None and self.keys.has(str(header.get("kid", "")))

    async def check(self, token: str) -> SignedCaller:
        """Return the caller of a token.

        Raises:
            Unauthorized: it is invalid; the text gives the reason as far as it helps only its owner.
        """
        header = _header(token)
        if header is None:
            raise Unauthorized("this is no signed token")
        algorithm, kid = header.get("alg"), header.get("kid")
        # RFC 8725, section 3.1: the header is the attacker's, so the algorithm must be one that the issuer uses.
        if algorithm not in ALGORITHMS or algorithm not in self._settings.algorithms:
            raise Unauthorized(f"the token's algorithm must be one of {', '.join(self._settings.algorithms)}")
        if "crit" in header:  # extensions that must be understood; none is supported
            raise Unauthorized("the token needs an extension (`crit`) that is not supported here")
        if not isinstance(kid, str) or not kid:
            raise Unauthorized("the token does not say which key it was signed with (`kid`)")
        if not self.keys.has(kid):
            await self.keys.fetch_for(kid)
        return self._caller(self._claims(token, kid, algorithm))

    def _claims(self, token: str, kid: str, algorithm: str) -> Mapping[str, Any]:
        import jwt

        key = self.keys.get(kid, algorithm)
        if key is None:
            raise Unauthorized("the token was signed with a key that is not known here")
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                options={
                    "require": ["exp", "iss", "aud"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_sub": False,
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise Unauthorized(f"the token is not valid: {error}") from None
        # PyJWT has checked signature, audience and issuer; times are checked by `now`, which tests replace.
        self._check_times(claims)
        return claims

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        now, leeway = self._now(), self._settings.leeway_seconds
        times = {name: claims[name] for name in ("exp", "nbf", "iat") if claims.get(name) is not None}
        for name, value in times.items():
            # `bool` is a subclass of `int`.
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise Unauthorized(f"the token's `{name}` is no number")
        # `not <` rather than `>=`: a NaN counts as expired.
        if not now < times["exp"] + leeway:
            raise Unauthorized("the token has expired")
        if max(times.get("nbf", 0), times.get("iat", 0)) > now + leeway:
            raise Unauthorized("the token is not valid yet")

    def _caller(self, claims: Mapping[str, Any]) -> SignedCaller:
        subject = claims.get(self._settings.subject_claim)
        if not isinstance(subject, str) or not subject or len(subject) > 256 or not subject.isprintable():
            raise Unauthorized(f"the token's `{self._settings.subject_claim}` names no subject")
        # The subject of `LOCAL`: such a token would own the runs of the user of this machine.
        if subject == "local":
            raise Unauthorized("the token's subject is 'local', which is the user who runs this server")
        found = claims.get(self._settings.scopes_claim, ())
        scopes = found.split() if isinstance(found, str) else found if isinstance(found, list | tuple) else ()
        texts = [scope for scope in scopes if isinstance(scope, str)][:MOST_SCOPES]
        id = claims.get("jti")
        return SignedCaller(
            subject=subject,
            scopes=frozenset(texts),
            key=id[:64] if isinstance(id, str) else None,
            name=subject,
            until=claims["exp"] + self._settings.leeway_seconds,
        )


def _header(token: str) -> Mapping[str, Any] | None:
    import jwt

    if len(token) > LONGEST:
        return None
    try:
        header: Mapping[str, Any] = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError):
        return None
    return header


@final
class KeySet:
    """Public keys of an issuer.

    Attributes:
        ready: True once they were fetched.
        fetches: number of fetches.
    """

    def __init__(self, url: str, interval: float, environ: Mapping[str, str] = os.environ) -> None:
        self._url = url
        self._interval = interval
        self._environ = environ
        self._keys: dict[str, dict[str, Any]] = {}
        self._lock = trio.Lock()
        self._looked = -NOT_SOONER
        self.ready = False
        self.fetches = 0

    def has(self, kid: str) -> bool:
        """Return True if the key with this id is known."""
        return kid in self._keys

    def get(self, kid: str, algorithm: str) -> PyJWK | None:
        """Return the key with this id for this algorithm; None if there is none, or it is for another purpose."""
        from jwt import PyJWK
        from jwt.exceptions import PyJWTError

        entry = self._keys.get(kid)
        # A symmetric key in a public document would let every reader of it sign tokens.
        if entry is None or entry.get("kty") == "oct" or entry.get("use", "sig") != "sig":
            return None
        if entry.get("alg", algorithm) != algorithm:
            return None
        try:
            return PyJWK(entry, algorithm)
        except (PyJWTError, ValueError, TypeError, KeyError):
            return None

    async def fetch_for(self, kid: str) -> None:
        """Fetch the keys for an unknown id, unless they were just fetched."""
        async with self._lock:
            now = trio.current_time()
            # Many tokens with unknown ids wait for the same fetch, and made-up ids cause at most one a minute.
            if kid in self._keys or now - self._looked < NOT_SOONER:
                return
            self._looked = now
            await self._fetch()

    async def keep_fresh(self, me: Actor) -> None:
        """Fetch the keys now and then at intervals. Body of an actor."""
        me.started()
        pause = FIRST_PAUSE
        while True:
            async with self._lock:
                came = await self._fetch()
            if came:
                pause = FIRST_PAUSE
                await trio.sleep(self._interval)
            else:
                await trio.sleep(min(pause, self._interval))
                pause = min(pause * 2, LONGEST_PAUSE)

    async def _fetch(self) -> bool:
        self.fetches += 1
        try:
            with trio.fail_after(TIMEOUT):
                keys = _keys_in(await self._get())
        except Exception as error:  # noqa: BLE001 - a foreign server may fail anyhow; the known keys remain
            kept = f"{len(self._keys)} keys are kept" if self.ready else "no signed token is accepted until it answers"
            log.warning("no keys from %s (%s); %s", self._url, str(error) or type(error).__name__, kept)
            return False
        self._keys = keys
        self.ready = True
        return True

    async def _get(self) -> bytes:
        import httpx

        from ...io.http.transport import TrioTransport

        async with (
            httpx.AsyncClient(transport=TrioTransport(environ=self._environ), timeout=TIMEOUT) as client,
            client.stream("GET", self._url, headers=_HEADERS) as response,
        ):
            if response.status_code != 200:
                raise ValueError(f"it answered with status {response.status_code}")
            body = bytearray()
            async for piece in response.aiter_raw():  # undecoded: a small reply must not unpack to a huge one
                body += piece
                if len(body) > MOST_BYTES:
                    raise ValueError(f"it sent more than {MOST_BYTES} bytes")
            return bytes(body)


class _Document(msgspec.Struct):
    keys: list[dict[str, Any]]


def _keys_in(body: bytes) -> dict[str, dict[str, Any]]:
    document = decode_json(body, _Document)
    keys = {key["kid"]: key for key in document.keys[:MOST_KEYS] if isinstance(key.get("kid"), str)}
    if not keys:
        raise ValueError("it has no keys with a `kid`")
    return keys
