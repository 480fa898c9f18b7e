"""Signatures of version 4, which AWS wants of every request.

Signing is done here, not by botocore: that is a package of 14 MB with a client, a session and data of 400 services
around a signer of one page, and it reads its files and asks for roles with blocking calls. What is below is that page.
It gives the signatures of AWS's published test suite (aws-c-auth, `aws-sig-v4-test-suite`); see the tests.
"""

from __future__ import annotations

import hashlib
import hmac
import posixpath
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from urllib.parse import quote

import msgspec

from .....protocol.errors import CredentialsError

_ALGORITHM = "AWS4-HMAC-SHA256"
_UNRESERVED = "-_.~"


class Keys(msgspec.Struct, frozen=True):
    """A pair of keys, and the token of a session where they are temporary."""

    access_key_id: str
    secret_access_key: str
    session_token: str = ""

    def __post_init__(self) -> None:
        """Raises CredentialsError if they could not be sent: something else stands where they should."""
        if not all(part.isascii() and part.isprintable() for part in msgspec.structs.astuple(self)):
            raise CredentialsError("the keys of AWS hold characters that no key has")

    def __repr__(self) -> str:
        return f"Keys({self.access_key_id})"


class Signer(msgspec.Struct, frozen=True):
    """Signs requests to one service in one region."""

    keys: Keys
    region: str
    service: str

    def headers(
        self,
        method: str,
        path: str,
        fields: Iterable[tuple[str, str]],
        body: bytes,
        *,
        query: Iterable[tuple[str, str]] = (),
        now: datetime | None = None,
    ) -> dict[str, str]:
        """What a request carries beside `fields`: date, session and signature.

        Args:
            path: as it is sent; whatever is escaped in it is escaped once more, as all services but S3 want it.
            fields: the headers to be signed, `host` among them.
            query: names and values, not escaped.
            now: the time, in UTC.
        """
        stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
        added = {"x-amz-date": stamp}
        if self.keys.session_token:
            added["x-amz-security-token"] = self.keys.session_token
        collected: dict[str, list[str]] = {}
        for name, value in (*fields, *added.items()):
            collected.setdefault(name.lower(), []).append(" ".join(value.split()))
        names = sorted(collected)
        signed = ";".join(names)
        pairs = sorted((quote(name, safe=_UNRESERVED), quote(value, safe=_UNRESERVED)) for name, value in query)
        canonical = "\n".join(
            (
                method,
                quote(_normal(path), safe="/" + _UNRESERVED),
                "&".join(f"{name}={value}" for name, value in pairs),
                *(f"{name}:{','.join(collected[name])}" for name in names),
                "",
                signed,
                hashlib.sha256(body).hexdigest(),
            )
        )
        scope = f"{stamp[:8]}/{self.region}/{self.service}/aws4_request"
        text = "\n".join((_ALGORITHM, stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()))
        key = f"AWS4{self.keys.secret_access_key}".encode()
        for part in (stamp[:8], self.region, self.service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        credential = f"{self.keys.access_key_id}/{scope}"
        added["authorization"] = f"{_ALGORITHM} Credential={credential}, SignedHeaders={signed}, Signature={signature}"
        return added


def _normal(path: str) -> str:
    """The path without `.`, `..` and empty segments; a slash at its end stays."""
    normal = posixpath.normpath(re.sub("/+", "/", f"/{path}"))
    return f"{normal}/" if normal != "/" and path.endswith(("/", "/.", "/..")) else normal
