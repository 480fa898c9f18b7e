"""Resolved models: address, headers, codec, price and capabilities of one model. `catalog` creates these structs."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from ....protocol.chat import (
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
    parts_of,
)
from ....protocol.errors import KeyRefused, Unsupported
from ....protocol.settings import ClientSettings, ModelSettings, Settings
from .codec import Codec, Sign, name_of, with_preface
from .limiter import AllowanceRules
from .prices.price import Price

if TYPE_CHECKING:
    from .patching import Patched

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
    """Return the rate limits of a model: its own, else its client's. Local models get one request at a time."""
    return AllowanceRules(
        requests_per_minute=entry.requests_per_minute or client.requests_per_minute,
        tokens_per_minute=entry.tokens_per_minute or client.tokens_per_minute,
        max_concurrency=entry.max_concurrency or client.max_concurrency or (1 if client.type == "local" else None),
    )
