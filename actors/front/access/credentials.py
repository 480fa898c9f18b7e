"""Credentials of callers: static keys of the configuration, and signed tokens (JWT) of an issuer.

Static keys: callers present a key, the configuration contains its argon2id hash. A hash is costly on purpose, some
20 ms and as many megabytes. That is right for checking a key once, and wrong for each of a thousand requests. So
results are cached by the SHA-256 of the token: the keys are random and long, so that nothing can be guessed from it.
Threads compute hashes, two at a time, with a bounded queue; when it is full, a caller is refused with a retry time.

A key made by callboard names its entry (`cb_<id>_<secret>`), so that only one hash has to be computed for it. A key
with an unknown entry costs a hash as well, so that timing does not reveal existing ids. These hashes have their own
thread and queue, so that possibly good keys do not wait for them. Other keys are tried against every entry without an
id.

Signed tokens: the algorithm is never the token's choice. It must be a configured one, all of which are asymmetric, and
the one of the named key. Times are checked here, against a given clock, because a jump of the machine's clock would
affect every token at once.

The issuer's public keys (JWKS) are fetched at the start and then at an interval. An address that does not answer is
retried with growing pauses. Until the first answer no signed token is accepted; after a later failure the old keys
remain valid. A token with an unknown key triggers a fetch at once, but at most once a minute.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, final

import msgspec
import trio

from ....protocol.control.caller import Caller
from ....protocol.decoding import decode_json
from ....protocol.errors import Saturated, Unauthorized
from ....protocol.settings.api import ALGORITHMS, Jwt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jwt import PyJWK

    from ....protocol.settings.api import ApiKey
    from ....supervisors import Actor


MOST_CACHED = 4096
"""Maximum number of cached tokens, with their owners or known as bad."""

HASHES_AT_ONCE = 2
"""Hashes computed at a time."""

HASHES_IN_LINE = 64
"""Maximum number of tokens that wait for a hash."""

LONGEST_KEY = 4096
"""Maximum characters of a key."""

MEMORY, PASSES, LANES = 19_456, 2, 1
"""Cost of new hashes (KiB, passes, lanes): OWASP's minimum for passwords; random keys need no more."""


def new_key() -> tuple[str, str]:
    """Return a new key and its id."""
    id = secrets.token_hex(4)
    return f"cb_{id}_{secrets.token_hex(32)}", id


def hashed(key: str) -> str:
    """Return the argon2id hash of a key, with a random salt."""
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=PASSES, memory_cost=MEMORY, parallelism=LANES).hash(key)


@final
class KeyRing:
    """Configured static keys. A reload creates a new object, so that nothing about removed keys is cached."""

    def __init__(self, keys: Sequence[ApiKey]) -> None:
        self._by_id = {key.id: key for key in keys if key.id}
        self._others = tuple(key for key in keys if not key.id)
        self._known: OrderedDict[bytes, Caller | None] = OrderedDict()
        self._under_way: dict[bytes, trio.Event] = {}
        self._threads = trio.CapacityLimiter(HASHES_AT_ONCE)
        self._decoy = tuple(keys[:1])
        self._aside = trio.CapacityLimiter(1)
        self._pretended = 0

    def known(self, token: str) -> Caller | None:
        """Return the cached caller of a token."""
        return self._known.get(_digest(token))

    async def check(self, token: str) -> Caller | None:
        """Return the caller of the token, or None.

        Raises:
            Saturated: too many are being checked.
        """
        candidates = self._candidates(token)
        if not candidates:
            await self._pretend(token)
            return None
        digest = _digest(token)
        while digest not in self._known:
            if (other := self._under_way.get(digest)) is not None:
                await other.wait()
                continue
            if len(self._under_way) >= HASHES_IN_LINE:
                raise Saturated("too many keys are being checked at the moment; try again in a second")
            self._under_way[digest] = trio.Event()
            try:
                # Not abandoned on cancellation: a bad key counts even if its client disconnects.
                found = await trio.to_thread.run_sync(_owner, token, candidates, limiter=self._threads)
                self._remember(digest, found)
            finally:
                self._under_way.pop(digest).set()
        return self._known[digest]

    async def _pretend(self, token: str) -> None:
        """Spend as much time on a key without an entry as on any other."""
        if len(token) > LONGEST_KEY or not self._decoy:
            return
        if self._pretended >= HASHES_IN_LINE:
            raise Saturated("too many keys are being checked at the moment; try again in a second")
        self._pretended += 1
        try:
            await trio.to_thread.run_sync(_owner, token, self._decoy, limiter=self._aside)
        finally:
            self._pretended -= 1

    def _candidates(self, token: str) -> tuple[ApiKey, ...]:
        if len(token) > LONGEST_KEY:
            return ()
        head, _, rest = token.partition("_")
        id, _, secret = rest.partition("_")
        if head == "cb" and secret and id in self._by_id:
            return (self._by_id[id],)
        return self._others

    def _remember(self, digest: bytes, found: ApiKey | None) -> None:
        self._known[digest] = None if found is None else caller_of(found)
        if len(self._known) > MOST_CACHED:
            # Evict bad tokens first: a flood of them must not displace good ones.
            worst = next((old for old, whose in self._known.items() if whose is None), None)
            del self._known[next(iter(self._known)) if worst is None else worst]


def caller_of(key: ApiKey) -> Caller:
    """Return the caller that an entry of `api.auth.keys` describes."""
    return Caller(subject=key.subject, scopes=frozenset(key.scopes), key=key.id or None, name=key.subject)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _owner(token: str, candidates: tuple[ApiKey, ...]) -> ApiKey | None:
    """Return the entry of a key. Runs in a thread."""
    from argon2.exceptions import Argon2Error, InvalidHashError
    from argon2.low_level import Type, verify_secret

    shown = token.encode("utf-8", "surrogatepass")
    for key in candidates:
        try:
            if verify_secret(key.key_hash.encode(), shown, Type.ID):
                return key
        except (Argon2Error, InvalidHashError):
            continue
    return None


log = logging.getLogger("callboard.server.access")

FETCH_WITHIN = 5.0
MOST_BYTES = 1024 * 1024
MOST_KEYS = 100
NOT_SOONER = 60.0
"""Seconds between two fetches triggered by tokens."""

_HEADERS = {"accept": "application/json", "accept-encoding": "identity"}
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0

LONGEST_TOKEN = 16_384
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
            raise Unauthorized("the token is not a signed token (JWT)")
        algorithm, kid = header.get("alg"), header.get("kid")
        # RFC 8725, section 3.1: the header is the attacker's, so the algorithm must be one that the issuer uses.
        if algorithm not in ALGORITHMS or algorithm not in self._settings.algorithms:
            raise Unauthorized(f"the token's algorithm must be one of {', '.join(self._settings.algorithms)}")
        if "crit" in header:  # extensions that must be understood; none is supported
            raise Unauthorized("the token requires an extension (`crit`) that is not supported")
        if not isinstance(kid, str) or not kid:
            raise Unauthorized("the token does not name the key that signed it (`kid`)")
        if not self.keys.has(kid):
            await self.keys.fetch_for(kid)
        return self._caller(self._claims(token, kid, algorithm))

    def _claims(self, token: str, kid: str, algorithm: str) -> Mapping[str, Any]:
        import jwt

        key = self.keys.get(kid, algorithm)
        if key is None:
            raise Unauthorized("the token was signed with an unknown key")
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
                raise Unauthorized(f"the token's `{name}` is not a number")
        # `not <` rather than `>=`: a NaN counts as expired.
        if not now < times["exp"] + leeway:
            raise Unauthorized("the token has expired")
        if max(times.get("nbf", 0), times.get("iat", 0)) > now + leeway:
            raise Unauthorized("the token is not valid yet")

    def _caller(self, claims: Mapping[str, Any]) -> SignedCaller:
        subject = claims.get(self._settings.subject_claim)
        if not isinstance(subject, str) or not subject or len(subject) > 256 or not subject.isprintable():
            raise Unauthorized(f"the token has no subject in `{self._settings.subject_claim}`")
        # The subject of `LOCAL`: such a token would own the runs of the user of this machine.
        if subject == "local":
            raise Unauthorized("the token's subject is 'local', which is reserved for the user who runs this server")
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

    if len(token) > LONGEST_TOKEN:
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
            with trio.fail_after(FETCH_WITHIN):
                keys = _keys_in(await self._get())
        except Exception as error:  # noqa: BLE001 - a foreign server may fail anyhow; the known keys remain
            kept = (
                f"{len(self._keys)} keys stay valid"
                if self.ready
                else "no signed token is accepted until keys are received"
            )
            log.warning(
                "signing keys can't be fetched from %s (%s); %s", self._url, str(error) or type(error).__name__, kept
            )
            return False
        self._keys = keys
        self.ready = True
        return True

    async def _get(self) -> bytes:
        import httpx

        from ...io.http.transport import TrioTransport

        async with (
            httpx.AsyncClient(transport=TrioTransport(environ=self._environ), timeout=FETCH_WITHIN) as client,
            client.stream("GET", self._url, headers=_HEADERS) as response,
        ):
            if response.status_code != 200:
                raise ValueError(f"the server answered with HTTP status {response.status_code}")
            body = bytearray()
            async for piece in response.aiter_raw():  # undecoded: a small reply must not unpack to a huge one
                body += piece
                if len(body) > MOST_BYTES:
                    raise ValueError(f"the response is longer than {MOST_BYTES} bytes")
            return bytes(body)


class _Document(msgspec.Struct):
    keys: list[dict[str, Any]]


def _keys_in(body: bytes) -> dict[str, dict[str, Any]]:
    document = decode_json(body, _Document)
    keys = {key["kid"]: key for key in document.keys[:MOST_KEYS] if isinstance(key.get("kid"), str)}
    if not keys:
        raise ValueError("the response has no keys with a `kid`")
    return keys
