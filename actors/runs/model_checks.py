"""Whether models can be used: what is known without a request, and what one small request to each shows.

Without a request: the client is there, its base URL is one, there is a key or a file of credentials that can be read,
weights, the extra that it needs, a price, a window. A request asks for one word and at most `TOKENS` tokens, so it
costs next to nothing; it is not tried again and does not wait for its turn, since what stands in its way is the answer.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ...protocol.chat import ChatRequest, Delta, UserTurn
from ...protocol.errors import CallboardError, ConfigError, TimedOut
from ...protocol.model_names import models_of
from ...protocol.references import SECRET
from ...protocol.settings import ClientSettings, ModelSettings, Settings
from ..work.models import providers
from ..work.models.catalog import Catalog
from ..work.models.prices.find import Found
from ..work.models.prices.rates import Rate, Tiered

if TYPE_CHECKING:
    from ...supervisors import Actor
    from ..work.knowledge.service import Knowledge
    from ..work.models.gateway import Gateway

Json = Any

TOKENS = 16
"""Of a reply: the fewest that every provider allows."""

WITHIN = 60.0
"""Seconds for one request."""

AT_ONCE = 16
"""Requests under way."""

_ASKED = "Reply with the single word: ok"


class Failed(msgspec.Struct, frozen=True):
    """Why a model can't be used."""

    code: str
    message: str
    exit_code: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back.

    Attributes:
        seconds: until it was whole; `first` until its first piece, where it was streamed.
        text: what the model said; of a model that makes vectors, how long they are.
        cost: in USD; None where that is not known.
    """

    seconds: float
    first: float | None = None
    text: str
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a model.

    Attributes:
        model: `client:model`; `kind` is what it is for.
        name: what the provider calls it.
        key: where its key or its credentials are from; "" where there are none, `none needed` where none are needed.
        input_price, output_price: of a small request now, in USD per million tokens.
        window: tokens that it takes in; `window_from` says who says so.
        lacks: what it is not asked for: `stream`, `tools`, `images`, `schema`.
        failed: why it can't be used; None if nothing speaks against it.
        answer: None where it was not asked.
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
    failed: Failed | None = None
    answer: Answer | None = None


def all_models(settings: Settings, catalog: Catalog) -> list[str]:
    """Every model that config.yaml lists, and the one that is used if none is named, which comes first."""
    listed = [f"{client.name}:{model.name}" for client in settings.clients for model in client.models]
    return list(dict.fromkeys([*models_of(catalog.choice().model), *listed]))


def check(model: str, settings: Settings, catalog: Catalog, environ: Mapping[str, str]) -> Checked:
    """What is known of a model without a request. Reads the files that its credentials are in, and the table of prices.

    Raises:
        ConfigError: there is no such client or model.
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
        failed = Failed(error.code, str(error), error.exit_code)
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
    """The same, with what a request has shown. One that can't be used is not asked."""
    if checked.failed is not None:
        return checked
    async with limiter:
        try:
            with trio.move_on_after(WITHIN):
                once = _chat(me, checked, gateway) if checked.kind == "chat" else _knows(me, checked, knowledge)
                return msgspec.structs.replace(checked, answer=await once)
            raise TimedOut(f"{checked.model} did not answer within {WITHIN:g} s")
        except CallboardError as error:
            return msgspec.structs.replace(checked, failed=Failed(error.code, str(error), error.exit_code))


def exit_code(found: Sequence[Checked]) -> int:
    """That of the first model that can't be used; 0 if all can."""
    return next((each.failed.exit_code for each in found if each.failed is not None), 0)


async def _chat(me: Actor, checked: Checked, gateway: Gateway) -> Answer:
    began = trio.current_time()
    first: list[float] = []

    def hear(_: Delta) -> None:
        first.append(trio.current_time() - began)

    request = ChatRequest(model=checked.model, messages=(UserTurn(_ASKED),), max_tokens=TOKENS)
    reply = await gateway.chat(me, request, on_delta=hear, attempts=1, may_wait=False)
    return Answer(
        seconds=trio.current_time() - began,
        first=first[0] if first else None,
        text=reply.text,
        input_tokens=reply.usage.input_tokens,
        output_tokens=reply.usage.output_tokens,
        cost=reply.cost,
    )


async def _knows(me: Actor, checked: Checked, knowledge: Knowledge) -> Answer:
    began = trio.current_time()
    asked = f"ok {secrets.token_hex(4)}"  # one that no cache knows
    await knowledge.embedders.prepare(checked.model)
    if checked.kind == "reranker":
        scores = await knowledge.embedders.reranker(checked.model).rerank(me, asked, [asked])
        text = f"a score for {len(scores)} text"
    else:
        vectors = await knowledge.embedders.of(checked.model).embed(me, [asked])
        text = f"vectors of {vectors.shape[1]} numbers"
    return Answer(seconds=trio.current_time() - began, text=text)


def _named(model: str, settings: Settings, catalog: Catalog) -> tuple[ClientSettings, ModelSettings]:
    """The client and its model, also one that does not chat."""
    name, _, which = model.partition(":")
    client = next((each for each in settings.clients if each.name == name), None)
    entry = next((each for each in client.models if each.name == which), None) if client is not None else None
    return catalog.named(model) if client is None or entry is None else (client, entry)


def _key(client: ClientSettings, environ: Mapping[str, str], settings: Settings) -> str:
    """Where the key is from. Raises ConfigError or CredentialsError where a file of credentials can't be used."""
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
        from ..work.models.aws.signers import RoleSigner, signer_of

        signer = signer_of(client, "bedrock", environ, settings.file, None)
        if isinstance(signer, RoleSigner):
            return signer.role.named or "the role of this machine, if it has one"
        return f"key {signer.keys.access_key_id}"
    return "none needed" if client.type in providers.KEYLESS else ""


def _of_google(client: ClientSettings, environ: Mapping[str, str], settings: Settings) -> str:
    from ..work.models.vertex.login import read_login
    from ..work.models.vertex.place import File, project_of, project_of_gcloud, source_of

    source = source_of(client, environ, settings.file)
    if isinstance(source, File):
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


def _window(entry: ModelSettings, found: Found, settings: Settings) -> tuple[int | None, str]:
    if entry.max_input_tokens is not None:
        return entry.max_input_tokens, settings.file
    if found.entry is not None and found.entry.window is not None:
        return found.entry.window, "price table"
    return None, ""


def _small(rate: Rate | None) -> float | None:
    return rate.base if isinstance(rate, Tiered) else rate
