"""Embedders and rerankers by model id.

Ids are `client:model` as everywhere. The client is one of `config.yaml`, or a provider by its own name (`openai`,
`ollama`, `cohere`, `gemini`, `bedrock`, `vertexai`). Three models need no provider: `local:static`, `local:minilm` and
`local:words`. One `Embedders` serves a whole process, like the gateway: all users of a model share its connections, its
engine and its limits.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import msgspec
import trio

from .....protocol.environment import variable_value
from .....protocol.errors import ConfigError, KeyRefused, UsageError
from .....protocol.settings import ClientSettings, Settings
from .....supervisors.actor import Actor
from .....supervisors.root import Root
from ...models import weights
from ...models.azure import azure
from ...models.call import Emitter
from ...models.catalog import ModelAccess, ModelCatalog, TokenBearer
from ...models.codec import bearer
from ...models.engines import EMBEDDED_TOKENS, LocalEngines, require_engine
from ...models.gateway import Endpoints
from ...models.limiter import AllowanceRules, Gates
from ...models.providers import organization
from . import local
from .cache import Cached, EmbeddingCache
from .codecs import BY_TYPE, COMPATIBLE, EmbeddingCodec, of_azure, of_bedrock, of_vertex, sized
from .embedder import Embedder
from .remote import AccountOf, ModelClient, OnHeaders, OnUsage, Remote, Send
from .rerank import MiniLM, RemoteReranker, Reranker

if TYPE_CHECKING:
    from ....io.vault.vault import Vault
    from ...models.client import Endpoint
    from ...models.codec import Sign

DEFAULT = local.STATIC
"""Default model: it needs no key and no network."""

MINILM = "local:minilm"

RETRIES, MOST_RETRIES = 2, 100
"""Retries of a failed request: the default, and the maximum."""

THREADS = 2
"""Threads for embedding."""


class Embedders:
    """All embedders and rerankers of a process. Call `aclose` at the end.

    Args:
        settings: settings of `config.yaml`.
        environ: the environment: keys, base URLs, proxies, cache directory.
        owner: parent actor of the local engine; without it `local:minilm` is refused.
        cache: queried first, except for `local:static` and `local:words`, which are as fast as the cache.
        account_of: returns the account in which the upper bound of a request is reserved before it is sent.
        on_usage: called with the tokens that providers report.
        gates: the limiters of the process; without them only `max_concurrency` is enforced.
        may_wait: returns whether requests of this caller may wait for the limiter.
        vault: vault with the secrets that clients name.
        rng: source of the jitter of waits.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        *,
        owner: Actor | Root | None = None,
        cache: EmbeddingCache | None = None,
        account_of: AccountOf = lambda _: None,
        on_usage: OnUsage | None = None,
        gates: Gates | None = None,
        may_wait: Callable[[Emitter], bool] = lambda _: True,
        vault: Vault | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._environ = environ
        self._catalog = ModelCatalog(settings, environ, owner.root if isinstance(owner, Actor) else owner, vault=vault)
        self._owner = owner
        self._cache = cache
        self._endpoints = Endpoints(environ)
        self._account_of = account_of
        self._file = settings.file
        self._tries = 1 + retry_limit(environ)
        self._on_usage = on_usage
        self._gates = gates
        self._may_wait = may_wait
        self._rng = rng if rng is not None else random.Random()  # noqa: S311  (jitter, no secret)
        self._limiter = trio.CapacityLimiter(THREADS)
        self._embedders: dict[tuple[str, int | None], Embedder] = {}
        self._rerankers: dict[str, Reranker] = {}
        self._engines: LocalEngines | None = None

    async def aclose(self) -> None:
        """Close every connection and the cache. The engine ends with its owner."""
        self._embedders.clear()
        self._rerankers.clear()
        self._endpoints.close()
        if self._cache is not None:
            await self._cache.aclose()

    async def prepare(self, *models: str | None) -> None:
        """Load the secrets that the clients of these models name. Call it before `of`, `reranker` and `chunk_size`."""
        for model in models:
            await self._catalog.prepare(model or "")

    async def ready(self, model: str, *, batch: int | None = None) -> Embedder:
        """Load the secrets of a model, then return its embedder as `of` does."""
        await self.prepare(model)
        return self.of(model, batch=batch)

    def check(self, model: str) -> None:
        """Raise as `of` does if no client has this model. Its weights need not be installed."""
        self._catalog.access(model, "embedding")

    def of(self, model: str = DEFAULT, *, batch: int | None = None, dimensions: int | None = None) -> Embedder:
        """Return the embedder for a model id: the same object per model and `batch`, unless `dimensions` is set.

        Args:
            model: `client:model`.
            batch: texts in one request, for models that are reached by requests.
            dimensions: numbers per vector, instead of the value of the settings.

        Raises:
            ConfigError, CredentialsError, Unsupported: the model can't be used; the text says how to fix it.
            UsageError: the model can't make vectors of that length.
        """
        if dimensions is not None:
            # Not cached: any caller can choose the number, so a cache by it would grow without bound.
            return self._shortened(self._catalog.access(model, "embedding"), batch, dimensions)
        embedder = self._embedders.get((model, batch))
        if embedder is None:
            embedder = self._embedders[model, batch] = self._made(self._catalog.access(model, "embedding"), batch)
        return embedder

    def reranker(self, model: str) -> Reranker:
        """Return the reranker for a model id: the same object for each call. Raises like `of`."""
        reranker = self._rerankers.get(model)
        if reranker is None:
            access = self._catalog.access(model, "reranker")
            if access.client.type != "local":
                reranker = RemoteReranker(self._client(access, bearer(access.key)), access)
            elif access.id == MINILM:
                reranker = MiniLM(self.of(MINILM))
            else:
                raise ConfigError(f"unknown local reranker model '{access.id}'; the known one is {MINILM}")
            self._rerankers[model] = reranker
        return reranker

    def adopt(self, client: ClientSettings) -> str:
        """Add a provider client that a definition file describes, for example an agent of a workflow.

        Return its name for model ids (`NAME:model`). Equal clients get the same name.
        """
        return self._catalog.adopt(client)

    def chunk_size(self, model: str = DEFAULT) -> int | None:
        """Return the chunk size of a model from the settings (`default_chunk_size`), or None. Raises like `of`."""
        return self._catalog.access(model, "embedding").model.default_chunk_size

    def _made(self, access: ModelAccess, batch: int | None) -> Embedder:
        if access.client.type != "local":
            return self._cached(self._of_a_client(access, batch), access.model.dimensions)
        match f"local:{access.name}":
            case local.STATIC:
                return local.Static(self._environ, self._limiter)
            case local.WORDS:
                return local.WordsEmbedder(self._limiter)
            case name if name == MINILM:
                return self._cached(self._of_the_engine(access, batch))
        raise ConfigError(
            f"unknown local embedding model '{access.id}'; the known ones are {DEFAULT}, {MINILM}, {local.WORDS}"
        )

    def _shortened(self, access: ModelAccess, batch: int | None, dimensions: int) -> Embedder:
        if access.client.type != "local":
            sized_model = msgspec.structs.replace(access.model, dimensions=dimensions)
            return self._made(msgspec.structs.replace(access, model=sized_model), batch)
        embedder = self.of(access.id, batch=batch)
        if embedder.dimension != dimensions:
            has = "other" if embedder.dimension is None else str(embedder.dimension)
            raise UsageError(
                f"dimensions: vectors of {access.id} have {has} dimensions, and can't be shortened to {dimensions}"
            )
        return embedder

    def _cached(self, embedder: Embedder, dimensions: int | None = None) -> Embedder:
        if self._cache is None:
            return embedder
        return Cached(embedder, self._cache, self._limiter, kind="" if dimensions is None else f"@{dimensions}")

    def _client(self, access: ModelAccess, headers: Mapping[str, str]) -> ModelClient:
        @asynccontextmanager
        async def connect() -> AsyncIterator[Send]:
            if access.signed_in is not None:
                async with self._signed_in(access, access.signed_in) as send:
                    yield send
                return
            # Credentials may expire between two requests of a long build.
            if access.renew is not None:
                await access.renew()
            with self._lease(access, headers) as send:
                yield send

        return ModelClient(
            access.id,
            connect,
            rules=access.rules,
            price=access.price,
            gates=self._gates,
            may_wait=self._may_wait,
            account_of=self._account_of,
            on_usage=self._on_usage,
            file=self._file,
            tries=self._tries,
            rng=self._rng,
        )

    @contextmanager
    def _lease(self, access: ModelAccess, headers: Mapping[str, str]) -> Iterator[Send]:
        """Yield a function that sends requests to a model, with the patches of the settings applied."""
        extra, patched = access.client.extra, access.patched
        base = access.api_base if patched is None else patched.base or access.api_base
        with self._endpoints.lease(base, extra.proxy, extra.connect_timeout) as endpoint:
            if patched is None:
                yield _sending(endpoint, access.id, headers, access.below, access.sign)
                return

            def send(path: str, body: bytes, on_headers: OnHeaders | None) -> Awaitable[bytes]:
                below = patched.below(path) if patched.base else access.below(path)
                fields = patched.headers(headers)
                return endpoint.post(access.id, fields, below, patched.body(body), on_headers, access.sign)

            yield send

    @asynccontextmanager
    async def _signed_in(self, access: ModelAccess, bearer: TokenBearer) -> AsyncIterator[Send]:
        """Yield a function that sends requests with a user's access token.

        A refused request is retried once with a new token.
        """
        token = await bearer.renew()
        with self._lease(access, bearer.headers) as sending:

            async def send(path: str, body: bytes, on_headers: OnHeaders | None) -> bytes:
                try:
                    return await sending(path, body, on_headers)
                except KeyRefused as refused:
                    refusal = refused
                return await bearer.once_more(token, refusal, lambda: sending(path, body, on_headers))

            yield send

    def _of_a_client(self, access: ModelAccess, batch: int | None) -> Remote:
        model, codec = access.model, sized(_codec(access), access.model.dimensions)
        each, all_ = model.max_tokens_per_chunk, model.max_input_tokens
        return Remote(
            self._client(access, codec.headers(access.key) | organization(access.client)),
            access.name,
            codec,
            limiter=self._limiter,
            batch=batch or model.max_batch_size,
            tokens=each or all_,
            request_tokens=all_ if each else None,  # a single configured number is the limit of one text
        )

    def _of_the_engine(self, access: ModelAccess, batch: int | None) -> Remote:
        require_engine()
        (file,) = weights.pulled(access.name, self._environ, kind="embedding")
        if self._owner is None:
            raise ConfigError(f"'{MINILM}' can't be used: this process can't start the local embedding engine")
        if self._engines is None:
            self._engines = LocalEngines(self._owner, self._environ, embeds=True)
        engines = self._engines

        @asynccontextmanager
        async def connect() -> AsyncIterator[Send]:
            async with engines.lease(str(file)) as served:
                headers = {**COMPATIBLE.headers(served.key), "connection": "close"}
                with self._endpoints.lease(f"{served.url}/v1", "-", 10.0) as endpoint:
                    yield _sending(endpoint, access.id, headers)

        # One request at a time. No accounts: tokens of the local engine are not charged.
        client = ModelClient(
            access.id, connect, rules=AllowanceRules(max_concurrency=1), price=access.price, rng=self._rng
        )
        return Remote(
            client,
            access.name,
            COMPATIBLE,
            limiter=self._limiter,
            batch=batch or 16,
            tokens=EMBEDDED_TOKENS,
        )


def _codec(access: ModelAccess) -> EmbeddingCodec:
    match access.client.type:
        case "azure-openai":
            return of_azure(azure(access.api_base, access.client))
        case "bedrock":
            return of_bedrock(access.name)
        case "vertexai":
            return of_vertex(access.name)
        case kind:
            return BY_TYPE[kind]


def _sending(
    endpoint: Endpoint, id: str, headers: Mapping[str, str], below: Callable[[str], str] = str, sign: Sign | None = None
) -> Send:
    def send(path: str, body: bytes, on_headers: OnHeaders | None) -> Awaitable[bytes]:
        return endpoint.post(id, headers, below(path), body, on_headers, sign)

    return send


def retry_limit(environ: Mapping[str, str]) -> int:
    """Return the number of retries: `CALLBOARD_EMBEDDINGS_RETRY_LIMIT`, or Loki's variable.

    Raises:
        ConfigError: the value is not a number from 0 to 100.
    """
    variable, text = variable_value("embeddings_retry_limit", environ)
    if not variable:
        return RETRIES
    if not text.isascii() or not text.isdecimal() or int(text) > MOST_RETRIES:
        raise ConfigError(f"{variable} is '{text}': expected a whole number from 0 to {MOST_RETRIES}")
    return int(text)
