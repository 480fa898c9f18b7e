"""A model as it is asked: how it is reached, what it costs and what it can't do. `catalog` makes these."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from ....protocol.chat import AssistantTurn, ChatRequest, ImagePart, TokenUsage, Turn, parts_of
from ....protocol.errors import KeyRefused, Unsupported
from ....protocol.settings import ClientSettings, ModelSettings, Settings
from .allowance import Rules
from .codec import Codec, Sign, with_preface
from .prices.price import Price

if TYPE_CHECKING:
    from .patching import Patched

T = TypeVar("T")


class TokenBearer(Protocol):
    """What requests carry that expires.

    Attributes:
        headers: what the next request carries, up to date after `renew`.
    """

    headers: dict[str, str]

    async def renew(self) -> Any:
        """See to a token that is good for a while, and return it."""
        ...

    async def once_more(self, token: Any, refused: KeyRefused, send: Callable[[], Awaitable[T]]) -> T:
        """The reply to a request that was refused with that token, if it is not with another one."""
        ...


class Choice(msgspec.Struct, frozen=True):
    """The model that is used when a request names none. `str(choice)` is one line that tells so."""

    model: str
    why: str
    is_last_resort: bool = False
    """Neither settings nor keys speak for it."""

    def __str__(self) -> str:
        return f"model: {self.model} ({self.why})"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A model, ready to be asked.

    Attributes:
        id: `client:model`.
        name: what the provider calls it.
        codec: speaks the provider's language.
        api_base: base URL, without a slash at its end; empty for a local engine.
        headers: what every request carries, the key included.
        engine: path of the weights that a local engine has to load, else None.
        proxy: URL, `-` for none at all, empty for what the environment says.
        connect_timeout: seconds.
        rules: how much may be sent.
        idle_timeout: seconds that a stream may say nothing.
        renew: sees to keys that expire, before every request; None where there are none.
        signed_in: has such a token, and another one for a request that was refused; None where there is none.
        price: finds what it costs, once it is first asked.
        patched: what becomes of requests, which `codec` sees to; None where nothing does.
    """

    id: str
    name: str
    codec: Codec
    model: ModelSettings
    api_base: str
    headers: dict[str, str]
    engine: str | None = None
    proxy: str = ""
    connect_timeout: float = 10.0
    rules: Rules = Rules()
    idle_timeout: float = math.inf
    renew: Callable[[], Awaitable[None]] | None = None
    signed_in: TokenBearer | None = None
    price: Price
    patched: Patched | None = None

    @property
    def account(self) -> str:
        """A name for who asks it, the same in all processes with the same key; "" for an engine of this machine."""
        secrets = "" if self.signed_in is not None or self.renew is not None else self.headers
        return "" if self.engine is not None else account_of(self.id, self.api_base, secrets)

    def cost(self, usage: TokenUsage) -> float | None:
        """What that many tokens cost, in USD; None if its price is not known."""
        tariff = self.price.tariff
        return None if tariff is None else tariff.cost(usage)

    def complete(self, request: ChatRequest, settings: Settings) -> ChatRequest:
        """The request with its gaps filled from the settings, and without what this model can't do.

        Raises:
            Unsupported: it holds an image, and the model takes none; or it asks the model to think, or not to, and that
                can't be done.
        """
        model = self.model
        if not model.supports_vision and any(_has_image(turn) for turn in request.messages):
            raise Unsupported(f"'{self.id}' takes no images (`supports_vision: false`)")
        changes: dict[str, object] = {}
        if (request.reasoning_effort or model.reasoning_effort or settings.reasoning_effort) is not None or (
            request.thinking_budget,
            model.thinking_budget,
            settings.thinking_budget,
        ) != _NO_BUDGETS:
            from .reasoning import effort

            changes = effort.wanted(request, self.id, self.name, model, settings)
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
        system = model.system_prompt_prefix + request.system
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


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is reached that does not chat: one that makes vectors of texts, or puts texts in order.

    Attributes:
        id: `client:model`.
        name: what the provider calls it.
        client: its type says which language it speaks.
        api_base: base URL, without a slash at its end; empty for a local model.
        key: empty where none is needed.
        price: finds what it costs.
        rules: how much may be sent.
        patched: what becomes of requests; None where nothing does.
        renew: sees to credentials that expire, before every request; None where there are none.
        sign: makes of a request what lets it in, where no key does.
        signed_in: as that of a `Target`.
        below: the whole path of one that its language knows the end of.
    """

    id: str
    name: str
    model: ModelSettings
    client: ClientSettings
    price: Price
    rules: Rules = Rules()
    patched: Patched | None = None
    api_base: str = ""
    key: str = ""
    renew: Callable[[], Awaitable[None]] | None = None
    sign: Sign | None = None
    signed_in: TokenBearer | None = None
    below: Callable[[str], str] = str


def account_of(model: str, api_base: str, secrets: object) -> str:
    """A name for who asks a model, which does not tell his key."""
    return sha256(msgspec.json.encode((model, api_base, secrets), order="deterministic")).hexdigest()[:32]


def idle_timeout_of(*choices: float | None) -> float:
    """The first that is said; 0 is none at all."""
    chosen = next((seconds for seconds in choices if seconds is not None), 0.0)
    return chosen or math.inf


def rules_of(client: ClientSettings, entry: ModelSettings) -> Rules:
    """How much may be sent to a model: its own limits, else those of its client."""
    return Rules(
        requests_per_minute=entry.requests_per_minute or client.requests_per_minute,
        tokens_per_minute=entry.tokens_per_minute or client.tokens_per_minute,
        max_concurrency=entry.max_concurrency or client.max_concurrency or (1 if client.type == "local" else None),
    )
