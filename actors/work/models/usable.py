"""List of usable models, for selection and completion of names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ....protocol.model_names import models_of
from .catalog import ModelCatalog
from .facts import chats
from .providers import base_of, usable_clients

if TYPE_CHECKING:
    from ....protocol.settings import Settings


def model_names(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the ids of known chat models, each once. This may block while the price table is loaded.

    The configured models are first. Then follow the models of each usable client: its list in `config.yaml`, else its
    models in the price table whose names suggest a chat model.
    """
    chosen = models_of(settings.model) if settings.model else ()
    yield from dict.fromkeys(chosen)
    yield from (name for name in _of_clients(settings, environ) if name not in chosen)


def _of_clients(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    catalog = ModelCatalog(settings, environ)
    for client in usable_clients(settings, environ):
        if client.models:
            yield from (f"{client.name}:{model.name}" for model in client.models if model.type == "chat")
        else:
            yield from (
                f"{client.name}:{name}"
                for name in catalog.prices.finder.known(client, base_of(client, environ))
                if chats(name) and not name.startswith("regional.")  # prefix of Bedrock's regional prices in the table
            )
