"""AWS Signature Version 4.

This replaces botocore: a package of 14 MB with a client, a session and data of 400 services around a signer of one
page. It also reads its files and requests roles with blocking calls. This module is only the signer. It produces the
signatures of AWS's published test suite (aws-c-auth, `aws-sig-v4-test-suite`); see the tests.
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


class AwsKeys(msgspec.Struct, frozen=True):
    """Access keys, with a session token if they are temporary. `repr` shows only the key id."""

    access_key_id: str
    secret_access_key: str
    session_token: str = ""

    def __post_init__(self) -> None:
        """Raise CredentialsError if a key has characters that are invalid in a header."""
        if not all(part.isascii() and part.isprintable() for part in msgspec.structs.astuple(self)):
            raise CredentialsError("the AWS keys contain invalid characters")

    def __repr__(self) -> str:
        return f"AwsKeys({self.access_key_id})"


class Signer(msgspec.Struct, frozen=True):
    """Signer of requests to one service in one region."""

    keys: AwsKeys
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
        """Return the headers to add to `fields`: date, session token and signature.

        Args:
            path: path as it is sent. Escapes in it are escaped once more, as all services except S3 require.
            fields: headers to sign, including `host`.
            query: names and values, not escaped.
            now: time in UTC, by default the current time.
        """
        stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
        added = {"x-amz-date": stamp}
        if self.keys.session_token:
            added["x-amz-security-token"] = self.keys.session_token
        collected: dict[str, list[str]] = {}
        for name, value in (*fields, *added.items()):
            # The canonical form joins repeated headers by commas and reduces runs of white space to one space.
            collected.setdefault(name.lower(), []).append(" ".join(value.split()))
        names = sorted(collected)
        signed = ";".join(names)
        pairs = sorted((quote(name, safe=_UNRESERVED), quote(value, safe=_UNRESERVED)) for name, value in query)
        canonical = "\n".join(
            (
                method,
                # `path` is escaped already, so this escapes its `%` once more.
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
        # The derived key is valid for one day, region and service only, so the secret itself never signs a request.
        for part in (stamp[:8], self.region, self.service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        credential = f"{self.keys.access_key_id}/{scope}"
        added["authorization"] = f"{_ALGORITHM} Credential={credential}, SignedHeaders={signed}, Signature={signature}"
        return added


def _normal(path: str) -> str:
    """Return the path without `.`, `..` and empty segments. A trailing slash is retained."""
    normal = posixpath.normpath(re.sub("/+", "/", f"/{path}"))
    return f"{normal}/" if normal != "/" and path.endswith(("/", "/.", "/..")) else normal
