"""Static AWS keys, regions and profiles of a client, and request signing with keys (Signature Version 4).

The order is that of AWS's own tools: the client in `config.yaml`, the environment, then a profile of
`~/.aws/credentials` and `~/.aws/config`. A profile may describe how to obtain temporary keys (see `credential_chain`).
The roles of containers and machines are last (see `roles`).
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

from .....protocol.errors import ConfigError, CredentialsError
from .....protocol.settings import ClientSettings


def bedrock_at(region: str) -> str:
    """Return the base URL of Bedrock in a region; empty without a region."""
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"https://bedrock-runtime.{region}.{domain}" if region else ""


def region_of(client: ClientSettings, environ: Mapping[str, str]) -> str:
    """Return the region of the client, the environment or the profile; empty if none of them names one."""
    region = client.region or environ.get(_variable(client, "region"))
    region = region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    return region or _profile(client, environ).get("region", "")


def keys_of(client: ClientSettings, environ: Mapping[str, str]) -> AwsKeys:
    """Return the static keys of a client.

    Raises:
        CredentialsError: there are none; the text says where to put them.
        ConfigError: an AWS file is unreadable, or the client's profile does not exist.
    """
    keys = named_keys(client, environ) or static_keys(_profile(client, environ))
    if keys is not None:
        return keys
    name = profile_of(client, environ)
    raise CredentialsError(
        f"no credentials for client '{client.name}': set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
        f"AWS_BEARER_TOKEN_BEDROCK, or keys in profile '{name}' of {_file(environ, 'credentials')}"
    )


def named_keys(client: ClientSettings, environ: Mapping[str, str]) -> AwsKeys | None:
    """Return the keys of the client or the environment, else None.

    Raises CredentialsError if the client has only one of the two keys. A half pair in the environment is ignored.

    `AWS_*` variables are ignored if the client names a profile.
    """
    own = AwsKeys(client.access_key_id, client.secret_access_key, client.session_token)
    if bool(own.access_key_id) != bool(own.secret_access_key):
        missing = "secret_access_key" if own.access_key_id else "access_key_id"
        raise CredentialsError(f"client '{client.name}' has no `{missing}`: set both keys, or neither")
    found = [own if own.access_key_id else None, static_keys(environ, lambda key: _variable(client, key))]
    if not client.profile:  # an explicit profile takes precedence over variables that happen to be set
        found.append(static_keys(environ, lambda key: f"AWS_{key}".upper()))
    return next((keys for keys in found if keys is not None), None)


def static_keys(source: Mapping[str, str], called: Callable[[str], str] = "aws_{}".format) -> AwsKeys | None:
    """Return the keys in a mapping; None unless it has both.

    Args:
        called: returns the key of the mapping for a name such as `access_key_id`.
    """
    keys = AwsKeys(*(source.get(called(key), "") for key in ("access_key_id", "secret_access_key", "session_token")))
    return keys if keys.access_key_id and keys.secret_access_key else None


def profile_of(client: ClientSettings, environ: Mapping[str, str]) -> str:
    """Return the name of a client's profile."""
    return client.profile or environ.get("AWS_PROFILE") or "default"


def _variable(client: ClientSettings, key: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", f"{client.name}_{key}".upper())


def _file(environ: Mapping[str, str], what: str) -> Path:
    named = environ.get("AWS_SHARED_CREDENTIALS_FILE" if what == "credentials" else "AWS_CONFIG_FILE", "")
    home = Path(environ.get("HOME") or Path.home())
    return Path(named.replace("~", str(home), 1) if named.startswith("~/") else named or home / ".aws" / what)


def _profile(client: ClientSettings, environ: Mapping[str, str]) -> Mapping[str, str]:
    profile = profile_named(profile_of(client, environ), environ)
    if client.profile and not profile:
        raise ConfigError(f"client '{client.name}': {_no_profile(client.profile, environ)}")
    return profile


def profile_named(name: str, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the merged entries of a profile; empty if it does not exist. `credentials` takes precedence over `config`.

    Raises:
        ConfigError: a file is unreadable.
    """
    return _profile_sections({"config": name if name == "default" else f"profile {name}", "credentials": name}, environ)


def session_named(name: str, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the entries of an SSO session in `config`; empty if it does not exist. Raises ConfigError."""
    return _profile_sections({"config": f"sso-session {name}"}, environ)


def _profile_sections(sections: Mapping[str, str], environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the merged entries of one section per file; later files take precedence."""
    values: dict[str, str] = {}
    for what, section in sections.items():
        file = _file(environ, what)
        # Sections of AWS's files inherit nothing: a `[DEFAULT]` must not add its keys to all profiles.
        parser = ConfigParser(interpolation=None, default_section="\0", strict=False)
        try:
            parser.read_string(file.read_text("utf-8"), str(file))
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError, BadFile) as error:
            raise ConfigError(f"{file} can't be read: {error}") from error
        if parser.has_section(section):
            values |= {key: value for key, value in parser.items(section) if value}
    return values


def _no_profile(name: str, environ: Mapping[str, str]) -> str:
    return f"no profile '{name}' in {_file(environ, 'credentials')} or {_file(environ, 'config')}"


# --- Signature Version 4
#
# This replaces botocore: a package of 14 MB with a client, a session and data of 400 services around a signer of one
# page. It also reads its files and requests roles with blocking calls. The signer produces the signatures of AWS's
# published test suite (aws-c-auth, `aws-sig-v4-test-suite`); see the tests.


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
