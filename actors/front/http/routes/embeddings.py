"""Route `/v1/embeddings`: vectors by the embedding models of knowledge bases, in OpenAI's format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Send

from .....protocol.errors import ConfigError, CredentialsError, NotFound
from ...access.scopes import START
from ..call import HttpCall, reply, route
from ..shapes.openai import EmbeddingsReply, EmbeddingsRequest, reply_of
from ..streams import Performed

if TYPE_CHECKING:
    from ....runs.root import Root


@route("POST", "/v1/embeddings", START, tag="openai", gives=EmbeddingsReply, errors=(404, 502))
async def embed(call: HttpCall, body: EmbeddingsRequest) -> ASGIApp:
    """Vectors of texts as OpenAI's; `model` is an embedding model."""
    root = call.api.root
    model = _full_name(root, body.model)
    try:
        await root.knowledge.embedders.prepare(model)
        root.knowledge.embedders.check(model)
    # Also a `ConfigError`. A missing key is a failure of this server (502), not an unknown model (404).
    except CredentialsError:
        raise
    except ConfigError as error:
        default = root.knowledge.default_model
        raise NotFound(f"model: {error}; the embedding model of this server is {default}") from None

    async def perform(send: Send) -> None:
        rows, tokens = await root.embed(model, body.texts, call.caller.subject, dimensions=body.dimensions)
        sent = reply_of(rows, body, body.model, tokens)
        await reply(sent)(call.request.scope, call.request.receive, send)

    return Performed(perform)


def _full_name(root: Root, model: str) -> str:
    """Return the full model name. Clients of OpenAI send the configured model's name without its provider."""
    default = root.knowledge.default_model
    return default if ":" not in model and model == default.partition(":")[2] else model
