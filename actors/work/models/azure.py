"""OpenAI's models on Azure: OpenAI's format at URLs of Azure's, with a header of its own for the key.

    POST https://{resource}.openai.azure.com/openai/deployments/{deployment}/chat/completions?api-version=...
    POST https://{resource}.openai.azure.com/openai/v1/chat/completions
    POST https://{resource}.openai.azure.com/openai/v1/responses

`api_base` says which: one that ends with `/openai/v1` means the second. A model is a deployment, by the name that its
owner gave it; only the first kind of URL has it in the path, both have it in the body. The Responses API is at the
second kind alone, where it is the default for deployments that have the name of a model that needs it.

Dated versions differ in what they take. The last stable one, 2024-10-21, and all before it know neither
`max_completion_tokens` nor `stream_options`, by Azure's own specification; both came with 2024-09-01-preview. A stream
without `stream_options` does not say how many tokens it cost, so with such a version replies come whole.

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
from .codecs import interface, summary
from .openai import OpenAiCodec
from .responses import ResponsesCodec

DEFAULT_VERSION = "2024-12-01-preview"
"""Loki's. `/openai/v1` needs none."""

_V1 = "/openai/v1"
_DATED = re.compile(r"(\d{4}-\d\d-\d\d)(-preview)?")


class Azure(msgspec.Struct, frozen=True):
    """One resource and how its URLs are made.

    Attributes:
        base: without `/openai` and a slash at its end, unless it ends with `/openai/v1`.
        version: the `api-version`; empty for none.
        counts_streams: whether a streamed reply can say how many tokens it cost.
    """

    base: str
    version: str
    counts_streams: bool

    @property
    def is_v1(self) -> bool:
        """Whether it is the kind of URL without dates."""
        return self.base.endswith(_V1)

    def path(self, deployment: str, what: str) -> str:
        """The path of `chat/completions` or `embeddings`, below `base`."""
        query = f"?api-version={quote(self.version)}" if self.version else ""
        if self.is_v1:
            return f"/{what}{query}"
        return f"/openai/deployments/{quote(deployment, safe='')}/{what}{query}"


def azure(api_base: str, client: ClientSettings) -> Azure:
    """The resource at `api_base`, for that client.

    Raises:
        ConfigError: it is the URL of a single operation, or there is no such version.
    """
    base = api_base.rstrip("/")
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
            f"`api_version` of client '{client.name}' is '{version}': expected a date such as '{DEFAULT_VERSION}'; "
            f"other words are for an `api_base` that ends with {_V1}"
        )
    day, preview = dated.groups()
    return Azure(base.removesuffix("/openai"), version, day > "2024-10-21" or (day >= "2024-09-01" and bool(preview)))


class AzureCodec(OpenAiCodec):
    """Translates for a resource of Azure's."""

    def __init__(self, place: Azure) -> None:
        super().__init__(own=place.counts_streams, cache="off")  # versions that know the one know the other
        self._place = place

    def headers(self, key: str) -> dict[str, str]:
        """The key, in Azure's header."""
        return {"api-key": key} if key else {}

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> codec.Outgoing:
        """The request as a chat completion of the deployment `model`."""
        outgoing = super().encode(request, model, stream=stream)
        return msgspec.structs.replace(outgoing, path=self._place.path(model, "chat/completions"))


class AzureResponsesCodec(ResponsesCodec):
    """Translates for the Responses API of a resource of Azure's."""

    def __init__(self, place: Azure, summary: ReasoningSummary) -> None:
        super().__init__(own=True, cache="off", summary=summary)
        self._place = place

    def headers(self, key: str) -> dict[str, str]:
        """The key, in Azure's header."""
        return {"api-key": key} if key else {}

    def encode(self, request: chat.ChatRequest, model: str, *, stream: bool) -> codec.Outgoing:
        """The request as items for the deployment `model`."""
        outgoing = super().encode(request, model, stream=stream)
        return msgspec.structs.replace(outgoing, path=self._place.path(model, "responses"))


def azure_codec(place: Azure, client: ClientSettings, model: ModelSettings, name: str) -> codec.Codec:
    """The codec for a deployment called `name`.

    Raises:
        ConfigError: the Responses API is asked for where it is not.
    """
    if interface(client, model, name, own=place.is_v1) == "chat":
        return AzureCodec(place)
    if not place.is_v1:
        raise ConfigError(
            f"`api: responses` of client '{client.name}' needs an `api_base` that ends with {_V1}, not '{place.base}'"
        )
    return AzureResponsesCodec(place, summary(client, model))
