"""Keys, signers and callers for the tests of who may do what."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import jwt
import trio
from argon2 import PasswordHasher
from cryptography.hazmat.primitives.asymmetric import rsa

from callboard.actors.front.access.access_control import AccessControl
from callboard.actors.front.access.audit import Audit
from callboard.actors.front.access.credentials import new_key
from callboard.actors.io.secret_redaction import Redactor
from callboard.protocol.settings.api import ApiKey, ApiSettings, AuditSettings, Auth

CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
LOCAL_TOKEN = "local-" + "t" * 32
HOST = {"host": "127.0.0.1:3400"}
ISSUER, AUDIENCE = "https://issuer.test", "callboard"


def made_key(subject: str, *scopes: str) -> tuple[str, ApiKey]:
    """A key and its entry, with a hash that is cheap to check."""
    token, id = new_key()
    return token, ApiKey(subject=subject, key_hash=CHEAP.hash(token), scopes=scopes, id=id)


def showing(token: str, **more: str) -> dict[str, str]:
    """Headers that show a key."""
    return {**HOST, "authorization": f"Bearer {token}", **more}


def access_for(*keys: ApiKey, loopback: bool = True, **settings: Any) -> AccessControl:
    """A access with these keys."""
    auth = settings.pop("auth", None) or Auth(keys=keys)
    audit = settings.pop("log", None)
    return AccessControl(ApiSettings(auth=auth, **settings), local_token=LOCAL_TOKEN, loopback=loopback, audit=audit)


class AuditFile:
    """An audit log in a file, and what it has."""

    def __init__(self, folder: Path, redactor: Redactor | None = None) -> None:
        self.path = folder / "audit.jsonl"
        self.log = Audit(AuditSettings(sink="file", file=str(self.path)), redactor=redactor)

    def lines(self) -> list[dict[str, Any]]:
        """Everything that was written; nothing is written any more."""
        self.log.close()
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines()]


class Signer:
    """Somebody who signs tokens, and the address where their keys are."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {}
        self.document: bytes | None = None
        self.asked = 0
        self.new_key("first")

    def new_key(self, kid: str) -> None:
        """Sign with a new key, and publish it beside the others."""
        self.kid = kid
        self.keys[kid] = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def token(self, *, kid: str | None = None, key: Any = None, algorithm: str = "RS256", **claims: Any) -> str:
        """A token; claims that are None are left out."""
        now = int(time.time())
        said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "carol", "scope": "read:runs run:agents", "exp": now + 300}
        said |= {"iat": now}
        said |= claims
        kid = kid or self.kid
        return jwt.encode(
            {name: value for name, value in said.items() if value is not None},
            key if key is not None else self.keys[kid],
            algorithm=algorithm,
            headers={"kid": kid},
        )

    def published(self) -> bytes:
        """The document with the public keys."""
        if self.document is not None:
            return self.document
        keys = []
        for kid, key in self.keys.items():
            entry = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
            keys.append({**entry, "kid": kid, "use": "sig", "alg": "RS256"})
        return json.dumps({"keys": keys}).encode()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """The address, while the block lasts."""
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]

        async def answer(stream: trio.SocketStream) -> None:
            async with stream:
                await stream.receive_some(65536)
                self.asked += 1
                body = self.published()
                head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
                await stream.send_all(head + body)

        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, answer, [listener])
            yield f"http://127.0.0.1:{port}/jwks.json"
            nursery.cancel_scope.cancel()


def client_of(app: Callable[..., Any], peer: str = "127.0.0.1") -> httpx.AsyncClient:
    """A client of an ASGI application, without a socket in between."""
    transport = httpx.ASGITransport(app=app, client=(peer, 40_000))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:3400")
