"""Codecs of models on Vertex AI: the format of each model's maker, at Google's URLs, with a token or an API key.

    gemini-2.5-flash, google/...        {project}/publishers/google/models/{model}:generateContent
                                        {project}/publishers/google/models/{model}:streamGenerateContent?alt=sse
    claude-haiku-4-5@20251001           {project}/publishers/anthropic/models/{model}:rawPredict
    anthropic/...                       {project}/publishers/anthropic/models/{model}:streamRawPredict
    mistral-..., mistralai/...          {project}/publishers/mistralai/models/{model}:rawPredict, OpenAI's format
    meta/llama-..., any other maker     {project}/endpoints/openapi/chat/completions
    endpoints/123                       {project}/endpoints/123:generateContent, a tuned model; also by its full name,
                                        projects/.../locations/.../endpoints/123

Claude's body has `anthropic_version: vertex-2023-10-16` instead of the model, and accepts images only as bytes.

`VertexAccess` adds the project to the path and the token of an `Identity` to the request. The token is refreshed before
it expires. Its lifetime is measured by the boot clock. It includes the time that the machine sleeps, and a change of
the date does not affect it.

Sources: google-genai and anthropic's own clients (`anthropic.lib.vertex`);
https://cloud.google.com/vertex-ai/generative-ai/docs/maas/call-open-model-apis.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec
import trio

from .....protocol import chat
from .....protocol.decoding import json_decoder
from .....protocol.errors import ConfigError, CredentialsError, KeyRefused, ModelError, UpstreamError
from .....protocol.json_values import UNREADABLE
from .....protocol.settings import ClientSettings
from .....protocol.settings.model import Cache
from ....io.imports import imported
from .. import codec
from ..anthropic import AnthropicCodec
from ..gemini import GeminiCodec
from ..openai import OpenAiCodec
from ..refreshing_credential import RefreshingCredential
from .location import (
    EVERYWHERE,
    CredentialsFile,
    Machine,
    Source,
    checked_location,
    maker_of,
    project_of,
    project_of_gcloud,
    source_of,
)

if TYPE_CHECKING:
    import httpx

    from ....io.http.transport import SimpleResponse
    from .login import VertexLogin


Json = Any

CLAUDE_VERSION = "vertex-2023-10-16"

OnVertex = GeminiCodec | AnthropicCodec | OpenAiCodec


def vertex_codec(model: str, access: VertexAccess, cache: Cache, client: str) -> OnVertex:
    """Return the codec of a model on Vertex AI, selected by its publisher.

    Raises:
        ConfigError: the model needs more than an API key.
    """
    maker, _ = maker_of(model)
    if maker == "google":
        return GeminiOnVertex(access)
    if access.is_express:
        raise ConfigError(
            f"'{client}:{model}' can't be used with an API key alone: client '{client}' needs a "
            "`project_id`, and credentials instead of the key"
        )
    return ClaudeOnVertex(access, cache) if maker == "anthropic" else OpenOnVertex(access)


class GeminiOnVertex(GeminiCodec):
    """Codec for Gemini, and for models tuned from it."""

    def __init__(self, access: VertexAccess) -> None:
        super().__init__()
        self._access = access

    def headers(self, key: str) -> dict[str, str]:
        """Return the header with the API key, if one is used."""
        return self._access.headers(key)

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> codec.Outgoing:
        """Return the request in Gemini's format."""
        name = maker_of(model)[1].removeprefix("models/")
        outgoing = super().encode(request, name, stream=stream)
        # A name with a slash is the path of a tuned model (`endpoints/123`), which belongs to the project, not to
        # Google.
        return self._access.out(outgoing, outgoing.path if "/" in name else f"/publishers/google{outgoing.path}")


class ClaudeOnVertex(AnthropicCodec):
    """Codec for Claude."""

    def __init__(self, access: VertexAccess, cache: Cache) -> None:
        super().__init__(cache=cache)
        self._access = access

    def headers(self, key: str) -> dict[str, str]:
        """Return the header with the API key, if one is used."""
        return self._access.headers(key)

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> codec.Outgoing:
        """Return the request in Anthropic's format. Raises ModelError if it has an image by URL."""
        for turn in request.messages:
            parts = () if isinstance(turn, chat.AssistantTurn) else chat.parts_of(turn.content)
            for part in parts:
                if isinstance(part, chat.ImagePart) and part.url and not part.url.startswith("data:"):
                    raise ModelError(
                        f"Claude on Vertex AI accepts only images that are sent as data, not URLs: {part.url}"
                    )
        name = maker_of(model)[1]
        what = "streamRawPredict" if stream else "rawPredict"
        outgoing = super().encode(request, name, stream=stream)
        return self._access.out(outgoing, f"/publishers/anthropic/models/{quote(name, safe='@')}:{what}")

    def addressed(self, _model: str) -> Mapping[str, Json]:
        """Return the version of the format; the path contains the model."""
        return {"anthropic_version": CLAUDE_VERSION}


class OpenOnVertex(OpenAiCodec):
    """Codec for models on Vertex AI that are neither Google's nor Anthropic's, in OpenAI's format."""

    def __init__(self, access: VertexAccess) -> None:
        super().__init__(own=False, cache="off")
        self._access = access

    def headers(self, key: str) -> dict[str, str]:
        """Return the header with the API key, if one is used."""
        return self._access.headers(key)

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> codec.Outgoing:
        """Return the request as a chat completion."""
        maker, name = maker_of(model)
        if maker == "mistralai":
            what = "streamRawPredict" if stream else "rawPredict"
            outgoing = super().encode(request, name, stream=stream)
            return self._access.out(outgoing, f"/publishers/{maker}/models/{quote(name, safe='@')}:{what}")
        # The shared endpoint of open models needs the maker in the model name; Mistral's own path does not.
        outgoing = super().encode(request, f"{maker}/{name}", stream=stream)
        return self._access.out(outgoing, f"/endpoints/openapi{outgoing.path}")


class VertexAccess(msgspec.Struct, frozen=True):
    """Location, project and credentials of a client's requests.

    Attributes:
        location: location of the models.
        identity: adds a token to the requests; None if an API key is used.
        project: project of an API key that is not for express mode; else "".
    """

    location: str = EVERYWHERE
    identity: Identity | None = None
    project: str = ""

    @property
    def is_express(self) -> bool:
        """True for an API key without a project, which gives access only to Google's own models."""
        return self.identity is None and not self.project

    def below(self, path: str) -> str:
        """Return the full path of `path` under the project; `path` itself in express mode, or if it names a project.

        Raises CredentialsError if an identity has no token yet, see `Identity.renew`.
        """
        if self.is_express or path.startswith("/projects/"):
            return path
        project = self.identity.token.project if self.identity is not None else self.project
        return f"/projects/{quote(project, safe=':')}/locations/{self.location}{path}"

    @property
    def sign(self) -> codec.Sign | None:
        """Function that adds the token to a request; None if an API key is used."""
        return None if self.identity is None else self.identity.sign

    def bearer(self, headers: Mapping[str, str]) -> Bearer | None:
        """Return the token bearer with these other headers; None if an API key is used."""
        return None if self.identity is None else Bearer(self.identity, headers)

    def out(self, outgoing: codec.Outgoing, path: str) -> codec.Outgoing:
        """Return a request with `path` under the project and with the token."""
        return msgspec.structs.replace(outgoing, path=self.below(path), sign=self.sign)

    def headers(self, key: str) -> dict[str, str]:
        """Return the header with the API key; empty if a token is used."""
        return {"x-goog-api-key": key} if key and self.identity is None else {}


def access_of(client: ClientSettings, key: str, environ: Mapping[str, str], file: str) -> VertexAccess:
    """Return the location, project and credentials for requests of a client.

    Args:
        key: API key of this client; "" if there is none.
        file: path of the settings, for errors.

    Raises:
        ConfigError: the location is invalid.
        CredentialsError: there are no credentials; the text says what to do.
    """
    location = checked_location(client, environ)
    # A key of the environment does not override a credentials file that the client names.
    if key and (client.api_key or not client.adc_file):
        return VertexAccess(location, None, client.project_id)
    identity = Identity(
        source_of(client, environ, file),
        project_of(client, environ),
        environ,
        name=client.name,
        file=file,
        proxy=client.extra.proxy,
    )
    return VertexAccess(location, identity)


T = TypeVar("T")

EARLY = 225.0
"""Seconds before its expiry at which a token is refreshed. Metadata servers return the same token until then."""

TIMEOUT = 2.0
"""Timeout of a request to the metadata server, in seconds. Short, since the server is on the same machine."""

_ASKING = {"metadata-flavor": "Google"}


class IdentityToken(msgspec.Struct, frozen=True):
    """Access token.

    Attributes:
        access: the token itself; `repr` omits it.
        project: project of the request paths.
        billed: project to charge, if the request has to name it; else "".
    """

    access: str
    project: str
    billed: str = ""

    def __repr__(self) -> str:
        return f"IdentityToken({self.project})"


class _Granted(msgspec.Struct):
    access_token: str
    expires_in: float


_decode = json_decoder(_Granted).decode


def boot_seconds() -> float:
    """Return the seconds since the machine was started, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Identity:
    """Identity of a client's requests: its current token and project.

    Args:
        source: source of the credentials.
        project: project of the requests; "" for the project of the credentials.
        environ: environment with proxies, certificates and the paths of gcloud's files.
        name: name of the client, for errors.
        file: path of the settings, for errors.
        proxy: proxy of the client.
        clock: returns seconds.
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
        self._login: VertexLogin | None = None
        self._renewed = RefreshingCredential(self._ask, early=EARLY, clock=clock)
        self.renew = self._renewed.renew
        """Refreshes the token if it is old. Raises the same errors as `RefreshingCredential.renew`."""

    @property
    def token(self) -> IdentityToken:
        """Current token. Raises CredentialsError before the first `renew`."""
        if self._renewed.current is None:
            raise CredentialsError(f"the token of client '{self._name}' has not been fetched yet")
        return self._renewed.current

    def sign(self, _url: httpx.URL, _body: bytes) -> Mapping[str, str]:
        """Return the headers with the token and the project to charge. Raises the same error as `token`."""
        token = self.token
        headers = {"authorization": f"Bearer {token.access}"}
        return {**headers, "x-goog-user-project": token.billed} if token.billed else headers

    async def other_than(self, token: IdentityToken) -> None:
        """Replace a refused token, unless another task has replaced it already. Raises the same errors as `renew`."""
        self._renewed.refused(token)
        await self.renew()

    async def _ask(self) -> tuple[IdentityToken, float]:
        if isinstance(self._source, Machine):
            access, life, project, billed = await self._of_machine(self._source)
        else:
            access, life, project, billed = await self._of_file(self._source)
        if not project:
            raise ConfigError(
                f"client '{self._name}' has no `project_id`: set it in {self._file}, or GOOGLE_CLOUD_PROJECT"
            )
        if not access or not all(part.isascii() and part.isprintable() for part in (access, billed)):
            raise CredentialsError(f"{self._source} returned a token with invalid characters")
        return IdentityToken(access, project, billed), self._clock() + life

    async def _of_file(self, file: CredentialsFile) -> tuple[str, float, str, str]:
        await imported("google.oauth2.service_account", ".actors.work.models.vertex.login")
        from .login import read_login

        if self._login is None:
            self._login = await trio.to_thread.run_sync(read_login, file)
        login = self._login
        try:
            access, life = await login.token(self._environ, self._proxy)
        except CredentialsError:
            self._login = None  # the user may sign in again, so read the file again next time
            raise
        project = self._project or login.project
        if not project and login.is_person:
            project = await trio.to_thread.run_sync(project_of_gcloud, self._environ) or login.billed
        # Only user credentials need a project to charge; a service account has its own.
        billed = (self._environ.get("GOOGLE_CLOUD_QUOTA_PROJECT") or login.billed) if login.is_person else ""
        return access, life, project, billed

    async def _of_machine(self, machine: Machine) -> tuple[str, float, str, str]:
        answer = await self._metadata(machine, "instance/service-accounts/default/token")
        try:
            granted = _decode(answer.body)
        except UNREADABLE as error:
            raise CredentialsError(f"{machine} returned no token: {answer.explanation}") from error
        project = self._project
        if not project:
            project = (await self._metadata(machine, "project/project-id")).body.decode("latin-1").strip()
        return granted.access_token, granted.expires_in, project, ""

    async def _metadata(self, machine: Machine, what: str) -> SimpleResponse:
        await imported(".actors.io.http.transport")
        from ....io.http.transport import simple_request

        url = f"http://{machine.host}/computeMetadata/v1/{what}"
        # proxy="-": the metadata server is link-local; a proxy cannot reach it.
        answer = await simple_request("GET", url, _ASKING, environ=self._environ, timeout=TIMEOUT, proxy="-")
        text = f"{machine} returned no token: {answer.explanation} (HTTP {answer.status})"
        if answer.status >= 500 or answer.status == 429:
            raise UpstreamError(text, status=answer.status)
        if answer.status == 404:
            raise CredentialsError(f"{text}; attach a service account to the machine, or set `adc_file` to a key file")
        if answer.status != 200 or answer.headers.get("metadata-flavor") != "Google":
            raise CredentialsError(f"{text}: this is not Google's metadata server")
        return answer


class Bearer:
    """`TokenBearer` for Vertex AI. `Identity.sign` adds the token, so `headers` contain only the other headers."""

    def __init__(self, identity: Identity, headers: Mapping[str, str]) -> None:
        self.headers = dict(headers)
        self._identity = identity

    async def renew(self) -> IdentityToken:
        """Refresh the token if it is old, and return it. Raises the same errors as `Identity.renew`."""
        await self._identity.renew()
        return self._identity.token

    async def once_more(self, token: IdentityToken, refused: KeyRefused, send: Callable[[], Awaitable[T]]) -> T:
        """Refresh the token and send a refused request again; return its reply.

        Raises:
            KeyRefused: the request is refused again, or the account lacks a permission.
            ConfigError, CredentialsError, UpstreamError: the token can't be refreshed.
        """
        if refused.status != 401:
            raise refused
        await self._identity.other_than(token)
        return await send()
