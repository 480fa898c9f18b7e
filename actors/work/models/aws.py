"""Whose requests to AWS are: credentials, and signatures of version 4.

Signing is done here, not by botocore: that is a package of 14 MB with a client, a session and data of 400 services
around a signer of one page, and it reads its files and asks for roles with blocking calls. What is below is that page.
It gives the signatures of AWS's published test suite (aws-c-auth, `aws-sig-v4-test-suite`); see the tests.

Credentials are looked for as AWS's own tools do: what the client of `config.yaml` says, the environment, then a profile
of `~/.aws/credentials` and `~/.aws/config`. They are read once. Roles are last, see `aws_roles`.
"""

from __future__ import annotations

import hashlib
import hmac
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from configparser import ConfigParser
from configparser import Error as BadFile
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import msgspec

from ....protocol.errors import ConfigError, CredentialsError
from ....protocol.settings import ClientSettings

_ALGORITHM = "AWS4-HMAC-SHA256"
_UNRESERVED = "-_.~"


class Keys(msgspec.Struct, frozen=True):
    """A pair of keys, and the token of a session where they are temporary."""

    access_key_id: str
    secret_access_key: str
    session_token: str = ""

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


def bedrock_at(region: str) -> str:
    """Where Bedrock is reached in a region; empty without one."""
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"https://bedrock-runtime.{region}.{domain}" if region else ""


# --- whose they are ---------------------------------------------------------------------------------------


def region_of(client: ClientSettings, environ: Mapping[str, str]) -> str:
    """The region: of the client, of the environment, or of its profile; empty if it is said nowhere."""
    told = client.region or environ.get(_variable(client, "region"))
    told = told or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    return told or _profile(client, environ).get("region", "")


def keys_of(client: ClientSettings, environ: Mapping[str, str]) -> Keys:
    """The keys of a client.

    Raises:
        CredentialsError: there are none; the text says where they were looked for.
        ConfigError: a file of AWS's can't be read.
    """
    own = Keys(client.access_key_id, client.secret_access_key, client.session_token)
    if bool(own.access_key_id) != bool(own.secret_access_key):
        missing = "secret_access_key" if own.access_key_id else "access_key_id"
        raise CredentialsError(f"client '{client.name}' has no `{missing}`: it needs both keys, or neither")
    profile = _profile(client, environ)
    found = [own, _of(environ, lambda key: _variable(client, key))]
    if not client.profile:  # else it was chosen, and wins over what happens to be set
        found.append(_of(environ, lambda key: f"AWS_{key}".upper()))
    found.append(_of(profile, lambda key: f"aws_{key}"))
    for keys in found:
        if keys.access_key_id and keys.secret_access_key:
            return keys
    name = client.profile or environ.get("AWS_PROFILE") or "default"
    raise CredentialsError(
        f"no credentials for client '{client.name}': set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
        f"AWS_BEARER_TOKEN_BEDROCK, or keys in profile '{name}' of {_file(environ, 'credentials')}"
    )


def _of(source: Mapping[str, str], called: Callable[[str], str]) -> Keys:
    return Keys(*(source.get(called(key), "") for key in ("access_key_id", "secret_access_key", "session_token")))


def _variable(client: ClientSettings, key: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", f"{client.name}_{key}".upper())


def _file(environ: Mapping[str, str], what: str) -> Path:
    named = environ.get("AWS_SHARED_CREDENTIALS_FILE" if what == "credentials" else "AWS_CONFIG_FILE", "")
    home = Path(environ.get("HOME") or Path.home())
    return Path(named.replace("~", str(home), 1) if named.startswith("~/") else named or home / ".aws" / what)


def _profile(client: ClientSettings, environ: Mapping[str, str]) -> Mapping[str, str]:
    """What both files say of the client's profile; `credentials` wins."""
    name = client.profile or environ.get("AWS_PROFILE") or "default"
    sections = {"config": name if name == "default" else f"profile {name}", "credentials": name}
    told: dict[str, str] = {}
    for what, section in sections.items():
        file = _file(environ, what)
        parser = ConfigParser(interpolation=None, default_section="\0", strict=False)
        try:
            parser.read_string(file.read_text("utf-8"), str(file))
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError, BadFile) as error:
            raise ConfigError(f"{file} can't be read: {error}") from error
        if parser.has_section(section):
            told |= {key: value for key, value in parser.items(section) if value}
    if client.profile and not told:
        raise ConfigError(
            f"client '{client.name}': no profile '{name}' in {_file(environ, 'credentials')} or "
            f"{_file(environ, 'config')}"
        )
    return told
