"""Static keys: callers show a key, the configuration has its argon2id hash.

A hash is costly on purpose, some 20 ms and as many megabytes, which is right for checking a key once and wrong for
each of a thousand requests. So what was found out about a token is remembered, by its SHA-256: the keys here are
random and long, so that nothing can be guessed from it. Hashes are computed in threads, two at a time, with a bounded
queue before them; when it is full, a caller is refused with a time to retry.

A key that callboard made names its entry (`cb_<id>_<secret>`), so that only one hash has to be computed for it. One
that names no entry costs a hash as well, so that timing does not reveal which ids exist; but these have a
thread and a line of their own, and keys that may be good don't wait behind them. Other keys are tried against every
entry without an id.
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
"""Tokens in the cache, each with its owner, or known to have none."""

AT_ONCE = 2
"""Hashes that are computed at a time."""

IN_LINE = 64
"""Tokens that may wait for that."""

LONGEST = 4096
"""Characters of a key; a longer one is none of ours."""

MEMORY, PASSES, LANES = 19_456, 2, 1
"""What new hashes cost (KiB, passes, lanes): OWASP's least for passwords, and these are no passwords but random."""


def new_key() -> tuple[str, str]:
    """A fresh key and its id."""
    id = secrets.token_hex(4)
    return f"cb_{id}_{secrets.token_hex(32)}", id


def hashed(key: str) -> str:
    """The argon2id hash of a key, with a salt of its own."""
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=PASSES, memory_cost=MEMORY, parallelism=LANES).hash(key)


@final
class KeyRing:
    """The static keys there are. A reload makes a new one, so that nothing is remembered of keys that have gone."""

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
        """Whose token this is, if that was found out before."""
        return self._known.get(_digest(token))

    async def check(self, token: str) -> Caller | None:
        """The caller that the token belongs to, or None.

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
                # Not to be abandoned: a bad key counts also when its client hangs up meanwhile.
                found = await trio.to_thread.run_sync(_owner, token, candidates, limiter=self._threads)
                self._remember(digest, found)
            finally:
                self._under_way.pop(digest).set()
        return self._known[digest]

    async def _pretend(self, token: str) -> None:
        """Take as long over a key without an entry as over any other."""
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
            # Bad tokens go first: a flood of them must not make us forget the good ones.
            worst = next((old for old, whose in self._known.items() if whose is None), None)
            del self._known[next(iter(self._known)) if worst is None else worst]


def caller_of(key: ApiKey) -> Caller:
    """Who comes with this key."""
    return Caller(subject=key.subject, scopes=frozenset(key.scopes), key=key.id or None, name=key.subject)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _owner(token: str, candidates: tuple[ApiKey, ...]) -> ApiKey | None:
    """Which entry's key it is. In a thread."""
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
