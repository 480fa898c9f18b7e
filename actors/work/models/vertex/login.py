"""Google access tokens from a credentials file, through google-auth.

google-auth supports all kinds of credentials and signs their requests, but with blocking calls. So it runs in a thread,
and each of its requests is sent on the event loop by callboard's transport. Proxies, certificates and cancellation then
work the same as elsewhere. The transport raises server errors at once instead of returning them, which prevents
google-auth's own retries and waits: the retry policy of the model request decides.
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
from .....supervisors.installation import install_command
from ....io.http.transport import SimpleResponse, simple_request
from .location import CredentialsFile

SCOPE = "https://www.googleapis.com/auth/cloud-platform"

TIMEOUT = 20.0
"""Timeout of a request to a token endpoint, in seconds."""

LIFE = 1800.0
"""Assumed lifetime in seconds of a token without an expiry."""

SKEW = 300.0
"""Maximum clock difference in seconds that Google accepts."""

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
"""Types of credentials: the module of google-auth, its constructor, and True if it accepts scopes."""

_MODULE_OF_AWS = "google.auth.aws"
_FROM_AWS = "urn:ietf:params:aws:token-type:aws4_request"
_SIGN_IN = "run `gcloud auth application-default login`"


class _Credentials(Protocol):
    token: str | None
    expiry: datetime | None

    def refresh(self, request: object) -> None: ...


class VertexLogin:
    """Credentials from a file.

    Attributes:
        project: project in the file; "" if it has none.
        billed: project to charge in the file (`quota_project_id`); "" if it has none.
        is_person: True for the credentials of a signed-in user, False for a service account.
    """

    def __init__(self, file: CredentialsFile, info: Mapping[str, Any], credentials: _Credentials) -> None:
        self._file = file
        self._kind = str(info.get("type"))
        self._account = str(info.get("client_email") or "")
        self._credentials = credentials
        self.is_person = self._kind.endswith("authorized_user")
        self.project = str(info.get("project_id") or "")
        self.billed = str(info.get("quota_project_id") or "")

    async def token(self, environ: Mapping[str, str], proxy: str) -> tuple[str, float]:
        """Return a new token and its lifetime in seconds.

        Raises:
            CredentialsError: Google refuses the credentials; the text says what to do.
            UpstreamError: the token endpoint is unreachable or failed.
        """
        asked = _Requests(environ, proxy)
        try:
            await trio.to_thread.run_sync(self._credentials.refresh, asked, abandon_on_cancel=True)
        except Exception as error:  # noqa: BLE001 - google-auth lets errors of its parsers through; all are reported
            self._refused(error, asked)
        token, ends = self._credentials.token, self._credentials.expiry
        if not token:
            raise CredentialsError(f"{self._file}: Google's response has no token")
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
            return f"the clock of this machine is {abs(ahead) / 60:.0f} minutes {way} Google's: correct it"
        if self.is_person:
            return f"the sign-in has expired or was revoked: {_SIGN_IN}"
        if "invalid_grant" in words and self._kind == "service_account":
            return f"the key, or {self._account}, was deleted: create a new key, and set its file"
        return "check the file, and the permissions of its account"


class _Answered(msgspec.Struct, frozen=True):
    """Implementation of `google.auth.transport.Response`."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class _Requests:
    """Implementation of `google.auth.transport.Request`. It is called in a thread and sends on the event loop.

    Attributes:
        ahead: seconds by which this machine's clock is ahead of the last server's.
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

    async def _ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeout: float
    ) -> SimpleResponse:
        answer = await simple_request(
            method, url, headers, body, environ=self._environ, timeout=min(timeout, TIMEOUT), proxy=self._proxy
        )
        # A wrong clock makes Google refuse signed assertions with a misleading text; `_advice` uses the difference.
        date = parsedate_tz(answer.headers.get("date", ""))
        if date is not None:
            self.ahead = time.time() - mktime_tz(date)
        if answer.status >= 500 or answer.status in (408, 429):
            raise UpstreamError(f"no token: {answer.explanation} (HTTP {answer.status})", status=answer.status)
        return answer


def read_login(file: CredentialsFile) -> VertexLogin:
    """Read the credentials in a file. This blocks: call it in a thread.

    Raises:
        ConfigError: the file is unreadable or has no usable credentials, or google-auth is not installed.
    """
    try:
        info = json.loads(Path(file.path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(f"{file} can't be read: {error}") from error
    kind = info.get("type") if isinstance(info, dict) else None
    if kind not in _KINDS:
        raise ConfigError(f"{file} {_what_it_is(info)}: {_SIGN_IN}, or create a key (JSON) of a service account")
    module, maker, scoped = _KINDS[kind]
    if kind == "external_account":
        # google-auth's class for these starts the program itself, outside of the supervised processes.
        if "executable" in (info.get("credential_source") or {}):
            raise ConfigError(f"{file}: credentials printed by a program (`executable`) are not supported")
        # Both kinds have the type `external_account`; google-auth has a class for each.
        if info.get("subject_token_type") == _FROM_AWS:
            module = _MODULE_OF_AWS
    try:
        cls: Any = import_module(module).Credentials
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("google"):
            raise
        raise ConfigError(f"{file} needs google-auth; run: {install_command('vertex')}") from error
    try:
        credentials = getattr(cls, maker)(info, **({"scopes": [SCOPE]} if scoped else {}))
        # google-auth ignores the `token_uri` of user credentials in a file.
        if kind == "authorized_user" and info.get("token_uri"):
            credentials = credentials.with_token_uri(info["token_uri"])
    except Exception as error:
        raise ConfigError(f"{file} contains no valid credentials of type '{kind}': {_words(error)}") from error
    return VertexLogin(file, info, credentials)


def _exceptions() -> Any:
    return import_module("google.auth.exceptions")  # its constructors have no types


def _what_it_is(info: object) -> str:
    if isinstance(info, dict) and ({"installed", "web"} & info.keys()):
        return "is an OAuth client, not the credentials of a user"
    if isinstance(info, dict) and "type" in info:
        return f"has `type: {info['type']}`, expected one of {', '.join(_KINDS)}"
    return "contains no credentials (no `type`)"


def _words(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return str(reason).strip().rstrip(".")[:300] or type(error).__name__
