"""Static keys: callers present a key, the configuration contains its argon2id hash.

A hash is costly on purpose, some 20 ms and as many megabytes. That is right for checking a key once, and wrong for each
of a thousand requests. So results are cached by the SHA-256 of the token: the keys are random and long, so that nothing
can be guessed from it. Threads compute hashes, two at a time, with a bounded queue; when it is full, a caller is
refused with a retry time.

A key made by callboard names its entry (`cb_<id>_<secret>`), so that only one hash has to be computed for it. A key
with an unknown entry costs a hash as well, so that timing does not reveal existing ids. These hashes have their own
thread and queue, so that possibly good keys do not wait for them. Other keys are tried against every entry without an
id.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, final

import trio

from ....protocol.control.caller import Caller
from ....protocol.errors import Saturated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....protocol.settings.api import ApiKey

REMEMBERED = 4096
"""Maximum number of cached tokens, with their owners or known as bad."""

AT_ONCE = 2
"""Hashes computed at a time."""

IN_LINE = 64
"""Maximum number of tokens that wait for a hash."""

LONGEST = 4096
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
        self._threads = trio.CapacityLimiter(AT_ONCE)
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
            if len(self._under_way) >= IN_LINE:
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
        if len(token) > LONGEST or not self._decoy:
            return
        if self._pretended >= IN_LINE:
            raise Saturated("too many keys are being checked at the moment; try again in a second")
        self._pretended += 1
        try:
            await trio.to_thread.run_sync(_owner, token, self._decoy, limiter=self._aside)
        finally:
            self._pretended -= 1

    def _candidates(self, token: str) -> tuple[ApiKey, ...]:
        if len(token) > LONGEST:
            return ()
        head, _, rest = token.partition("_")
        id, _, secret = rest.partition("_")
        if head == "cb" and secret and id in self._by_id:
            return (self._by_id[id],)
        return self._others

    def _remember(self, digest: bytes, found: ApiKey | None) -> None:
        self._known[digest] = None if found is None else caller_of(found)
        if len(self._known) > REMEMBERED:
            # Evict bad tokens first: a flood of them must not displace good ones.
            worst = next((old for old, whose in self._known.items() if whose is None), None)
            del self._known[next(iter(self._known)) if worst is None else worst]


def caller_of(key: ApiKey) -> Caller:
    """Return the caller of a key."""
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
