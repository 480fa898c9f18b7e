"""Checks whether models can be used: facts that need no request, and the result of one small request to each model.

Without a request: the client exists, its base URL is valid, a key or a readable file of credentials exists, and so do
weights, the required extra, a price, and a window. A request asks for one word and at most `TOKENS` tokens, so it
costs next to nothing. It is not retried and does not wait for a rate limit, because the obstacle is the result.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ...protocol.chat import ChatRequest, Delta, UserTurn, models_of
from ...protocol.environment import SECRET
from ...protocol.errors import CallboardError, ConfigError, TimedOut
from ...protocol.settings import ClientSettings, ModelSettings, Settings
from ..work.models import providers
from ..work.models.catalog import ModelCatalog
from ..work.models.prices.price_lookup import FoundPrice
from ..work.models.prices.table import Rate, Tiered

if TYPE_CHECKING:
    from ...supervisors import Actor
    from ..work.knowledge.service import Knowledge
    from ..work.models.gateway import Gateway

Json = Any

TOKENS = 16
"""Limit of a reply's tokens: the smallest that every provider accepts."""

WITHIN = 60.0
"""Timeout of one request in seconds."""

AT_ONCE = 16
"""Maximum of concurrent requests."""

_ASKED = "Reply with the single word: ok"


class ModelUnusable(msgspec.Struct, frozen=True):
    """Reason why a model cannot be used: an error's code, text and exit code."""

    code: str
    message: str
    exit_code: int


class ModelCheckReply(msgspec.Struct, frozen=True, kw_only=True):
    """Reply of a model to a check.

    Attributes:
        seconds: time until the reply was complete.
        first: time until its first chunk, if it was streamed.
        text: text of the reply; for an embedding model, the length of its vectors.
        cost: cost in USD; None if unknown.
    """

    seconds: float
    first: float | None = None
    text: str
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """Result of checking one model.

    Attributes:
        model: `client:model`; `kind` is its type, for example `chat` or `embedding`.
        name: the provider's name of the model.
        key: source of its key or credentials; "" if there are none, `none needed` if it needs none.
        input_price, output_price: price of a small request now, in USD per million tokens.
        window: input tokens that it accepts; `window_from` names the source of the number.
        lacks: features that requests to it do not use: `stream`, `tools`, `images`, `schema`.
        failed: reason why it cannot be used; None if no problem was found.
        answer: its reply; None if no request was sent.
    """

    model: str
    kind: str
    type: str
    name: str
    api_base: str
    key: str
    priced: bool
    input_price: float | None = None
    output_price: float | None = None
    window: int | None = None
    window_from: str = ""
    lacks: tuple[str, ...] = ()
    failed: ModelUnusable | None = None
    answer: ModelCheckReply | None = None


def all_models(settings: Settings, catalog: ModelCatalog) -> list[str]:
    """Return every model that config.yaml lists, the default model first."""
    listed = [f"{client.name}:{model.name}" for client in settings.clients for model in client.models]
    return list(dict.fromkeys([*models_of(catalog.choice().model), *listed]))


def check(model: str, settings: Settings, catalog: ModelCatalog, environ: Mapping[str, str]) -> Checked:
    """Check a model without a request. Reads its files of credentials, and the price table.

    Raises:
        ConfigError: the client or the model does not exist.
    """
    client, entry = _named(model, settings, catalog)
    base = providers.base_of(client, environ)
    found = catalog.prices.finder.find(client, entry, base)
    window, window_from = _window(entry, found, settings)
    rates = found.tariff.now() if found.tariff is not None else None
    key, failed = "", None
    try:
        key = _key(client, environ, settings)
        if entry.type == "chat":
            catalog.target(f"{client.name}:{entry.name}")
        elif entry.type in ("embedding", "reranker"):
            catalog.access(f"{client.name}:{entry.name}", "embedding" if entry.type == "embedding" else "reranker")
    except CallboardError as error:
        failed = ModelUnusable(error.code, str(error), error.exit_code)
    return Checked(
        model=f"{client.name}:{entry.name}",
        kind=entry.type,
        type=client.type,
        name=entry.real_name or entry.name,
        api_base=base,
        key=key,
        priced=found.tariff is not None,
        input_price=None if rates is None else _small(rates.input),
        output_price=None if rates is None else _small(rates.output),
        window=window,
        window_from=window_from,
        lacks=_lacks(client, entry) if entry.type == "chat" else (),
        failed=failed,
    )


async def ask(
    me: Actor, checked: Checked, gateway: Gateway, knowledge: Knowledge, limiter: trio.CapacityLimiter
) -> Checked:
    """Send one small request to a checked model; return the check with its reply, or with the reason of the failure.

    A model that the check has found unusable gets no request. `limiter` bounds concurrent requests.
    """
    if checked.failed is not None:
        return checked
    async with limiter:
        try:
            with trio.move_on_after(WITHIN):
                once = _chat(me, checked, gateway) if checked.kind == "chat" else _knows(me, checked, knowledge)
                return msgspec.structs.replace(checked, answer=await once)
            raise TimedOut(f"{checked.model} did not answer within {WITHIN:g} s")
        except CallboardError as error:
            return msgspec.structs.replace(checked, failed=ModelUnusable(error.code, str(error), error.exit_code))


def exit_code(found: Sequence[Checked]) -> int:
    """Return the exit code of the first model that cannot be used; 0 if all can."""
    return next((each.failed.exit_code for each in found if each.failed is not None), 0)


async def _chat(me: Actor, checked: Checked, gateway: Gateway) -> ModelCheckReply:
    began = trio.current_time()
    first: list[float] = []

    def hear(_: Delta) -> None:
        first.append(trio.current_time() - began)

    request = ChatRequest(model=checked.model, messages=(UserTurn(_ASKED),), max_tokens=TOKENS)
    reply = await gateway.chat(me, request, on_delta=hear, attempts=1, may_wait=False)
    return ModelCheckReply(
        seconds=trio.current_time() - began,
        first=first[0] if first else None,
        text=reply.text,
        input_tokens=reply.usage.input_tokens,
        output_tokens=reply.usage.output_tokens,
        cost=reply.cost,
    )


async def _knows(me: Actor, checked: Checked, knowledge: Knowledge) -> ModelCheckReply:
    began = trio.current_time()
    asked = f"ok {secrets.token_hex(4)}"  # a text that no cache has
    await knowledge.embedders.prepare(checked.model)
    if checked.kind == "reranker":
        scores = await knowledge.embedders.reranker(checked.model).rerank(me, asked, [asked])
        text = f"a score for {len(scores)} text"
    else:
        vectors = await knowledge.embedders.of(checked.model).embed(me, [asked])
        text = f"vectors of {vectors.shape[1]} numbers"
    return ModelCheckReply(seconds=trio.current_time() - began, text=text)


def _named(model: str, settings: Settings, catalog: ModelCatalog) -> tuple[ClientSettings, ModelSettings]:
    """Return the client and its model, including models that are not for chat."""
    name, _, which = model.partition(":")
    client = next((each for each in settings.clients if each.name == name), None)
    entry = next((each for each in client.models if each.name == which), None) if client is not None else None
    return catalog.named(model) if client is None or entry is None else (client, entry)


def _key(client: ClientSettings, environ: Mapping[str, str], settings: Settings) -> str:
    """Return the source of the key.

    Raises:
        ConfigError, CredentialsError: a file of credentials cannot be used.
    """
    if providers.signs_in(client):
        return "signed in"
    if client.api_key:
        return f"`api_key` in {settings.file}" + (f": {client.api_key}" if SECRET.fullmatch(client.api_key) else "")
    if client.access_key_id:
        return f"`access_key_id` in {settings.file}"
    variable = next((name for name in providers.key_variables(client) if environ.get(name)), "")
    if variable and (client.type != "vertexai" or not client.adc_file):
        return variable
    if client.type == "vertexai":
        return _of_google(client, environ, settings)
    if client.type == "bedrock":
        from ..work.models.aws.credential_chain import RoleSigner, signer_of

        signer = signer_of(client, "bedrock", environ, settings.file, None)
        if isinstance(signer, RoleSigner):
            return signer.role.named or "the role of this machine, if it has one"
        return f"key {signer.keys.access_key_id}"
    return "none needed" if client.type in providers.KEYLESS else ""


def _of_google(client: ClientSettings, environ: Mapping[str, str], settings: Settings) -> str:
    from ..work.models.vertex.location import CredentialsFile, project_of, project_of_gcloud, source_of
    from ..work.models.vertex.login import read_login

    source = source_of(client, environ, settings.file)
    if isinstance(source, CredentialsFile):
        login = read_login(source)
        if not (project_of(client, environ) or login.project or project_of_gcloud(environ) or login.billed):
            raise ConfigError(
                f"client '{client.name}' has no `project_id`: set it in {settings.file}, or GOOGLE_CLOUD_PROJECT"
            )
    return str(source)


def _lacks(client: ClientSettings, entry: ModelSettings) -> tuple[str, ...]:
    has = {
        "stream": not entry.no_stream,
        "tools": entry.supports_function_calling,
        "images": entry.supports_vision and client.type != "local",
        "schema": entry.supports_json_schema,
    }
    return tuple(name for name, there in has.items() if not there)


def _window(entry: ModelSettings, found: FoundPrice, settings: Settings) -> tuple[int | None, str]:
    if entry.max_input_tokens is not None:
        return entry.max_input_tokens, settings.file
    if found.entry is not None and found.entry.window is not None:
        return found.entry.window, "price table"
    return None, ""


def _small(rate: Rate | None) -> float | None:
    return rate.base if isinstance(rate, Tiered) else rate
