"""Codecs of OpenAI's models on Azure: OpenAI's formats at Azure's URLs, with the key in the header `api-key`.

    POST https://{resource}.openai.azure.com/openai/deployments/{deployment}/chat/completions?api-version=...
    POST https://{resource}.openai.azure.com/openai/v1/chat/completions
    POST https://{resource}.openai.azure.com/openai/v1/responses

An `api_base` that ends with `/openai/v1` selects the second kind of URL. A model is a deployment, with a name that its
owner chose. Only the first kind of URL has it in the path; both have it in the body. The Responses API exists only at
the second kind. It is the default there for deployments with the name of a model that needs it.

Dated versions accept different fields. The last stable one, 2024-10-21, and all before it accept neither
`max_completion_tokens` nor `stream_options`, by Azure's own specification; both were added in 2024-09-01-preview. A
stream without `stream_options` does not report token counts, so replies are not streamed with such a version.

Sources: Azure/azure-rest-api-specs, `cognitiveservices/data-plane/AzureOpenAI/inference`;
https://learn.microsoft.com/azure/foundry/openai/api-version-lifecycle.
"""

from __future__ import annotations

import re
from urllib.parse import quote

import msgspec

from ....protocol import chat
from ....protocol.errors import ConfigError
from ....protocol.settings import ClientSettings, ModelSettings
from ....protocol.settings.model import ReasoningSummary
from . import codec
from .openai import OpenAiCodec
from .providers import interface, summary
from .responses import ResponsesCodec

DEFAULT_VERSION = "2024-12-01-preview"
"""Default `api-version` of dated URLs, the same as Loki's. `/openai/v1` needs none."""

_V1 = "/openai/v1"
_DATED = re.compile(r"(\d{4}-\d\d-\d\d)(-preview)?")


class Azure(msgspec.Struct, frozen=True):
    """Azure resource: base URL, version and the paths of its operations.

    Attributes:
        base: URL without a trailing `/openai` or slash, or with a trailing `/openai/v1`.
        version: the `api-version`; empty for none.
        counts_streams: True if a streamed reply can contain token counts.
    """

    base: str
    version: str
    counts_streams: bool

    @property
    def is_v1(self) -> bool:
        """True for URLs without a dated version."""
        return self.base.endswith(_V1)

    def path(self, deployment: str, what: str) -> str:
        """Return the path of an operation (`chat/completions`, `embeddings` or `responses`) below `base`."""
        query = f"?api-version={quote(self.version)}" if self.version else ""
        if self.is_v1:
            return f"/{what}{query}"
        return f"/openai/deployments/{quote(deployment, safe='')}/{what}{query}"


def azure(api_base: str, client: ClientSettings) -> Azure:
    """Return the resource at `api_base` for a client.

    Raises:
        ConfigError: `api_base` is the URL of a single operation, or `api_version` is not a date.
    """
    base = api_base.rstrip("/")
    # Azure's portal shows the URL of one operation, which users copy as the base URL.
    if "/deployments" in base or "?" in base:
        fixed = re.split(r"/openai\b|\?", base)[0]
        raise ConfigError(
            f"`api_base` of client '{client.name}' is the URL of one operation ('{base}'): write '{fixed}', "
            "name the deployment as the model, and the `api-version` as `api_version`"
        )
    if base.endswith(_V1):
        return Azure(base, client.api_version, counts_streams=True)
    version = client.api_version or DEFAULT_VERSION
    dated = _DATED.fullmatch(version)
    if dated is None:
        raise ConfigError(
            f"`api_version` of client '{client.name}' is '{version}': expected a date such as "
            f"'{DEFAULT_VERSION}'; other values are only for an `api_base` that ends with {_V1}"
        )
    day, preview = dated.groups()
    return Azure(base.removesuffix("/openai"), version, day > "2024-10-21" or (day >= "2024-09-01" and bool(preview)))


class AzureCodec(OpenAiCodec):
    """Codec of chat completions on Azure."""

    def __init__(self, place: Azure) -> None:
        # The same versions added `stream_options` and `max_completion_tokens`.
        super().__init__(own=place.counts_streams, cache="off")
        self._place = place

    def headers(self, key: str) -> dict[str, str]:
        """Return Azure's header with the key."""
        return {"api-key": key} if key else {}

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> codec.Outgoing:
        """Return the request as a chat completion of the deployment `model`."""
        outgoing = super().encode(request, model, stream=stream)
        return msgspec.structs.replace(outgoing, path=self._place.path(model, "chat/completions"))


class AzureResponsesCodec(ResponsesCodec):
    """Codec of the Responses API on Azure."""

    def __init__(self, place: Azure, summary: ReasoningSummary) -> None:
        super().__init__(own=True, cache="off", summary=summary)
        self._place = place

    def headers(self, key: str) -> dict[str, str]:
        """Return Azure's header with the key."""
        return {"api-key": key} if key else {}

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> codec.Outgoing:
        """Return the request as a response of the deployment `model`."""
        outgoing = super().encode(request, model, stream=stream)
        return msgspec.structs.replace(outgoing, path=self._place.path(model, "responses"))


def azure_codec(place: Azure, client: ClientSettings, model: ModelSettings, name: str) -> codec.Codec:
    """Return the codec of the deployment `name`.

    Raises:
        ConfigError: the Responses API is selected at a URL that does not have it.
    """
    if interface(client, model, name, own=place.is_v1) == "chat":
        return AzureCodec(place)
    if not place.is_v1:
        raise ConfigError(
            f"`api: responses` of client '{client.name}' needs an `api_base` that ends with {_V1}, not '{place.base}'"
        )
    return AzureResponsesCodec(place, summary(client, model))
