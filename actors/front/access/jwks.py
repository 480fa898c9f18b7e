"""Fetches the public keys of a token issuer from its address, and keeps them fresh.

They are fetched at the start and then at an interval. An address that does not answer is tried again with growing
pauses; until the first answer no signed token is accepted, and after a later failure the keys that we have go on
counting. A token that names a key we don't have makes us look at once, but once a minute at most.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

import msgspec
import trio

if TYPE_CHECKING:
    from jwt import PyJWK

    from ....supervisors import Actor

log = logging.getLogger("callboard.server.access")

TIMEOUT = 5.0
MOST_BYTES = 1024 * 1024
MOST_KEYS = 100
NOT_SOONER = 60.0
"""Seconds between two looks that tokens made us take."""

_HEADERS = {"accept": "application/json", "accept-encoding": "identity"}
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0


@final
class KeySet:
    """The keys behind one address.

    Attributes:
        ready: whether they were fetched at least once.
        fetches: how often we asked.
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
        """Whether the key of this id is here."""
        return kid in self._keys

    def get(self, kid: str, algorithm: str) -> PyJWK | None:
        """The key of this id, for this algorithm; None if there is none, or it is for something else."""
        from jwt import PyJWK
        from jwt.exceptions import PyJWTError

        entry = self._keys.get(kid)
        if entry is None or entry.get("kty") == "oct" or entry.get("use", "sig") != "sig":
            return None
        if entry.get("alg", algorithm) != algorithm:
            return None
        try:
            return PyJWK(entry, algorithm)
        except (PyJWTError, ValueError, TypeError, KeyError):
            return None

    async def look_for(self, kid: str) -> None:
        """Fetch the keys for the sake of this one, if they were not fetched so just now."""
        async with self._lock:
            now = trio.current_time()
            if kid in self._keys or now - self._looked < NOT_SOONER:
                return
            self._looked = now
            await self._fetch()

    async def keep_fresh(self, me: Actor) -> None:
        """An actor's body: fetch now, and then again and again."""
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
        except Exception as error:  # noqa: BLE001 - whatever a stranger's server does: we go on with what we have
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
            async for piece in response.aiter_raw():  # as it comes: a small reply must not unpack to a huge one
                body += piece
                if len(body) > MOST_BYTES:
                    raise ValueError(f"it sent more than {MOST_BYTES} bytes")
            return bytes(body)


class _Document(msgspec.Struct):
    keys: list[dict[str, Any]]


def _keys_in(body: bytes) -> dict[str, dict[str, Any]]:
    document = msgspec.json.decode(body, type=_Document)
    keys = {key["kid"]: key for key in document.keys[:MOST_KEYS] if isinstance(key.get("kid"), str)}
    if not keys:
        raise ValueError("it has no keys with a `kid`")
    return keys
