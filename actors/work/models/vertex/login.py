"""Tokens of Google's for the credentials in a file, by google-auth, which knows their kinds and signs.

google-auth asks with blocking calls: it works in a thread here, and each of its requests is made on the event loop by
our own transport, so that proxies, certificates and cancellation are the same as everywhere. Its own tries and waits
are cut short: whether something is tried again, one policy decides for the whole house.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import mktime_tz, parsedate_tz
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import msgspec
import trio

from .....protocol.errors import ConfigError, CredentialsError, UpstreamError
from ....io.http.brief import Brief, brief
from .place import File

SCOPE = "https://www.googleapis.com/auth/cloud-platform"

TIMEOUT = 20.0
"""Seconds for the connection to a token endpoint, and for its answer."""

LIFE = 1800.0
"""Seconds that a token is used which does not say when it ends."""

SKEW = 300.0
"""Seconds by which a clock may be wrong; Google accepts no more."""

_KINDS = {
    "service_account": ("google.oauth2.service_account", "from_service_account_info", True),
    "authorized_user": ("google.oauth2.credentials", "from_authorized_user_info", False),
    "external_account": ("google.auth.identity_pool", "from_info", True),
    "external_account_authorized_user": ("google.auth.external_account_authorized_user", "from_info", False),
    "impersonated_service_account": (
        "google.auth.impersonated_credentials",
        "from_impersonated_service_account_info",
        True,
    ),
}
"""Types of credentials: the module of google-auth, its way to make them, and whether it takes scopes."""

_MODULE_OF_AWS = "google.auth.aws"
_FROM_AWS = "urn:ietf:params:aws:token-type:aws4_request"
_SIGN_IN = "run `gcloud auth application-default login`"


class _Credentials(Protocol):
    token: str | None
    expiry: datetime | None

    def refresh(self, request: object) -> None: ...


class Login:
    """Credentials that were read from a file.

    Attributes:
        project: the project that the file names; "" if none.
        billed: the project that is charged, if that is another one.
        is_person: whether someone signed in, rather than a service.
    """

    def __init__(self, file: File, info: Mapping[str, Any], credentials: _Credentials) -> None:
        self._file = file
        self._kind = str(info.get("type"))
        self._account = str(info.get("client_email") or "")
        self._credentials = credentials
        self.is_person = self._kind.endswith("authorized_user")
        self.project = str(info.get("project_id") or "")
        self.billed = str(info.get("quota_project_id") or "")

    async def token(self, environ: Mapping[str, str], proxy: str) -> tuple[str, float]:
        """A new token, and the seconds that it is good for.

        Raises:
            CredentialsError: it is refused; the text says what to do.
            UpstreamError: there was no answer that says so.
        """
        asked = _Requests(environ, proxy)
        try:
            await trio.to_thread.run_sync(self._credentials.refresh, asked, abandon_on_cancel=True)
        except Exception as error:  # noqa: BLE001 - google-auth's own and those of what it parses; all are told
            self._refused(error, asked)
        token, ends = self._credentials.token, self._credentials.expiry
        if not token:
            raise CredentialsError(f"{self._file}: the answer has no token")
        life = LIFE if ends is None else (ends.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()
        return token, life

    def _refused(self, error: Exception, asked: _Requests) -> None:
        known = _exceptions()
        if isinstance(error.__cause__, CredentialsError | UpstreamError):
            raise error.__cause__ from None
        if isinstance(error, known.TransportError) or (isinstance(error, known.GoogleAuthError) and error.retryable):
            raise UpstreamError(f"{self._file}: {_words(error)}") from error
        raise CredentialsError(f"{self._file}: {_words(error)}; {self._advice(str(error), asked.ahead)}") from error

    def _advice(self, words: str, ahead: float) -> str:
        if abs(ahead) > SKEW:
            way = "ahead of" if ahead > 0 else "behind"
            return f"the clock of this machine is {abs(ahead) / 60:.0f} minutes {way} Google's: set it"
        if self.is_person:
            return f"the sign-in has expired or was revoked: {_SIGN_IN}"
        if "invalid_grant" in words and self._kind == "service_account":
            return f"the key was deleted, or {self._account} was: make a new key, and name its file"
        return "check the file, and what its account may do"


class _Answered(msgspec.Struct, frozen=True):
    """A `google.auth.transport.Response`."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class _Requests:
    """A `google.auth.transport.Request`, called in a thread.

    Attributes:
        ahead: seconds by which the clock of this machine is before that of the last who answered.
    """

    def __init__(self, environ: Mapping[str, str], proxy: str) -> None:
        self._environ = environ
        self._proxy = proxy
        self.ahead = 0.0

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_: object,
    ) -> _Answered:
        data = body.encode() if isinstance(body, str) else body or b""
        try:
            answer = trio.from_thread.run(self._ask, method, url, headers or {}, data, timeout or TIMEOUT)
        except (CredentialsError, UpstreamError) as error:
            raise _exceptions().TransportError(str(error)) from error
        return _Answered(answer.status, answer.headers, answer.body)

    async def _ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Brief:
        answer = await brief(
            method, url, headers, body, environ=self._environ, timeout=min(timeout, TIMEOUT), proxy=self._proxy
        )
        date = parsedate_tz(answer.headers.get("date", ""))
        if date is not None:
            self.ahead = time.time() - mktime_tz(date)
        if answer.status >= 500 or answer.status in (408, 429):
            raise UpstreamError(f"no token: {answer.said} (HTTP {answer.status})", status=answer.status)
        return answer


def read_login(file: File) -> Login:
    """The credentials in a file. Blocks.

    Raises:
        ConfigError: it can't be read, or holds no credentials that can be used; the text says what it is instead.
    """
    try:
        info = json.loads(Path(file.path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(f"{file} can't be read: {error}") from error
    kind = info.get("type") if isinstance(info, dict) else None
    if kind not in _KINDS:
        raise ConfigError(f"{file} {_what_it_is(info)}: {_SIGN_IN}, or make a key (JSON) of a service account")
    module, maker, scoped = _KINDS[kind]
    if kind == "external_account":
        if "executable" in (info.get("credential_source") or {}):
            raise ConfigError(f"{file}: credentials that a program prints (`executable`) are not supported")
        if info.get("subject_token_type") == _FROM_AWS:
            module = _MODULE_OF_AWS
    try:
        cls: Any = import_module(module).Credentials
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("google"):
            raise
        raise ConfigError(f"{file} needs google-auth; run: pip install 'callboard[vertex]'") from error
    try:
        credentials = getattr(cls, maker)(info, **({"scopes": [SCOPE]} if scoped else {}))
        if kind == "authorized_user" and info.get("token_uri"):
            credentials = credentials.with_token_uri(info["token_uri"])
    except Exception as error:
        raise ConfigError(f"{file} holds no credentials of type '{kind}': {_words(error)}") from error
    return Login(file, info, credentials)


def _exceptions() -> Any:
    return import_module("google.auth.exceptions")  # its constructors have no types


def _what_it_is(info: object) -> str:
    if isinstance(info, dict) and ({"installed", "web"} & info.keys()):
        return "is an OAuth client, not the credentials of a user"
    if isinstance(info, dict) and "type" in info:
        return f"has `type: {info['type']}`, expected one of {', '.join(_KINDS)}"
    return "holds no credentials (no `type`)"


def _words(error: Exception) -> str:
    told = error.args[0] if error.args else error
    return str(told).strip().rstrip(".")[:300] or type(error).__name__
