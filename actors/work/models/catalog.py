"""Model catalog: resolves model ids to `ModelTarget` and `ModelAccess`, and selects the default model.

An id is `client:model`. The client is one of `config.yaml`, or a provider by its own name without an entry there
(`openai`, `claude` or `anthropic`, `bedrock`, `cohere`, `gemini`, `ollama`, `local`). `cassette:FILE` replays the
replies of a recorded run.

Resolution is synchronous and sends no request: front ends check a model before they start a run. It reads only small
local files: AWS profiles, OAuth tokens, key files and cassettes. The error for an unknown model may load the price
table, to suggest an id. A secret that takes time to fetch raises NotFetched; `fetched` and `prepare` fetch it first.
Codecs are imported where they are used, so a process loads only the codecs of its own providers.

A `ModelTarget` is a resolved model: its address, headers, codec, price and capabilities.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from ....protocol.chat import (
    CASSETTE,
    AssistantTurn,
    ChatReply,
    ChatRequest,
    Delta,
    ImagePart,
    TextPart,
    TokenUsage,
    ToolTurn,
    Turn,
    UserTurn,
    models_of,
    parts_of,
)
from ....protocol.errors import ConfigError, CredentialsError, KeyRefused, Unsupported
from ....protocol.settings import CLIENT_TYPES, ClientSettings, ModelSettings, Settings
from ....protocol.settings.patches import Api
from ...io.environment import key_in_file
from ...io.imports import imported
from ...io.vault.lookups import Lookup, OfEnvironment
from . import providers, weights
from .codec import Codec, Sign, name_of, with_preface
from .engines import require_engine
from .limiter import AllowanceRules
from .prices.price import Price, Prices
from .providers import OF_ITS_FILE, codec_of, filled, module_of

if TYPE_CHECKING:
    from ....supervisors import Root
    from .aws.credential_chain import RoleSigner
    from .aws.keys import Signer
    from .patching import Patched
    from .python_model import Model
    from .signed_in import SignedIn, SignIns
    from .vertex.codecs import VertexAccess

T = TypeVar("T")


class TokenBearer(Protocol):
    """Token that expires, and the request headers that contain it.

    Attributes:
        headers: headers of the next request; current after `renew`.
    """

    headers: dict[str, str]

    async def renew(self) -> Any:
        """Refresh the token if it expires soon, and return it."""
        ...

    async def once_more(self, token: Any, refused: KeyRefused, send: Callable[[], Awaitable[T]]) -> T:
        """Refresh the token and send a refused request again; return its reply.

        Args:
            token: the token that the provider refused.
            refused: the refusal.
            send: sends the request with the current `headers`.
        """
        ...


class ModelChoice(msgspec.Struct, frozen=True):
    """Default model with the reason for its choice. `str(choice)` is one line for the user."""

    model: str
    why: str
    is_last_resort: bool = False
    """True if neither the settings nor an API key select a model."""

    def __str__(self) -> str:
        return f"model: {self.model} ({self.why})"


class PreparedReplies(Protocol):
    """Source of replies without a provider: a cassette, or a model implemented in Python."""

    def reply(
        self, path: str, request: ChatRequest, hears: Callable[[Delta], object]
    ) -> Coroutine[Any, Any, ChatReply]:
        """Return the reply to a request of the actor `path`; `hears` is called with its deltas."""
        ...


class ModelTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Chat model with everything that a request needs.

    Attributes:
        id: `client:model`.
        name: the provider's name of the model.
        codec: translates requests and replies.
        model: entry of the model in the settings.
        api_base: base URL, without a trailing slash; empty for a local engine.
        headers: headers of every request, the key included.
        engine: path of the weights that a local engine has to load, else None.
        prepared: returns the replies of a cassette or of a Python model; else None.
        own_cost: True if the cost in replies takes precedence over `price`.
        proxy: URL, `-` for no proxy, empty for the proxy of the environment.
        connect_timeout: seconds.
        server: `host:port` of `api_base`; empty if no request uses the network.
        rules: rate limits.
        idle_timeout: seconds that a stream may make no progress.
        renew: refreshes keys that expire, before every request; None if they do not expire.
        signed_in: token that expires and can be replaced after a refusal; None if there is none.
        price: price lookup, done with the first request.
        patched: changes of requests from the settings, which `codec` applies; None if there are none.
    """

    id: str
    name: str
    codec: Codec
    model: ModelSettings
    api_base: str
    headers: dict[str, str]
    engine: str | None = None
    prepared: PreparedReplies | None = None
    own_cost: bool = False
    proxy: str = ""
    connect_timeout: float = 10.0
    server: str = ""
    rules: AllowanceRules = AllowanceRules()
    idle_timeout: float = math.inf
    renew: Callable[[], Awaitable[None]] | None = None
    signed_in: TokenBearer | None = None
    price: Price
    patched: Patched | None = None

    @property
    def account(self) -> str:
        """Name of the provider account, the same in all processes with the same key; "" for local engines and
        cassettes, which other processes do not share.
        """
        secrets = "" if self.signed_in is not None or self.renew is not None else self.headers
        return (
            "" if self.engine is not None or self.prepared is not None else account_of(self.id, self.api_base, secrets)
        )

    def cost(self, usage: TokenUsage) -> float | None:
        """Return the cost in USD; None if the price is unknown."""
        tariff = self.price.tariff
        return None if tariff is None else tariff.cost(usage)

    def complete(self, request: ChatRequest, settings: Settings) -> ChatRequest:
        """Return the request with options from the settings, and without features that this model does not support.

        Raises:
            Unsupported: the user's message has an image, which the model does not accept; or the request turns
                reasoning on or off, which the model does not support.
        """
        model = self.model
        changes: dict[str, object] = {}
        if not model.supports_vision and any(_has_image(turn) for turn in request.messages):
            if any(isinstance(turn, UserTurn) and _has_image(turn) for turn in request.messages):
                raise Unsupported(f"'{self.id}' does not accept images (`supports_vision: false`)")
            # Only tool results have images: a tool that returns images must stay usable with a text-only model.
            request = msgspec.structs.replace(request, messages=tuple(map(_without_images, request.messages)))
        if (request.reasoning_effort or model.reasoning_effort or settings.reasoning_effort) is not None or (
            request.thinking_budget,
            model.thinking_budget,
            settings.thinking_budget,
        ) != _NO_BUDGETS:
            from . import reasoning  # imported late: most requests ask for no reasoning

            changes = reasoning.wanted(request, self.id, self.name, model, settings)
        if request.model != self.id:
            changes["model"] = self.id
        for field in ("temperature", "top_p"):
            if getattr(request, field) is None and getattr(settings, field) is not None:
                changes[field] = getattr(settings, field)
        if request.max_tokens is None:
            needed = model.max_output_tokens if model.require_max_tokens else None
            most = settings.max_output_tokens or needed
            if most is not None:
                changes["max_tokens"] = most
        system, prefix = request.system, model.system_prompt_prefix
        # Some models require the prefix in a paragraph of its own. A prefix that ends in white space sets its own
        # separator.
        if prefix:
            system = prefix + (system if not system or prefix[-1].isspace() else f"\n\n{system}")
        if model.no_system_message and system:
            changes["messages"] = with_preface(request, system)
            system = ""
        if system != request.system:
            changes["system"] = system
        if request.response_schema is not None and not model.supports_json_schema:
            changes["response_schema"] = None
        if request.tools and not model.supports_function_calling:
            changes["tools"] = ()
        return msgspec.structs.replace(request, **changes) if changes else request


_NO_BUDGETS = (None, None, None)


def _has_image(turn: Turn) -> bool:
    return not isinstance(turn, AssistantTurn) and any(isinstance(part, ImagePart) for part in parts_of(turn.content))


def _without_images(turn: Turn) -> Turn:
    """Return the turn with the images of a tool result replaced by their names."""
    if not isinstance(turn, ToolTurn) or not _has_image(turn):
        return turn
    named = (TextPart(f"[{name_of(p)}]") if isinstance(p, ImagePart) else p for p in parts_of(turn.content))
    return msgspec.structs.replace(turn, content=tuple(named))


class ModelAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Embedding model or reranker with everything that a request needs.

    Attributes:
        id: `client:model`.
        name: the provider's name of the model.
        model: entry of the model in the settings.
        client: the client; its type determines the wire format.
        api_base: base URL, without a trailing slash; empty for a local model.
        key: API key; empty if none is needed.
        price: price lookup.
        rules: rate limits.
        patched: changes of requests from the settings; None if there are none.
        renew: refreshes credentials that expire, before every request; None if they do not expire.
        sign: returns the signature headers of a request, for providers without a key; else None.
        signed_in: token that expires, the same as in `ModelTarget`.
        below: returns the full path below `api_base` for the path of the wire format.
    """

    id: str
    name: str
    model: ModelSettings
    client: ClientSettings
    price: Price
    rules: AllowanceRules = AllowanceRules()
    patched: Patched | None = None
    api_base: str = ""
    key: str = ""
    renew: Callable[[], Awaitable[None]] | None = None
    sign: Sign | None = None
    signed_in: TokenBearer | None = None
    below: Callable[[str], str] = str


def account_of(model: str, api_base: str, secrets: object) -> str:
    """Return a name for a model and the credentials used with it. The name does not reveal them."""
    return sha256(msgspec.json.encode((model, api_base, secrets), order="deterministic")).hexdigest()[:32]


def idle_timeout_of(*choices: float | None) -> float:
    """Return the first choice that is not None, in seconds; 0 or no choice means no timeout (infinite)."""
    chosen = next((seconds for seconds in choices if seconds is not None), 0.0)
    return chosen or math.inf


def rules_of(client: ClientSettings, entry: ModelSettings) -> AllowanceRules:
    """Return the rate limits of a model: its own, else its client's.

    A local model without a configured `max_concurrency` gets one request at a time.
    """
    return AllowanceRules(
        requests_per_minute=entry.requests_per_minute or client.requests_per_minute,
        tokens_per_minute=entry.tokens_per_minute or client.tokens_per_minute,
        max_concurrency=entry.max_concurrency or client.max_concurrency or (1 if client.type == "local" else None),
    )


Task = Literal["embedding", "reranker"]
"""Task of a model for knowledge bases; the `type` of its entry in `config.yaml`."""

PYTHON = "python"
"""Client type of models implemented in Python."""

_APIS: dict[Task, Api] = {"embedding": "embeddings", "reranker": "rerank"}

_WHO_CAN: dict[Task, frozenset[str]] = {
    "embedding": frozenset(CLIENT_TYPES) - {"claude", "anthropic"},
    "reranker": frozenset({"openai-compatible", "cohere", "bedrock", "local"}),
}
"""Client types whose models callboard can use, by task."""

_DEFAULTS = {"openai": "gpt-4o-mini", "claude": "claude-haiku-4-5", "local": weights.DEFAULT}
"""Default model of a client that lists none."""


class ModelCatalog:
    """All models of the settings and the environment.

    Resolved models are cached for the lifetime of the catalog.

    Args:
        root: actor tree under which token keepers run. Without it, models with OAuth clients resolve but cannot send
            requests.
        vault: source of the secrets that clients name; without it, the environment.

    Attributes:
        prices: prices of the models.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        root: Root | None = None,
        *,
        vault: Lookup | None = None,
    ) -> None:
        self._settings = settings
        self._secrets = vault or OfEnvironment(environ)
        self._environ = environ
        self._root = root
        self._sign_ins: SignIns | None = None
        self._clients = {client.name: client for client in settings.clients}
        self._targets: dict[str, ModelTarget] = {}
        self._several: dict[str, tuple[ModelTarget, ...]] = {}
        self._adopted: dict[ClientSettings, str] = {}
        self._doors: dict[str, VertexAccess] = {}
        self._python: dict[str, Model] = {}
        self.prices: Prices = Prices(environ, settings.file)

    def with_models(self, models: Mapping[str, Model]) -> ModelCatalog:
        """Return a copy that also has these Python models, which replace models of the same names.

        All else is shared with the original. So the Python models of one run end with its copy.
        """
        other = copy.copy(self)
        other._take(models)  # noqa: SLF001 - a copy of mine
        return other

    def _take(self, models: Mapping[str, Model]) -> None:
        self._python = {**self._python, **models}
        self._targets = {name: target for name, target in self._targets.items() if name not in models}
        self._several = {
            text: targets
            for text, targets in self._several.items()
            if models.keys().isdisjoint(target.id for target in targets)
        }

    def adopt(self, client: ClientSettings) -> str:
        """Add a client that a definition file describes, and return its name for ids (`client:model`).

        Equal clients get the same name, and so share connections. The name contains the client's own name and its host,
        since users read it in events and errors. The client has only the key of its description: keys of the
        environment must not be sent to an address that a file names.
        """
        name = self._adopted.get(client)
        if name is None:
            host = re.sub(r"[^\w.-]", "-", urlsplit(client.api_base).netloc) or "own-key"
            name = stem = f"{client.name or client.type}@{host}"
            number = 1
            while name in self._clients:
                number += 1
                name = f"{stem}-{number}"
            self._adopted[client] = name
            self._clients[name] = msgspec.structs.replace(client, name=name)
        return name

    # --- the default

    def choice(self) -> ModelChoice:
        """Return the default model. This sends no request.

        The order is: `model` of the settings; a chat model of the first client that needs no key, has one, or has an
        address of its own; OpenAI or Claude if the environment has their key; the small local model.
        """
        settings = self._settings
        if settings.model:
            return ModelChoice(self.full(settings.model), f"from {settings.model_from or settings.file}")
        for client in settings.clients:
            model = self._first_model(client)
            if model and (client.type in providers.KEYLESS or self._is_reached(client)):
                return ModelChoice(f"{client.name}:{model}", f"the first client of {settings.file}")
        for variable, name in (("OPENAI_API_KEY", "openai"), ("ANTHROPIC_API_KEY", "claude")):
            if self._environ.get(variable):
                return ModelChoice(f"{name}:{_DEFAULTS[name]}", f"{variable} is set and no model is configured")
        return ModelChoice(f"local:{weights.DEFAULT}", "no model is configured and no API key is set", True)

    def _is_reached(self, client: ClientSettings) -> bool:
        own = client.api_base or client.region or client.project_id or client.location or client.adc_file
        return bool(own or providers.signs_in(client) or self._key(client)[0])

    def _first_model(self, client: ClientSettings) -> str:
        listed = (model.name for model in client.models if model.type == "chat")
        return next(listed, _DEFAULTS.get(providers.BUILT_IN.get(client.type, ""), "") or providers.suggested(client))

    def full(self, model: str) -> str:
        """Return the full id: for a client's bare name, `client:` and its first model; any other id unchanged.

        In a comma-separated list, each item is completed.
        """
        if "," in model:
            return ",".join(map(self._whole, models_of(model)))
        return self._whole(model)

    def _whole(self, model: str) -> str:
        if ":" not in model:
            client = self._client(model)
            first = self._first_model(client) if client else ""
            if first:
                return f"{model}:{first}"
        return model

    # --- one model, or several

    def targets(self, model: str) -> tuple[ModelTarget, ...]:
        """Return the models of a comma-separated list (`models_of`), in its order. Raises like `target`."""
        targets = self._several.get(model)
        if targets is None:
            names = models_of(model)
            # A lone empty name is an unknown model, with its own error from `target`.
            if "" in names and len(names) > 1:
                raise ConfigError(f"'{model}' has an empty entry next to a comma; expected `client:model,client:model`")
            targets = self._several[model] = tuple(map(self.target, names))
        return targets

    def known(self, model: str) -> tuple[ModelTarget, ...] | None:
        """Return the models of a list (or of one id) that `targets` has resolved before, else None."""
        return self._several.get(model)

    async def fetched(self, model: str) -> tuple[ModelTarget, ...]:
        """Import the codecs of a list of models, fetch their secrets, and return the models. Raises like `target`."""
        await imported(*{module_of(self.named(self.full(name))[0].type) for name in models_of(model) if name})
        return await self._secrets.ready(partial(self.targets, model))

    def target(self, model: str) -> ModelTarget:
        """Return the model with that id.

        Raises:
            ConfigError: there is no such client or model, or a base URL is missing.
            CredentialsError: there is no key for the model.
            NotFetched: the client needs a secret that takes time to fetch.
        """
        target = self._targets.get(model)
        if target is None:
            target = self._targets[model] = self._find(self.full(model))
        return target

    def named(self, model: str) -> tuple[ClientSettings, ModelSettings]:
        """Return the settings of a chat model and its client. This needs no key and no weights.

        Raises:
            ConfigError: there is no such client or model.
        """
        model = self.full(model)
        client_name, _, name = model.partition(":")
        if model in self._python:
            from .python_model import settings_of

            return ClientSettings(type=PYTHON, name=client_name), settings_of(self._python[model])
        client = self._client(client_name)
        if client is None or not name:
            raise ConfigError(self._unknown(model))
        return client, self._entry(client, name)

    def files_of(self, model: str) -> list[str]:
        """Return the file paths in the ids of `model`: weights and cassettes. Models of the settings have none."""
        return [file for name in models_of(model) if (file := self._file_of(name)) is not None]

    def _file_of(self, model: str) -> str | None:
        try:
            client, entry = self.named(model)
        except (ConfigError, Unsupported):
            return None
        name = entry.real_name or entry.name
        if client.type == CASSETTE:
            return name
        return name if client.type == "local" and not client.models and weights.is_path(name) else None

    def _find(self, model: str) -> ModelTarget:
        if model in self._python:
            return self._find_python(model)
        client, name = self._filled(self.named(model)[0]), model.partition(":")[2]
        entry = self._entry(client, name)
        name = entry.real_name or name
        patched = self._patched(client, entry, "chat_completions")
        target = partial(
            ModelTarget,
            id=model,
            name=name,
            patched=patched,
            rules=rules_of(client, entry),
            idle_timeout=idle_timeout_of(entry.idle_timeout, self._settings.model_idle_timeout),
            price=self.prices.of(client, entry, providers.base_of(client, self._environ)),
        )
        codec: Codec
        if client.type == CASSETTE:
            from .cassette import Cassette
            from .openai import OpenAiCodec

            prepared = Cassette(name, self._environ)
            price = self._price_of(prepared.model)
            return target(
                model=entry, codec=OpenAiCodec(own=False), prepared=prepared, price=price, api_base="", headers={}
            )
        if client.type == "local":
            require_engine()
            from .local import LocalCodec

            codec, engine = _patching(LocalCodec(), patched), str(weights.located(name, self._environ))
            return target(model=entry, codec=codec, engine=engine, api_base="", headers={}, proxy="-")
        api_base, key = self._vertex_access(client, model)
        signed_in: TokenBearer | None = None
        renew: Callable[[], Awaitable[None]] | None = None
        cache = entry.cache or client.cache or self._settings.cache
        if client.type == "azure-openai":
            from .azure import azure, azure_codec

            place = azure(api_base, client)
            codec = azure_codec(place, client, entry, name)
            # Without token counts a streamed reply could not be charged, so such versions do not stream.
            if not place.counts_streams:
                entry = msgspec.structs.replace(entry, no_stream=True)
        elif client.type == "bedrock":
            from .aws.bedrock import BedrockCodec
            from .aws.credential_chain import RoleSigner

            signer = self._signer(client, key, model)
            codec = BedrockCodec(signer, cache=cache)
            if isinstance(signer, RoleSigner):
                renew = signer.role.renew
        elif client.type == "vertexai":
            from .vertex.codecs import vertex_codec

            access = self._vertex(client, key, model)
            codec = vertex_codec(name, access, cache, client.name)
            signed_in = access.bearer(_changed(self._own_headers(client), patched))
        else:
            codec = codec_of(client, entry, name, api_base, cache)
            if providers.signs_in(client):
                signed_in = self._signed_in(client, _patching(codec, patched).headers(""))
        asked = api_base if patched is None else patched.base or api_base
        return target(
            model=entry,
            codec=_patching(codec, patched),
            renew=renew,
            api_base=asked,
            server=_server_of(asked),
            headers=_changed(codec.headers(key) | self._own_headers(client), patched),
            signed_in=signed_in,
            proxy=client.extra.proxy,
            connect_timeout=client.extra.connect_timeout,
        )

    def _find_python(self, model: str) -> ModelTarget:
        from .openai import OpenAiCodec
        from .python_model import PythonReplies

        client, entry = self.named(model)
        return ModelTarget(
            id=model,
            name=entry.name,
            model=entry,
            codec=OpenAiCodec(own=False),
            prepared=PythonReplies(self._python[model]),
            own_cost=True,
            price=self.prices.of(client, entry, ""),
            rules=rules_of(client, entry),
            api_base="",
            headers={},
        )

    def _price_of(self, model: str) -> Price:
        """Return the price of the model that a cassette was recorded from."""
        name = model.partition(":")[0]
        client = self._client(name) or ClientSettings(type=name, name=name)
        entry = ModelSettings(name=model.partition(":")[2])
        return self.prices.of(client, entry, providers.base_of(client, self._environ))

    def _patched(self, client: ClientSettings, entry: ModelSettings, api: Api) -> Patched | None:
        if entry.patch is None and client.patch is None and not self._settings.patches:
            return None
        from .patching import patched

        # Patches of the environment name clients of the settings; a client of a file may have the same name.
        known = client.name not in self._adopted.values()
        return patched(self._settings, client, entry, api, by_environment=known)

    def _signer(self, client: ClientSettings, key: str, model: str) -> Signer | RoleSigner | None:
        """Return the AWS signer, or None if a bearer key is used. Access keys of the client precede a bearer key."""
        if key and not client.access_key_id:
            return None
        self._refuse_adopted(client, model)
        from .aws.credential_chain import signer_of

        return signer_of(client, "bedrock", self._environ, self._settings.file, self._root)

    def _vertex(self, client: ClientSettings, key: str, model: str) -> VertexAccess:
        """Return the Vertex AI access of a client. All models of a client share it, and with it the token."""
        access = self._doors.get(client.name)
        if access is None:
            if not key:
                self._refuse_adopted(client, model)
            from .vertex.codecs import access_of

            access = self._doors[client.name] = access_of(client, key, self._environ, self._settings.file)
        return access

    def _signed_in(self, client: ClientSettings, headers: dict[str, str]) -> SignedIn | None:
        """Return the token bearer of an OAuth client with these further headers; None without `root`."""
        from .signed_in import SignedIn, SignIns, check_signed_in

        check_signed_in(client, self._environ, self._settings.file)
        if self._root is None:
            return None
        if self._sign_ins is None:
            self._sign_ins = SignIns(self._root, self._environ, self._settings.file)
        own = client.oauth.headers if client.oauth is not None else {}
        # The codec was asked for headers with an empty key, and an empty key header would be refused.
        unnamed = {name: value for name, value in headers.items() if value}  # without an empty key
        return SignedIn(client.name, self._sign_ins.keeper(client), unnamed | self._own_headers(client) | own)

    def _refuse_adopted(self, client: ClientSettings, model: str) -> None:
        """Raise CredentialsError for a client of a definition file: it may not use credentials of the environment."""
        if client.name in self._adopted.values():
            raise CredentialsError(f"no API key for '{model}': add `api_key` to the file that sets its `api_base`")

    def _own_headers(self, client: ClientSettings) -> dict[str, str]:
        return providers.own_headers(client, self._settings)

    def access(self, model: str, task: Task) -> ModelAccess:
        """Return the embedding model or reranker with that id.

        Models that the client does not list are accepted, unless it lists others of this type.

        Raises:
            ConfigError: there is no such client or model, or a base URL is missing.
            CredentialsError: there is no key for the model.
            NotFetched: the client needs a secret that takes time to fetch.
            Unsupported: clients of that type have no models for the task.
        """
        client_name, _, name = model.partition(":")
        client = self._client(client_name)
        if client is None or not name:
            raise ConfigError(self._unknown(model).replace("chat", task, 1))
        if client.type not in _WHO_CAN[task]:
            raise Unsupported(f"'{model}': clients of type '{client.type}' have no model of type '{task}'")
        listed = {entry.name: entry for entry in client.models if entry.type == task}
        if listed and name not in listed:
            known = ", ".join(f"{client_name}:{entry}" for entry in listed)
            raise ConfigError(f"unknown {task} model '{model}'; client '{client_name}' has: {known}")
        client = self._filled(client)
        # Look up the entry again: interpolation may have changed it.
        entry = next((each for each in client.models if each.name == name and each.type == task), None)
        entry = entry or ModelSettings(name=name, type=task)
        price = self.prices.of(client, entry, providers.base_of(client, self._environ))
        rules, patched = rules_of(client, entry), self._patched(client, entry, _APIS[task])
        name = entry.real_name or name
        access = ModelAccess(id=model, name=name, model=entry, client=client, price=price, rules=rules, patched=patched)
        if client.type == "local":
            return access
        if providers.signs_in(client):
            bearer = self._signed_in(client, {})
            return msgspec.structs.replace(access, api_base=self._api_base(client), signed_in=bearer)
        api_base, key = self._vertex_access(client, model)
        if client.type == "vertexai":
            vertex = self._vertex(client, key, model)
            # A token replaces the key: both in one request would be ambiguous.
            key = "" if vertex.identity is not None else key
            access = msgspec.structs.replace(access, signed_in=vertex.bearer({}), sign=vertex.sign, below=vertex.below)
        elif client.type == "bedrock":
            from .aws.bedrock import signed
            from .aws.credential_chain import RoleSigner

            signer = self._signer(client, key, model)
            if signer is not None:
                renew = signer.role.renew if isinstance(signer, RoleSigner) else None
                access, key = msgspec.structs.replace(access, renew=renew, sign=partial(signed, signer)), ""
        return msgspec.structs.replace(access, api_base=api_base, key=key)

    def _vertex_access(self, client: ClientSettings, model: str) -> tuple[str, str]:
        api_base = self._api_base(client)
        if providers.signs_in(client):
            return api_base, ""  # OAuth replaces the key
        adopted = client.name in self._adopted.values()
        key, variables = (client.api_key, []) if adopted else self._key(client)
        if not key and (api_base in providers.WANT_KEYS or client.type in providers.WANT_KEYS_ANYWHERE):
            tried = " or ".join(variables)
            if adopted:
                raise CredentialsError(f"no API key for '{model}': add `api_key` to the file that sets {api_base}")
            raise CredentialsError(
                f"no API key for '{model}': set {tried}, or `api_key` of client '{client.name}' "
                f"in {self._settings.file}"
            )
        return api_base, key

    def _client(self, name: str) -> ClientSettings | None:
        client = self._clients.get(name)
        # Both names mean one provider; settings may use either.
        if client is None and name in ("claude", "anthropic"):
            client = self._clients.get("claude") or self._clients.get("anthropic")
        if client is None and name == CASSETTE:
            client = ClientSettings(type=name, name=name)
        if client is None and name in providers.BUILT_IN:
            client = ClientSettings(type=providers.BUILT_IN[name], name=name)
        if client is None and name in providers.READY_MADE and self._environ.get(providers.variable_of(name)):
            client = ClientSettings(type="openai-compatible", name=name)
        return client

    async def prepare(self, model: str) -> None:
        """Fetch the secrets of this model's client, so that `target` and `access` do not raise NotFetched."""
        client = self._client(model.partition(":")[0])
        if client is not None:
            await self._secrets.ready(partial(self._filled, client))

    def _filled(self, client: ClientSettings) -> ClientSettings:
        """Return the client with its secrets. A client of a definition file may not refer to all of them."""
        own = client.name not in self._adopted.values()
        return filled(client, self._secrets, self._settings.file, but=() if own else OF_ITS_FILE)

    def _entry(self, client: ClientSettings, name: str) -> ModelSettings:
        if not client.models:
            return ModelSettings(name=name)
        for model in client.models:
            if model.name == name:
                if model.type != "chat":
                    raise ConfigError(f"'{client.name}:{name}' is a model of type '{model.type}', not a chat model")
                return model
        raise ConfigError(self._unknown(f"{client.name}:{name}"))

    def _api_base(self, client: ClientSettings) -> str:
        base = providers.base_of(client, self._environ)
        if not base and client.type == "bedrock":
            raise ConfigError(f"client '{client.name}' has no `region`: set it in {self._settings.file}, or AWS_REGION")
        if not base:
            raise ConfigError(f"client '{client.name}' in {self._settings.file} has no `api_base`")
        if not base.startswith(("http://", "https://")):
            variable = (
                "" if client.api_base else providers.BASES.get(providers.BUILT_IN.get(client.type, client.type), "")
            )
            named = variable or f"`api_base` of client '{client.name}'"
            raise ConfigError(f"{named} is '{base}', not a URL that begins with http:// or https://")
        if client.type == "azure-openai":
            from .azure import azure

            return azure(base, client).base
        return base

    def _key(self, client: ClientSettings) -> tuple[str, list[str]]:
        """Return the client's key, and the variables that were checked for it."""
        variables = providers.key_variables(client)
        if client.api_key:
            where = f"`api_key` of client '{client.name}' in {self._settings.file}"
            return providers.checked_key(client.api_key, where), variables
        found = (providers.checked_key(self._environ.get(name, ""), name) for name in variables)
        key = next((key for key in found if key), "")
        if key:
            return key, variables
        # `*_API_KEY_FILE` names a file with the key, the convention of Docker and Kubernetes secrets.
        files = (f"{name}_FILE" for name in variables)
        in_files = (providers.checked_key(key_in_file(name, self._environ), name) for name in files)
        return next((key for key in in_files if key), ""), variables

    def _unknown(self, model: str) -> str:
        client = self._client(model.partition(":")[0])
        suggested = None
        if client is None and ":" not in model:
            suggested = providers.with_client(model, self._settings, self._environ, self.prices.finder)
        return providers.unknown(model, client, self._clients, self._settings, suggested)


def _patching(codec: Codec, patched: Patched | None) -> Codec:
    if patched is None:
        return codec
    from .patching import PatchedCodec

    return PatchedCodec(codec, patched)


def _changed(headers: dict[str, str], patched: Patched | None) -> dict[str, str]:
    return headers if patched is None else patched.headers(headers)


def _server_of(url: str) -> str:
    """Return `host:port` of an address; empty if it has no host or no valid port."""
    try:
        parts = urlsplit(url)
        port = parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        return ""
    return f"{parts.hostname}:{port}" if parts.hostname else ""
