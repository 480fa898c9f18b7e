"""Whose requests to Vertex AI are: a token that is renewed before it ends, and the project that it is for.

The life of a token is measured by a clock that goes on while the machine sleeps, and that no setting of the date
changes.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec
import trio

from .....protocol.decoding import json_decoder
from .....protocol.errors import ConfigError, CredentialsError, KeyRefused, UpstreamError
from .....protocol.json_values import UNREADABLE
from ....io.imports import imported
from ..renewed import Renewed
from .place import File, Machine, Source, project_of_gcloud

if TYPE_CHECKING:
    import httpx

    from ....io.http.brief import Brief
    from .login import Login

T = TypeVar("T")

EARLY = 225.0
"""Seconds before its end after which a token is renewed. Metadata servers give out the same one until then."""

TIMEOUT = 2.0
"""Seconds for a request to the metadata: it is on the same machine."""

_ASKING = {"metadata-flavor": "Google"}


class Token(msgspec.Struct, frozen=True):
    """A token.

    Attributes:
        project: whose models are asked.
        billed: the project that is charged, where it has to be said.
    """

    access: str
    project: str
    billed: str = ""

    def __repr__(self) -> str:
        return f"Token({self.project})"


class _Granted(msgspec.Struct):
    access_token: str
    expires_in: float


_decode = json_decoder(_Granted).decode


def boot_seconds() -> float:
    """Seconds since the machine was started, asleep or not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Identity:
    """Who asks.

    Args:
        source: where the credentials are.
        project: "" for that of the credentials.
        environ: for proxies and certificates, and gcloud's files.
        name: of the client, for the errors; `file`: where it stands.
        proxy: of the client.
        clock: seconds.
    """

    def __init__(
        self,
        source: Source,
        project: str,
        environ: Mapping[str, str],
        *,
        name: str = "vertexai",
        file: str = "config.yaml",
        proxy: str = "",
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        self._source = source
        self._project = project
        self._environ = environ
        self._name = name
        self._file = file
        self._proxy = proxy
        self._clock = clock
        self._login: Login | None = None
        self._renewed = Renewed(self._ask, early=EARLY, clock=clock)
        self.renew = self._renewed.renew
        """See to it that there is a token. Raises what `Renewed.renew` does."""

    @property
    def token(self) -> Token:
        """The one that `renew` has seen to."""
        if self._renewed.current is None:
            raise CredentialsError(f"client '{self._name}' has no token yet")
        return self._renewed.current

    def sign(self, _url: httpx.URL, _body: bytes) -> Mapping[str, str]:
        """What a request carries."""
        token = self.token
        headers = {"authorization": f"Bearer {token.access}"}
        return {**headers, "x-goog-user-project": token.billed} if token.billed else headers

    async def other_than(self, token: Token) -> None:
        """See to another token, since that one was refused. Raises as `renew`."""
        self._renewed.refused(token)
        await self.renew()

    async def _ask(self) -> tuple[Token, float]:
        if isinstance(self._source, Machine):
            access, life, project, billed = await self._of_machine(self._source)
        else:
            access, life, project, billed = await self._of_file(self._source)
        if not project:
            raise ConfigError(
                f"client '{self._name}' has no `project_id`: set it in {self._file}, or GOOGLE_CLOUD_PROJECT"
            )
        if not access or not all(part.isascii() and part.isprintable() for part in (access, billed)):
            raise CredentialsError(f"{self._source} gave no token, but something with characters that no token has")
        return Token(access, project, billed), self._clock() + life

    async def _of_file(self, file: File) -> tuple[str, float, str, str]:
        await imported("google.oauth2.service_account", ".actors.work.models.vertex.login")
        from .login import read_login

        if self._login is None:
            self._login = await trio.to_thread.run_sync(read_login, file)
        login = self._login
        try:
            access, life = await login.token(self._environ, self._proxy)
        except CredentialsError:
            self._login = None  # after another sign-in the file is another one
            raise
        project = self._project or login.project
        if not project and login.is_person:
            project = await trio.to_thread.run_sync(project_of_gcloud, self._environ) or login.billed
        billed = (self._environ.get("GOOGLE_CLOUD_QUOTA_PROJECT") or login.billed) if login.is_person else ""
        return access, life, project, billed

    async def _of_machine(self, machine: Machine) -> tuple[str, float, str, str]:
        answer = await self._metadata(machine, "instance/service-accounts/default/token")
        try:
            granted = _decode(answer.body)
        except UNREADABLE as error:
            raise CredentialsError(f"{machine} has no token for us: {answer.said}") from error
        project = self._project
        if not project:
            project = (await self._metadata(machine, "project/project-id")).body.decode("latin-1").strip()
        return granted.access_token, granted.expires_in, project, ""

    async def _metadata(self, machine: Machine, what: str) -> Brief:
        await imported(".actors.io.http.brief")
        from ....io.http.brief import brief

        url = f"http://{machine.host}/computeMetadata/v1/{what}"
        answer = await brief("GET", url, _ASKING, environ=self._environ, timeout=TIMEOUT, proxy="-")
        text = f"{machine} has no token for us: {answer.said} (HTTP {answer.status})"
        if answer.status >= 500 or answer.status == 429:
            raise UpstreamError(text, status=answer.status)
        if answer.status == 404:
            raise CredentialsError(f"{text}; give the machine a service account, or name a key file")
        if answer.status != 200 or answer.headers.get("metadata-flavor") != "Google":
            raise CredentialsError(f"{text}: this is no metadata server of Google's")
        return answer


class Bearer:
    """A `TokenBearer`: the token is in the signature of each request, and `headers` are what it carries besides."""

    def __init__(self, identity: Identity, headers: Mapping[str, str]) -> None:
        self.headers = dict(headers)
        self._identity = identity

    async def renew(self) -> Token:
        """See to a token. Raises as `Identity.renew`."""
        await self._identity.renew()
        return self._identity.token

    async def once_more(self, token: Token, refused: KeyRefused, send: Callable[[], Awaitable[T]]) -> T:
        """The reply to a request that was refused with that token, if it is not with another one.

        Raises:
            KeyRefused: it is, or the account may not do this.
        """
        if refused.status != 401:
            raise refused
        await self._identity.other_than(token)
        return await send()
